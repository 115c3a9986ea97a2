"""The trial on the first batch: mistakes in network, data and likelihood are reported before a fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from livi.model.data import Batch, Data, LoaderData, TensorData
from livi.model.data.shapes import CHANNELS_FIRST
from livi.model.likelihoods import Bernoulli, Categorical, Likelihood, Weighted, pass_weights
from livi.model.likelihoods.base import TargetError
from livi.model.likelihoods.others import WITH_WEIGHTS, check_weights
from livi.model.units import entered_by
from livi.model.warning import warn
from livi.network import Layout, all_batch_norms, as_call
from livi.outliers import far_out

SEVERAL = 2  # examples that BatchNorm needs
LARGE = 1e3  # times a network's own weights
CHANCE = 1e-2  # of the largest output, by which outputs of one network differ where random numbers are drawn
SORTED = 10**7  # numbers, of more it would take seconds to find those that stand apart


class Trial(NamedTuple):
    """The results of a first batch."""

    unused: tuple[str, ...]  # parameters without effect
    outputs: Any


def in_usable_batches(layout: Layout, data: TensorData | LoaderData) -> TensorData | LoaderData:
    """The same examples in batches that the network's BatchNorm can normalise by: of two examples or more, if it must.

    Raises:
        ValueError: there is but one example, or each was asked for by itself.
    """
    if not _needs_several(layout, data.first()[0]):
        return data
    found = data.at_least(SEVERAL) if isinstance(data, LoaderData) else data
    if len(found.first()[1]) < SEVERAL:
        remedy = "pass more examples" if found.num_data < SEVERAL else "pass a larger batch_size"
        raise ValueError(
            f"data: expected at least {SEVERAL} examples in a batch, for the network's BatchNorm normalises by the "
            f"batch, got 1; {remedy}."
        )
    return found


@torch.no_grad()
def _needs_several(layout: Layout, inputs: Any) -> bool:
    """Whether the network's BatchNorm fails on a single example, as it does behind a linear layer."""
    if not all_batch_norms(layout.module):
        return False
    one = pytree.tree_map(lambda leaf: leaf[:1] if isinstance(leaf, Tensor) and leaf.ndim else leaf, inputs)
    args, kwargs = as_call(one)
    try:
        layout.apply(layout.flatten(), *args, batch_statistics=True, **kwargs)
    except ValueError as error:
        return "more than 1 value per channel" in str(error)
    except Exception:  # which the trial on the whole batch will name
        return False
    return False


def try_first_batch(layout: Layout, data: Data, likelihood: Likelihood) -> Trial:
    """Raise where the network does not run, no parameter matters, or outputs and targets do not fit together."""
    inputs = data.first()[0]
    args, kwargs = as_call(inputs)
    try:
        unused = layout.verify(*args, **kwargs)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise type(error)(_failed(layout, inputs, likelihood, error, data.num_data)) from error
    if isinstance(likelihood, Weighted) and layout.forward is pass_weights:
        _try_weights(data)
    with torch.no_grad():
        outputs = layout.apply(layout.flatten(), *args, batch_statistics=True, **kwargs)
        _try_targets(pytree.tree_map(lambda leaf: leaf[None], outputs), data, likelihood)
    return Trial(unused, outputs)


def _try_weights(data: Data) -> None:
    """Check the weights of examples: those in tensors now, those in batches when they are read."""
    if isinstance(data, TensorData):
        check_weights(_weights_beside(data.inputs), whole=True)
    elif isinstance(data, LoaderData):
        try:
            _check_weights_beside(data.first()[0])
        except ValueError as error:
            raise type(error)(f"batch 0: {error}") from None
        data.check_inputs = _check_weights_beside


def _check_weights_beside(inputs: Any) -> None:
    check_weights(_weights_beside(inputs), whole=False)


def _weights_beside(inputs: Any) -> Tensor:
    """The weights among the arguments of `pass_weights`."""
    weights: Tensor = inputs["weights"] if isinstance(inputs, dict) else inputs[1]
    return weights


@torch.no_grad()
def refuse_non_finite(trial: Trial, likelihood: Likelihood, batch: Batch) -> None:
    """Raise where the network's own outputs are NaN or inf, and not by design, as the -inf of a masked class is.

    Raises:
        ValueError: there are such outputs, and the likelihood of the batch's targets is not finite.
    """
    inputs, targets = batch
    leaves = [leaf for leaf in pytree.tree_leaves(trial.outputs) if isinstance(leaf, Tensor)]
    if all(bool(torch.isfinite(leaf).all()) for leaf in leaves):
        return
    values = likelihood.log_prob(pytree.tree_map(lambda leaf: leaf[None], trial.outputs), targets)
    if bool(torch.isfinite(values).all()):
        return
    given = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    largest = f" of inputs up to {max(float(leaf.abs().max()) for leaf in given):.4g}" if given else ""
    bad = int((~torch.isfinite(values)).sum())
    raise ValueError(
        f"net: expected finite outputs at the network's own weights, got NaN or inf for {bad} of the first batch's "
        f"{len(targets)} examples{largest}; look in its forward for a logarithm, root or quotient "
        "of what may be 0 or negative, and for an exp that overflows."
    )


