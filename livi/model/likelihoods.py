"""Likelihoods: log p(y | network output) for each example, and what a network output predicts.

Shapes: outputs (S, B, ...) for S weight samples and B examples, targets (B, ...), log-probabilities (S, B). Axes
behind B are one example's event (several targets, pixels, tokens) and are summed, at a cost linear in their number.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from livi import checks
from livi.spec import Specified


class Likelihood(Specified, nn.Module):
    """log p(targets | outputs): (S, B, ...), (B, ...) -> (S, B)."""

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        raise NotImplementedError

    def started_from(self, targets: Tensor) -> Likelihood:  # noqa: ARG002
        """The likelihood to fit with, its learned and open parts set from targets (B, ...). Here: this one as it is."""
        return self

    def lower_limits(self) -> list[tuple[nn.Parameter, float | Tensor]]:
        """Parameters, and below what a MAP fit must not let them fall: fractions of what they are now. Here: none.

        A MAP fit alone drives a noise to zero along with its residuals, and the posterior could not start from there.
        """
        return []

    def for_map(self, targets: Tensor) -> Likelihood:  # noqa: ARG002
        """What a MAP fit maximises in its place, where that alone would have no useful maximum. Here: the same."""
        return self

    def constant_log_prob(self, targets: Tensor) -> float | None:  # (N, ...)
        """log p(targets) under the best prediction that is the same for all inputs; None where that is not known."""
        del targets
        return None


class RegressionLikelihood(Likelihood):
    """A likelihood whose prediction is a Gaussian for each target, unless it has a log_prob of its own.

    A subclass that overrides `log_prob`, such as a Student-t, is predicted with by that density, and by `moments` for
    means and standard deviations. If it defines `sample(outputs, rng) -> (S, B, ...)` too, one target drawn for each
    sample and example, its predictions have quantiles and intervals.
    """

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the targets for each sample, (S, B, ...) or broadcastable to it."""
        raise NotImplementedError

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        mean, std = self.moments(single(outputs))
        mean, std = aligned(mean, targets), aligned(std, targets) if std.ndim else std
        unit = (targets - mean) / std
        density = -0.5 * unit.square() - std.log() - 0.5 * math.log(2.0 * math.pi)
        return density.flatten(2).sum(2) if density.ndim > 2 else density

    def constant_log_prob(self, targets: Tensor) -> float | None:
        """Of a normal distribution for each output, which suits every likelihood with a free noise."""
        columns = targets.detach().double().reshape(len(targets), -1)
        deviation = columns.std(0, correction=0).clamp_min(1e-12)
        return -len(columns) * float((deviation.log() + 0.5 * math.log(2.0 * math.pi * math.e)).sum())


class ClassificationLikelihood(Likelihood):
    """A likelihood whose prediction is a vector of probabilities."""

    def probabilities(self, outputs: Tensor) -> Tensor:
        """(S, B, ...) -> (S, B, ...) of the same shape, summing to one over classes, or one for each label."""
        raise NotImplementedError


