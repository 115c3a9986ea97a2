"""What every likelihood is: log p(y | network output) for each example, and what a network output predicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from livi import checks
from livi.model.likelihoods.forms import ClosedForm, Normals
from livi.spec import Specified

REACH = 20.0
"""Targets of a larger median size are beyond what networks under a prior of scale 1 usually give."""


class TargetError(ValueError):
    """Targets that a likelihood has no probability for."""


class Likelihood(Specified, nn.Module):
    """log p(targets | outputs): (S, B, ...), (B, ...) -> (S, B)."""

    needs_all_examples: ClassVar[bool] = False
    """Whether examples depend on each other, so that a batch must be the whole data set."""

    @property
    def observed(self) -> Likelihood:
        """The likelihood of a new example's targets given the network's outputs. Here: this one."""
        return self

    def without_weights(self, outputs: Any) -> tuple[Likelihood, Any, Tensor | None]:
        """The likelihood behind weights of the examples, the outputs that it takes, and those weights, if any."""
        return self, outputs, None

    def log_prob_of_scales(self) -> Tensor | float:  # ()
        """The log density of scales of its own prior, where `log_prob` counts one. Here: 0."""
        return 0.0

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        raise NotImplementedError

    def log_prob_with_gradient(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """`log_prob`, and its gradient in the outputs: (S, B), (S, B, ...). To be called under torch.no_grad."""
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            values = self.log_prob(leaf, targets)
            (gradient,) = torch.autograd.grad(values.sum(), leaf)
        return values.detach(), gradient

    def check_targets(self, outputs: Tensor, targets: Tensor) -> None:  # (S, ?, ...), (B, ...)
        """Raise a `TargetError` where targets have no log_prob, whatever examples the outputs are of.

        Of a class with a log_prob of its own only what it defines itself, by `_check_values`.
        """
        kinds = (vars(kind) for kind in type(self).__mro__)
        if "_check_values" in next(own for own in kinds if "log_prob" in own or "_check_values" in own):
            self._check_values(outputs, targets)

    def _check_values(self, outputs: Tensor, targets: Tensor) -> None:
        raise NotImplementedError

    def closed_form(self, outputs: Tensor) -> ClosedForm | None:  # (S, B, ...)
        """The distribution of the targets at these outputs, for predictions; None where only `log_prob` knows it.

        A class that overrides what its form follows from has none (`is_as_in`), unless it defines one of its own.
        """
        del outputs
        return None

    def is_as_in(self, kind: type[Likelihood], *names: str) -> bool:
        """Whether these methods are those of a class that this is an instance of: overridden or added nowhere since."""
        own = (getattr(self, name, None) for name in names)
        return [getattr(method, "__func__", method) for method in own] == [getattr(kind, name, None) for name in names]

    def started_from(self, targets: Tensor) -> Likelihood:  # noqa: ARG002
        """The likelihood to fit with, its learned and open parts set from targets (B, ...). Here: this one as it is."""
        return self

    def lower_limits(self) -> list[tuple[nn.Parameter, float | Tensor]]:
        """Parameters, and below what a MAP fit must not let them fall: fractions of what they are now. Here: none.

        A MAP fit alone drives a noise to zero along with its residuals, and the posterior could not start from there.
        """
        return []

    def for_map(self, targets: Tensor) -> Likelihood:  # noqa: ARG002
        """The likelihood for a MAP fit to maximise, where this one has no useful maximum. Here: this one."""
        return self

    def takes_labels(self, targets: Tensor) -> bool:  # (B, ...)
        """Whether targets number classes, which have no units. Here, where nothing is known: if they are integers."""
        return not targets.is_floating_point()

    def out_of_reach(self, targets: Tensor, *, held: bool = False) -> str | None:  # noqa: ARG002  # (B, ...)
        """A warning about targets that a prior of scale 1 can hardly reach, with a remedy; None where it can.

        Args:
            held: the units stay as they are, as where a fit starts at a network's own weights.
        """
        if self.takes_labels(targets) or float(targets.double().abs().median()) <= REACH:
            return None
        return (
            f"targets: expected values of order 1, got {described(targets)}; standardise them,\n"
            "    centre, spread = y.mean().item(), y.std().item()\n"
            "    posterior = livi.fit(net, (x, (y - centre) / spread), likelihood)\n"
            "with answers in your units by centre + spread * prediction.mean: of livi's own likelihoods of numbers "
            "standardise=True does that inside. Or give the prior a scale that can reach them."
        )

    def is_far(self, targets: Tensor) -> bool:  # (N, ...)
        """Whether targets are so far from what outputs of order one mean that `standardised` is the better default."""
        del targets
        return False

    def standardised(self, targets: Tensor) -> Likelihood | None:  # (N, ...)
        """This likelihood for outputs of order one at these targets, which keep their units; None if there is none."""
        del targets
        return None

    def constant_log_prob(self, targets: Tensor, weights: Tensor | None = None) -> float | None:  # (N, ...), (N,)
        """log p(targets) under the best prediction that is the same for all inputs; None where that is not known.

        Args:
            weights: how often each example counts; once without.
        """
        del targets, weights
        return None


class RegressionLikelihood(Likelihood):
    """A likelihood whose prediction is a Gaussian for each target, unless it has a log_prob of its own.

    A subclass that overrides `log_prob`, such as a Student-t, is predicted with by that density, and by `moments` for
    means and standard deviations, unless it defines a `closed_form` too. If it defines
    `sample(outputs, rng) -> (S, B, ...)`, one target drawn for each sample and example, its predictions have quantiles
    and intervals. `whole_numbers` says that targets are counts, so that quantiles are counts too and the probability
    integral transform is randomised.
    """

    whole_numbers: ClassVar[bool] = False

    def takes_labels(self, targets: Tensor) -> bool:  # noqa: ARG002
        return False

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the targets for each sample, (S, B, ...) or broadcastable to it."""
        raise NotImplementedError

    def of_output(self, index: int) -> RegressionLikelihood:
        """The likelihood of one output alone, of several along the last axis, for scores of each."""
        del index
        raise NotImplementedError(
            f"{type(self).__name__}: expected a method of_output(index), got none; define it to score each output."
        )

    def closed_form(self, outputs: Tensor) -> ClosedForm | None:
        return Normals(*self.moments(outputs)) if self.is_as_in(RegressionLikelihood, "log_prob", "sample") else None

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        mean, std = self.moments(single(outputs))
        mean, std = aligned(mean, targets), aligned(std, targets) if std.ndim else std
        unit = (targets - mean) / std
        density = -0.5 * unit.square() - std.log() - 0.5 * math.log(2.0 * math.pi)
        return summed(density)

    def constant_log_prob(self, targets: Tensor, weights: Tensor | None = None) -> float | None:
        """log p(targets) under a normal distribution for each output: right for a Gaussian whose noise is learned."""
        columns = targets.detach().double().reshape(len(targets), -1)
        counts = counts_of(columns, weights)
        deviation = weighted_moments(columns, counts)[1].sqrt().clamp_min(1e-12)
        return -float(counts.sum() * (deviation.log() + 0.5 * math.log(2.0 * math.pi * math.e)).sum())