def _try_targets(outputs: Any, data: Data, likelihood: Likelihood) -> None:
    """Check the targets: those in tensors now, those in batches when they are read, so that errors can name rows."""
    reason: TargetError | None = None
    try:
        likelihood.log_prob(outputs, data.first()[1])
    except TargetError as error:
        reason = error
    if isinstance(data, TensorData):
        likelihood.check_targets(outputs, data.targets)
    if reason is not None:
        raise TargetError(f"batch 0: {reason}") from reason
    if isinstance(data, LoaderData):
        one = pytree.tree_map(lambda leaf: leaf[:, :1].clone() if leaf.ndim > 1 else leaf, outputs)  # of one example
        data.check = partial(likelihood.check_targets, one)


def warn_of_doubts(
    trial: Trial,
    layout: Layout,
    likelihood: Likelihood,
    data: TensorData | LoaderData,
    others: tuple[str, ...] = (),
    *,
    held: bool = False,
) -> None:
    """Warn of parameters that do not matter, images of bytes, codes among numbers, outputs that are no logits, and
    targets out of a prior's reach.

    Args:
        others: further warnings, such as of digits that the data lost in the network's dtype.
        held: units of inputs and targets stay as they are, so that no remedy may be to standardise them.
    """
    batch = data.first()
    doubts = _doubts(*trial, layout, likelihood, batch, held)
    inputs = data.inputs if isinstance(data, TensorData) else batch[0]
    on_inputs = (*_on_bytes(layout, batch[0], held), *_on_codes(layout, inputs))
    for doubt in (*others, *doubts, *on_inputs, *_on_chance(trial.outputs, layout, batch[0])):
        warn(doubt)


def _failed(layout: Layout, inputs: Any, likelihood: Likelihood, error: Exception, num_data: int) -> str:
    leaves, dtype = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)], layout.dtype
    shapes = ", ".join(f"{tuple(leaf.shape)} {leaf.dtype}" for leaf in leaves)
    convolutions = [layer for layer in layout.module.modules() if isinstance(layer, nn.Conv2d)]
    packed = any(isinstance(each, PackedSequence) for each in (inputs, *(inputs if isinstance(inputs, tuple) else ())))
    remedies = []
    unweighted = layout.forward is None or (layout.forward is pass_weights and len(leaves) < 2)
    if isinstance(likelihood, Weighted) and unweighted:
        remedies = [f"with Weighted() {WITH_WEIGHTS}"]
    elif packed:
        remedies = ["of a PackedSequence pass the padded sequences and their lengths, and pack them in the network"]
    elif any(leaf.dtype == torch.uint8 for leaf in leaves):
        remedies = [f"images of bytes want `x.to({dtype}) / 255` before a network of {dtype}"]
    elif any(not leaf.is_floating_point() for leaf in leaves):
        remedies = [f"whole numbers that are no indices want `x.to({dtype})` before a network of {dtype}"]
    elif [leaf.ndim for leaf in leaves] == [1]:
        remedies = ["the first axis counts examples: one number each wants `x[:, None]`"]
    elif [leaf.ndim for leaf in leaves] == [3] and convolutions:
        remedies = ["the first axis counts examples: images of one channel want `x[:, None]`"]
    if isinstance(inputs, dict) and layout.forward is None and "unexpected keyword argument" in str(error):
        remedies.append("a network that takes one dict whole wants `forward=lambda net, **d: net(d)`")
    if any(_channels_last(leaf, convolutions) for leaf in leaves):
        remedies.append(CHANNELS_FIRST)
    if any(leaf.ndim == 2 and len(leaf) < num_data == leaf.shape[1] for leaf in leaves):
        remedies.append(f"the nodes of one graph want to be one batch: pass batch_size={num_data}")
    reason = f"{'; '.join([str(error).rstrip('.'), *remedies])}." if remedies else str(error)
    return f"the network failed on its first batch of inputs {shapes}: {reason}"


def _channels_last(leaf: Tensor, convolutions: Sequence[nn.Conv2d]) -> bool:
    """Whether these are images (B, H, W, C), as PIL and numpy have them, for a network whose first layer wants C."""
    channels = [layer.in_channels for layer in convolutions[:1]]
    return leaf.ndim == 4 and channels == [leaf.shape[3]] != [leaf.shape[1]]