class Gaussian(RegressionLikelihood):
    """y ~ N(output, obs_std^2), the same noise for every example.

    Args:
        obs_std: the known noise: one number, or one per output, along the last axis of the outputs. None learns it with
            the rest of the bound (type-II maximum likelihood), from the spread of the targets: one noise per output for
            targets (B, k), else one for all.
        learned: learn a given obs_std too, from its value.

    >>> Gaussian(0.5).log_prob(torch.zeros(1, 2, 1), torch.zeros(2))
    tensor([[-0.2258, -0.2258]])
    >>> Gaussian([0.5, 1.0]).log_prob(torch.zeros(1, 1, 2), torch.zeros(1, 2))
    tensor([[-1.1447]])
    """

    def __init__(self, obs_std: float | Sequence[float] | Tensor | None = None, *, learned: bool | None = None) -> None:
        super().__init__()
        start = _log_positive("obs_std", 1.0 if obs_std is None else obs_std)
        self.log_std: Tensor  # () or (k,)
        self.given = obs_std is not None
        if not self.given if learned is None else learned:
            self.log_std = nn.Parameter(start)
        else:
            self.register_buffer("log_std", start)

    def obs_std(self) -> Tensor:  # () or (k,)
        return self.log_std.exp()

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        std = self.obs_std()
        if std.numel() == 1:
            return outputs, std.reshape(())
        if outputs.ndim < 3 or outputs.shape[-1] != len(std):
            raise ValueError(
                f"outputs: expected a last axis of {len(std)}, one output per value of obs_std, got "
                f"{tuple(outputs.shape)}; give the network as many, or obs_std one value."
            )
        return outputs, std.expand_as(outputs)

    @torch.no_grad()
    def started_from(self, targets: Tensor) -> Gaussian:
        """With a learned noise that has no value yet at the spread of the targets, whatever their units.

        Targets (B, k) give each of k outputs a noise of its own. Otherwise there is one, the root mean square spread
        over all targets of an example. Constant targets leave a noise at 1.
        """
        open_yet = not self.given and isinstance(self.log_std, nn.Parameter) and not bool(self.log_std.any())
        if not open_yet or len(targets) < 2:
            return self
        spread = targets.cpu().double().std(0)
        if targets.ndim != 2 or targets.shape[1] == 1:
            spread = spread.square().mean().sqrt()
        spread = torch.where((spread > 0) & (spread < math.inf), spread, 1.0)
        if spread.ndim == 0:  # nothing to remember but the value
            started = copy.deepcopy(self)
            started.log_std.copy_(spread.log())
            return started
        return Gaussian(spread, learned=True).to(self.log_std)

    def constant_log_prob(self, targets: Tensor) -> float | None:
        """With the noise that is given, where it is not learned."""
        if isinstance(self.log_std, nn.Parameter):
            return super().constant_log_prob(targets)
        columns = targets.detach().double().reshape(len(targets), -1)
        outputs = columns.mean(0).expand_as(columns).reshape(targets.shape)
        return float(self.log_prob(outputs[None], targets.double()).sum())

    def lower_limits(self) -> list[tuple[nn.Parameter, float | Tensor]]:
        """A learned noise may fall to a tenth of what it is now."""
        if not isinstance(self.log_std, nn.Parameter):
            return []
        limits = self.log_std.detach() + math.log(0.1)
        return [(self.log_std, limits if limits.ndim else float(limits))]


class HeteroscedasticGaussian(RegressionLikelihood):
    """y ~ N(mean(x), std(x)^2): the last axis holds means, then as many raw scales; std = floor + level softplus(raw).

    Args:
        floor: the smallest standard deviation, in the targets' units; keeps single points from being fitted exactly.
        learned: learn the level (type-II maximum likelihood), which is else 1, so that a prior on raw scales around 0
            says how much the noise varies and not how large it is.
    """

    def __init__(self, floor: float = 1e-2, *, learned: bool = False) -> None:
        super().__init__()
        self.floor = checks.positive_float("floor", floor)
        self.log_level = nn.Parameter(torch.tensor(0.0)) if learned else None

    def for_map(self, targets: Tensor) -> Likelihood:
        """With a floor of a tenth of the targets' spread: single points would else be fitted exactly, down to `floor`,
        and the posterior could not start from there."""
        spread = float(targets.detach().double().std()) if targets.numel() > 1 else 0.0
        blunt = copy.copy(self)  # which shares its parameters
        blunt.floor = max(self.floor, 0.1 * spread)
        return blunt

    def std(self, raw: Tensor) -> Tensor:
        """Standard deviations for raw scales, of the same shape."""
        scale = F.softplus(raw)
        return self.floor + (scale if self.log_level is None else self.log_level.exp() * scale)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        if outputs.ndim < 3 or outputs.shape[-1] % 2:
            raise ValueError(
                f"outputs: expected an even last axis (means, then raw scales), got {tuple(outputs.shape)}; "
                "give the network two outputs for each target."
            )
        mean, raw = outputs.chunk(2, -1)
        return mean, self.std(raw)

    def lower_limits(self) -> list[tuple[nn.Parameter, float | Tensor]]:
        """A learned level may fall to a tenth of what it is now."""
        return [] if self.log_level is None else [(self.log_level, float(self.log_level.detach()) + math.log(0.1))]


