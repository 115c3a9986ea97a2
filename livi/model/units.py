"""Natural units: inputs and targets far from order one are standardised inside, and answers are in the user's units.

Data stay as they are. What changes is how the network is called, by an `InputScaling` of its layout, and what its
outputs mean, by the centre and unit of the likelihood: so predictions, scores, validation, files and all that goes on
from a posterior see the user's units and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi.model.data import Batch, Data, TensorData
from livi.model.likelihoods import Likelihood, pass_weights
from livi.model.likelihoods.located import Located, columns_of, far_from_one
from livi.network import InputScaling, Layout, as_call

EXAMPLES = 2048  # from which centres and spreads are taken where data come in batches; of tensors, all are used
LITTLE = math.log(100.0)  # sizes of predictions and targets that differ more (as logarithms) are of other units


def in_natural_units(
    layout: Layout, data: Data, likelihood: Likelihood, standardise: bool | str | None
) -> tuple[Layout, Likelihood]:
    """The network's layout and the likelihood, for outputs and inputs of order one.

    Args:
        standardise: True scales both, False or None neither; "auto" decides for each side. Inputs (B, p) are scaled
            where the largest root mean square of a column is above 10 or below 1/10, and scaling is a mere change of
            variables (`only_reparametrises`). Targets are scaled where the root mean square of an output's targets is
            beyond these limits, unless the network's outputs are in their units already (`speaks_units`).

    Raises:
        ValueError: True for inputs that are not one tensor of numbers, or for a likelihood of another kind of outputs.
    """
    if standardise not in (True, False, "auto", None):
        raise ValueError(f"standardise: expected True, False or 'auto', got {standardise!r}.")
    if not standardise:
        return layout, likelihood
    inputs, targets = data.first()
    first = _first(inputs, layout)
    if standardise == "auto" and not (first is not None and _far_inputs(first)) and not likelihood.is_far(targets):
        return layout, likelihood  # no loader need be opened again for more examples
    inputs, targets = _examples(data)
    first = _first(inputs, layout)
    if standardise is True:
        located = likelihood if likelihood.takes_labels(targets) else likelihood.standardised(targets)
        if first is None or located is None:
            raise ValueError(
                f"standardise=True: expected one tensor of numbers as inputs, and a likelihood of livi's own, got "
                f"{type(inputs).__name__} and {type(likelihood).__name__}; standardise them beforehand."
            )
        return _scaled(layout, InputScaling.of(first)), located
    if first is not None and _far_inputs(first):
        scaling = InputScaling.of(first)
        layout = _scaled(layout, scaling) if only_reparametrises(scaling, layout, data.first()[0]) else layout
    if likelihood.is_far(targets):
        located = likelihood.standardised(targets)
        if located is not None and not speaks_units(likelihood, located, layout, data.first()):
            likelihood = located
    return layout, likelihood


@torch.no_grad()
def only_reparametrises(scaling: InputScaling, layout: Layout, inputs: Any) -> bool:
    """Whether a network of scaled inputs can represent the same functions, since they enter linear layers alone.

    W x + b = (W spread) x' + (b + W centre) for x = centre + spread x', so that it is the same network at other weights
    of those layers, if they have a stochastic weight and bias. Found by trial: outputs must agree, which they do not
    where inputs are used elsewhere too, or where the network has units of its own.
    """
    args, kwargs = as_call(inputs)
    with entered_by(layout.module, args[0], (nn.Linear,)) as entered:
        before = layout.apply(layout.flatten(), *args, batch_statistics=True, **kwargs)
    if not entered:
        return False
    weights: dict[str, Tensor] = dict(layout.module.named_parameters())
    stochastic = {slot.name for slot in layout.slots}
    for name in entered:
        if not {f"{name}weight", f"{name}bias"} <= stochastic:
            return False
        weight, bias = (weights[f"{name}{part}"].detach().double() for part in ("weight", "bias"))
        centre, spread = (part.to(weight.device) for part in (scaling.centre, scaling.spread))
        weights[f"{name}weight"], weights[f"{name}bias"] = weight * spread, bias + weight @ centre
    other = layout.flatten({name: weight.to(layout.dtype) for name, weight in weights.items()})
    try:
        after = _scaled(layout, scaling).apply(other, *args, batch_statistics=True, **kwargs)
    except (IndexError, RuntimeError, ValueError):  # of parts that want the numbers themselves, such as an embedding
        return False
    return _agree(before, after)


@torch.no_grad()
def unscaled(layout: Layout, inputs: Any) -> Iterator[str]:
    """A warning about inputs far from order one that are not scaled because they enter a layer with fixed weights."""
    first = _first(inputs, layout)
    if layout.scaling is not None or first is None or not _far_inputs(first):
        return
    args, kwargs = as_call(inputs)
    with entered_by(layout.module, args[0], (nn.Linear,)) as entered:
        layout.apply(layout.flatten(), *args, batch_statistics=True, **kwargs)
    held = [name for layer in entered for name in (f"{layer}weight", f"{layer}bias") if name in layout.fixed]
    if held:
        largest = float(first.double().square().mean(0).max().sqrt())
        yield (
            f"inputs: expected numbers of order 1, got columns with a root mean square of up to {largest:.4g}, which "
            f"are not standardised, for the layer that they enter has fixed weights ({', '.join(held[:2])}); pass "
            "standardise=True if those are untrained or made for standardised inputs, standardise=False if they are "
            "made for such inputs as they are."
        )


def _far_inputs(columns: Tensor) -> bool:  # (N, p)
    if columns.ndim != 2:
        return False
    largest = columns.detach().double().square().mean(0).max().reshape(1, 1).sqrt()
    return bool(far_from_one(largest).any())


@torch.no_grad()
def speaks_units(likelihood: Likelihood, located: Likelihood, layout: Layout, batch: Batch) -> bool:
    """Whether the network's outputs, at its own weights, are in units of the targets rather than of order one.

    They must make the targets at least as likely as the same outputs in units of the targets' spread do. That is not
    enough for centred targets, for which numbers of order one are as good as a constant. So predictions must also be
    nearer in size to the targets than to one.
    """
    inputs, targets = batch
    args, kwargs = as_call(inputs)
    outputs = layout.apply(layout.flatten(), *args, batch_statistics=True, **kwargs)
    each = pytree.tree_map(lambda leaf: leaf[None], outputs)
    both = [one.to(layout.device, layout.dtype).started_from(targets) for one in (located, likelihood)]
    there, here = (one.log_prob(each, targets).sum() for one in both)
    if there > here:
        return False
    own, each, _ = both[1].without_weights(each)
    if not isinstance(own, Located):
        return True  # a logarithm has no centre
    predicted, wanted = (columns_of(part).square().mean(0).sqrt() for part in (own.moments(each)[0][0], targets))
    size, apart = predicted.log().abs(), (predicted / wanted).log().abs()
    return bool((far_from_one(columns_of(targets)) & (apart < size.clamp_max(LITTLE))).any())


def _examples(data: Data) -> Batch:
    """Inputs and targets: all of them where they are tensors, else those of the first batches."""
    if isinstance(data, TensorData):
        return data.inputs, data.targets
    found, seen = [], 0
    for batch in data.epoch(0):
        found.append(batch)
        seen += len(batch[1])
        if seen >= EXAMPLES:
            break
    try:
        joined: Batch = pytree.tree_map(lambda *leaves: torch.cat(leaves), *found)
    except (TypeError, RuntimeError, ValueError):  # of several lengths, or not tensors alone
        return data.first()
    return joined


def _first(inputs: Any, layout: Layout) -> Tensor | None:
    """The inputs, if they are one tensor of floating-point numbers; else None."""
    if layout.forward is pass_weights and isinstance(inputs, tuple | list):
        inputs = inputs[0]
    return inputs if isinstance(inputs, Tensor) and inputs.is_floating_point() else None


def _scaled(layout: Layout, scaling: InputScaling) -> Layout:
    return Layout(layout.module, layout.include, layout.exclude, forward=layout.forward, scaling=scaling)


@contextmanager
def entered_by(module: nn.Module, inputs: Tensor, kinds: tuple[type[nn.Module], ...]) -> Iterator[list[str]]:
    """A context that yields a list, to which the names (with a dot) of layers that all these inputs enter are added."""
    noted: list[str] = []

    def note(name: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            if args and isinstance(args[0], Tensor) and _same(args[0], inputs):
                noted.append(f"{name}." if name else "")

        return hook

    layers = [(name, part) for name, part in module.named_modules() if type(part) in kinds]
    handles = [part.register_forward_pre_hook(note(name)) for name, part in layers]
    try:
        yield noted
    finally:
        for handle in handles:
            handle.remove()


def _same(one: Tensor, other: Tensor) -> bool:
    """The same numbers, though perhaps of a copy: a network that may write over its inputs is given one."""
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)


def _agree(one: Any, other: Any) -> bool:
    """Whether outputs agree, up to the rounding of numbers far from order one."""
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=True)
    tensors = [(a, b) for a, b in pairs if isinstance(a, Tensor) and a.is_floating_point()]
    return all(bool(((a - b).abs() <= 0.01 * a.abs().amax().clamp_min(1e-12)).all()) for a, b in tensors)