class ClassificationLikelihood(Likelihood):
    """A likelihood whose prediction is a vector of probabilities."""

    exclusive: ClassVar[bool | None] = None
    """Whether they are of classes, on axis 2, and not of labels; None: of classes if they sum to one there."""

    def takes_labels(self, targets: Tensor) -> bool:  # noqa: ARG002
        return True

    def probabilities(self, outputs: Tensor) -> Tensor:
        """(S, B, ...) -> (S, B, ...) of the same shape, summing to one over classes, or one for each label."""
        raise NotImplementedError


def described(targets: Tensor) -> str:
    """Mean and standard deviation, in words."""
    values = targets.double()
    spread = float(values.std()) if values.numel() > 1 else 0.0
    return f"a mean of {float(values.mean()):.4g} and a standard deviation of {spread:.4g}"


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
    remedy = "give the network as many outputs as an example has targets"
    if outputs.ndim > 1 and targets.ndim and outputs.shape[1] != len(targets):
        remedy = f"pass the targets of the {outputs.shape[1]:,} examples that the outputs are of"
    raise ValueError(
        f"outputs: expected (num_samples, *targets.shape) = (S, {', '.join(map(str, targets.shape))}), "
        f"got {tuple(outputs.shape)}; {remedy}."
    )


def refuse(targets: Tensor, valid: Tensor, expected: str, remedy: str) -> None:  # (B, ...), (B, ...)
    """Raise where targets are not valid, with the rows that are not, if they may be looked at."""
    if checks.may_be_read(targets) and not bool(valid.all()):
        wrong = targets[~valid][0].item()
        got = f"{wrong:g}" if isinstance(wrong, float) else wrong
        raise TargetError(f"targets: expected {expected}, got {got} {checks.rows_in_words(valid)}; {remedy}.")