class Bernoulli(ClassificationLikelihood):
    """y in {0, 1} with the output as logit. Axes behind B are independent labels and are summed.

    >>> Bernoulli().log_prob(torch.zeros(1, 2, 1), torch.tensor([0.0, 1.0]))
    tensor([[-0.6931, -0.6931]])
    """

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        logits = aligned(single(outputs), targets)
        valid = (targets >= 0) & (targets <= 1)
        if checks.may_be_read(targets) and not bool(valid.all()):
            raise ValueError(
                f"targets: expected values in [0, 1], got {targets.min()} to {targets.max()}; labels -1 and 1 become "
                "0 and 1 by `(y + 1) / 2`, and more than two classes want Categorical()."
            )
        expanded = targets.to(logits.dtype).where(valid, float("nan")).expand_as(logits)
        density = -F.binary_cross_entropy_with_logits(logits, expanded, reduction="none")
        return density.flatten(2).sum(2) if density.ndim > 2 else density

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.sigmoid()

    def constant_log_prob(self, targets: Tensor) -> float | None:
        share = targets.detach().double().mean(0)
        return -len(targets) * float((torch.special.entr(share) + torch.special.entr(1.0 - share)).sum())


class Multilabel(Bernoulli):
    """L independent labels: outputs (S, B, L), targets (B, L)."""

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if targets.ndim < 2:
            raise ValueError(f"targets: expected shape (B, L), got {tuple(targets.shape)}; one label is Bernoulli.")
        return super().log_prob(outputs, targets)


class Categorical(ClassificationLikelihood):
    """y in {0, ..., C-1} with outputs (S, B, C, ...) as logits, classes on the axis behind B as in F.cross_entropy.

    Dense targets (B, ...) such as pixels or tokens are summed for each example; `ignore_index` ones count as zero.
    """

    def __init__(self, *, ignore_index: int = -100) -> None:
        super().__init__()
        self.ignore_index = ignore_index

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        _check_classes(single(outputs), targets)
        classes = outputs.shape[2]
        targets = targets.long()  # before comparing: uint8 labels would wrap the number of classes and ignore_index
        valid = ((targets >= 0) & (targets < classes)) | (targets == self.ignore_index)
        if checks.may_be_read(targets) and not bool(valid.all()):
            raise ValueError(
                f"targets: expected labels 0 to {classes - 1}, got {targets[~valid][0].item()}; number the classes "
                "from 0, and give the network an output for each."
            )
        kept = targets.where(valid, self.ignore_index)
        repeated = kept.expand(outputs.shape[0], *targets.shape).flatten(0, 1)
        nats = F.cross_entropy(outputs.flatten(0, 1), repeated, reduction="none", ignore_index=self.ignore_index)
        density: Tensor = -nats.unflatten(0, outputs.shape[:2]).where(valid, float("nan"))
        return density.flatten(2).sum(2) if density.ndim > 2 else density

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(2)

    def constant_log_prob(self, targets: Tensor) -> float | None:
        labels = targets.detach().reshape(-1).long()
        counts = torch.bincount(labels[(labels >= 0) & (labels != self.ignore_index)]).double()
        return -float(counts.sum() * torch.special.entr(counts / counts.sum().clamp_min(1.0)).sum())


class Weighted(Likelihood):
    """Another likelihood in which example i counts w_i times: w_i log p(y_i | output_i).

    Weights pass through the network beside its inputs, so that batches are ((x, w), y) and targets stay as they are:
    `livi.fit(net, ((x, w), y), livi.Weighted(livi.Gaussian()), forward=pass_weights)`. New examples have
    the likelihood `base`.

    >>> outputs, weights = torch.zeros(1, 2, 1), torch.tensor([[1.0, 3.0]])
    >>> Weighted(Gaussian(0.5)).log_prob((outputs, weights), torch.zeros(2))
    tensor([[-0.2258, -0.6774]])
    """

    def __init__(self, base: Likelihood) -> None:
        super().__init__()
        self.base = base

    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:  # ((S, B, ...), (S, B)), (B, ...) -> (S, B)
        own, weights = outputs
        values: Tensor = self.base.log_prob(own, targets) * weights
        return values

    def started_from(self, targets: Tensor) -> Weighted:
        return Weighted(self.base.started_from(targets))

    def lower_limits(self) -> list[tuple[nn.Parameter, float | Tensor]]:
        return self.base.lower_limits()