def _doubts(
    unused: tuple[str, ...], outputs: Any, layout: Layout, likelihood: Likelihood, batch: Batch, held: bool
) -> Iterator[str]:
    if unused:
        yield (
            f"the outputs do not depend on {', '.join(unused[:4])}: their posterior will be the prior. "
            "Exclude them by pattern if that is not meant; saturated units from unstandardised inputs look the same."
        )
    likelihood, outputs, _ = likelihood.without_weights(outputs)
    if isinstance(outputs, Tensor):
        yield from _on_probabilities(likelihood, outputs)
        if isinstance(likelihood, Bernoulli) and _from_0_to_1(outputs) and _always_from_0_to_1(layout, batch[0]):
            yield (
                "outputs: expected logits, got numbers from 0 to 1 whatever the weights, as of a sigmoid; the "
                "likelihood applies its own, and no prediction could be certain: leave the network's out, or pass "
                "forward=lambda net, x: net(x).logit(1e-6)."
            )
    far = likelihood.out_of_reach(batch[1], held=held)
    if far is not None:
        yield far


@torch.no_grad()
def _on_chance(outputs: Any, layout: Layout, inputs: Any) -> Iterator[str]:
    """A network whose outputs on these inputs are not the same another time."""
    args, kwargs = as_call(inputs)
    again = layout.apply(layout.flatten(), *args, batch_statistics=True, **kwargs)
    for one, other in zip(pytree.tree_leaves(outputs), pytree.tree_leaves(again), strict=False):
        if isinstance(one, Tensor) and one.is_floating_point() and one.shape == other.shape:
            scale = one.abs().amax() if one.numel() else one.new_zeros(())
            if bool(((one - other).abs() > CHANCE * scale).any()):
                yield (
                    "outputs: expected the same whenever the network runs at the same weights, got others, as where it "
                    "draws random numbers: predictions will differ from call to call, and fits are slower; give "
                    "F.dropout its training=self.training, or use nn.Dropout, and leave out other noise."
                )
                return


@torch.no_grad()
def _on_bytes(layout: Layout, inputs: Any, held: bool) -> Iterator[str]:
    """A doubt about images (B, C, H, W) of whole numbers up to 255 that enter a convolution as they are."""
    if not isinstance(inputs, Tensor) or inputs.ndim != 4 or layout.scaling is not None:
        return
    if not (20 < float(inputs.max()) <= 255 and float(inputs.min()) >= 0 and bool((inputs == inputs.round()).all())):
        return
    with entered_by(layout.module, inputs, (nn.Conv2d,)) as entered:
        layout.apply(layout.flatten(), inputs, batch_statistics=True)
    if entered and not set(entered) & {name.rpartition(".")[0] + "." for name in layout.fixed}:
        yield (
            f"inputs: expected numbers of order 1, got whole ones up to {float(inputs.max()):.0f}, as of images of "
            f"bytes; divide them by 255{'' if held else ', or pass standardise=True'}."
        )


def _on_codes(layout: Layout, inputs: Any) -> Iterator[str]:
    """Doubts about numbers so far from the rest of their column (N, p) that standardising makes the rest alike."""
    if layout.scaling is None or not isinstance(inputs, Tensor) or inputs.ndim != 2 or inputs.numel() > SORTED:
        return
    for index, column in enumerate(inputs.detach().cpu().double().numpy().T):
        apart = far_out(column)
        if apart.any():
            usual, count = column[~apart], int(apart.sum())
            yield (
                f"inputs: column {index} has {count} number{'s' * (count > 1)} such as {column[apart][0]:g} where all "
                f"others are {usual.min():g} to {usual.max():g}, which standardising makes alike; replace what stands "
                "for a missing value, correct what is a mistake, or clip the column."
            )


def _on_probabilities(likelihood: Likelihood, outputs: Tensor) -> Iterator[str]:
    """A doubt about outputs (B, C, ...) that are probabilities, to which the likelihood would apply a softmax again."""
    if type(likelihood) is Categorical and bool((outputs >= 0).all()):
        sums = outputs.sum(1)
        if torch.allclose(sums, torch.ones_like(sums), rtol=0.0, atol=1e-3):
            yield (
                "outputs: expected logits, got numbers of at least 0 that sum to 1, as from a softmax; Categorical "
                "applies its own, and no prediction could be certain: leave the network's softmax out, or pass "
                "forward=lambda net, x: net(x).clamp_min(1e-12).log()."
            )


def _from_0_to_1(outputs: Any) -> bool:
    return bool(((outputs >= 0) & (outputs <= 1)).all())


@torch.no_grad()
def _always_from_0_to_1(layout: Layout, inputs: Any) -> bool:
    """Whether outputs stay in [0, 1] at weights a thousand times as large, of either sign, as no logits would."""
    args, kwargs = as_call(inputs)
    far = [layout.apply(sign * LARGE * layout.flatten(), *args, batch_statistics=True, **kwargs) for sign in (1, -1)]
    found = [each[0] if isinstance(each, tuple) else each for each in far]
    return all(_from_0_to_1(each) for each in found) and not all(bool((each == 0).all()) for each in found)