def other_last_axis(outputs: Tensor, count: int, each: str, instead: str) -> ValueError:
    """An error text about outputs (S, B, ...) whose last axis should have `count` entries, one for `each`."""
    behind = outputs.ndim > 3 and outputs.shape[-1] == 1 and outputs.shape[-2] == count
    remedy = f"give the network as many, or {instead}"
    if behind:
        remedy = "drop the axis of one behind them: forward=lambda net, x: net(x).squeeze(-1)"
    return ValueError(
        f"outputs: expected a last axis of {count}, one output per {each}, got {tuple(outputs.shape)}; {remedy}."
    )


def counts_of(columns: Tensor, weights: Tensor | None) -> Tensor:  # (n, k), (N,) -> (n, 1)
    """How often each row counts, from weights of examples that have one row each, or equally many; once without."""
    if weights is None:
        return torch.ones_like(columns[:, :1])
    return weights.detach().to(columns).repeat_interleave(len(columns) // len(weights))[:, None]


def weighted_moments(columns: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:  # (n, k), (n, 1) -> (k,), (k,)
    """Mean and variance of each column."""
    mean = (counts * columns).sum(0) / counts.sum()
    return mean, (counts * (columns - mean).square()).sum(0) / counts.sum()


def summed(density: Tensor) -> Tensor:  # (S, B, ...) -> (S, B)
    """The log density of each example: the sum over its targets."""
    if density.shape[2:] == (1,):
        return density.squeeze(2)
    return density.flatten(2).sum(2) if density.ndim > 2 else density


def log_positive(name: str, value: float | Sequence[float] | Tensor) -> Tensor:  # () or (k,)
    """The logarithm of one positive number, or of several."""
    if not isinstance(value, Tensor | Sequence) or isinstance(value, str):
        return torch.tensor(math.log(checks.positive_float(name, value)))
    values = checks.numbers(value)
    kind = values.is_floating_point()
    if values.ndim > 1 or not values.numel() or not kind or not bool((torch.isfinite(values) & (values > 0)).all()):
        raise ValueError(f"{name}: expected a positive number, or one per output along one axis, got {value!r}.")
    return values.detach().log()


def single(outputs: object) -> Tensor:
    """The outputs, if the network returned one tensor."""
    if not isinstance(outputs, Tensor):
        keys = list(outputs) if isinstance(outputs, Mapping) else []
        key = repr("logits" if "logits" in keys else keys[0]) if keys else "0"
        several = isinstance(outputs, tuple) and len(outputs) > 1
        joined = ", join them with forward=lambda net, x: torch.cat(net(x), -1)" if several else ""
        raise TypeError(
            f"outputs: expected one tensor from the network, got {type(outputs).__name__}; choose one with "
            f"forward=lambda net, x: net(x)[{key}]{joined}, or use livi.FunctionLikelihood."
        )
    return outputs