def pass_weights(net: nn.Module, inputs: Tensor, weights: Tensor) -> tuple[Any, Tensor]:
    """The `forward` of a network under a `Weighted` likelihood: its outputs, and the examples' weights untouched."""
    return net(inputs), weights


class FunctionLikelihood(Likelihood):
    """Any log_prob(outputs, targets) -> (S, B). Outputs are whatever the module returns, with a leading sample axis."""

    def __init__(self, log_prob: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = log_prob

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        values = self.function(outputs, targets)
        if not isinstance(values, Tensor) or values.ndim != 2:
            got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(f"log_prob: expected shape (num_samples, batch), got {got}; sum over event axes.")
        return values


def aligned(outputs: Tensor, targets: Tensor) -> Tensor:
    """Outputs (S, *targets.shape). A trailing axis of one may be missing on either side; nothing else broadcasts.

    (B, 1) against (B,) would silently broadcast to (B, B), the most common error of regression code.
    """
    if outputs.shape[1:] == targets.shape:
        return outputs
    if outputs.shape[-1:] == (1,) and outputs.shape[1:-1] == targets.shape:
        return outputs.squeeze(-1)
    if targets.shape[-1:] == (1,) and targets.shape[:-1] == outputs.shape[1:]:
        return outputs.unsqueeze(-1)
    raise ValueError(
        f"outputs: expected (num_samples, *targets.shape) = (S, {', '.join(map(str, targets.shape))}), "
        f"got {tuple(outputs.shape)}; give the network as many outputs as an example has targets."
    )


def _log_positive(name: str, value: float | Sequence[float] | Tensor) -> Tensor:  # () or (k,)
    """The logarithm of one positive number, or of several."""
    if not isinstance(value, Tensor | Sequence) or isinstance(value, str):
        return torch.tensor(math.log(checks.positive_float(name, value)))
    values = torch.as_tensor(value, dtype=None if isinstance(value, Tensor) else torch.get_default_dtype())
    kind = values.is_floating_point()
    if values.ndim > 1 or not values.numel() or not kind or not bool((torch.isfinite(values) & (values > 0)).all()):
        raise ValueError(f"{name}: expected a positive number, or one per output along one axis, got {value!r}.")
    return values.detach().log()


def single(outputs: object) -> Tensor:
    """The outputs, if the network returned one tensor."""
    if not isinstance(outputs, Tensor):
        key = repr(next(iter(outputs))) if isinstance(outputs, Mapping) and outputs else "0"
        raise TypeError(
            f"outputs: expected one tensor from the network, got {type(outputs).__name__}; choose one with "
            f"forward=lambda net, x: net(x)[{key}], or use livi.FunctionLikelihood."
        )
    return outputs


def _check_classes(outputs: Tensor, targets: Tensor) -> None:
    """Outputs (S, B, C, ...), targets (B, ...) of integers; or what to do about what came instead."""
    logits, labels = tuple(outputs.shape[1:]), tuple(targets.shape)  # (B, C, ...), (B, ...)
    wanted = (*logits[:1], *logits[2:])
    if len(logits) < 2 or logits[1] == 1:
        remedy = "one output for each example is yes or no: use livi.Bernoulli()"
    elif labels == wanted:
        if targets.is_floating_point() or targets.dtype == torch.bool:
            raise TypeError(f"targets: expected integer class labels, got {targets.dtype}; convert with `.long()`.")
        return
    elif labels == logits:
        remedy = "of one-hot targets pass class indices: `y.argmax(1)`"
    elif labels == (*wanted, 1):
        remedy = "of a column of labels pass `y.squeeze(-1)`"
    elif labels == logits[:-1]:
        remedy = "classes come right behind the examples: forward=lambda net, x: net(x).movedim(-1, 1)"
    else:
        remedy = "give the network an output for each class, and each example one label"
    raise ValueError(
        f"outputs: expected (S, B, C, ...) with targets (B, ...), got {tuple(outputs.shape)} and {labels}; {remedy}."
    )
