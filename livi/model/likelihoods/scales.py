"""Positive parameters of likelihoods: a scale that is given or learned, and the unit of a log link.

Each is one number, or one per output along the last axis of the outputs, and is kept as its logarithm.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from livi.model.likelihoods.base import REACH, RegressionLikelihood, log_positive, other_last_axis

Positive = float | Sequence[float] | Tensor

_SHIFT = 8  # at which Stirling's series is good to 1e-11


class Scaled(RegressionLikelihood):
    """A density with a scale of its own, `log_scale`, that is learned where it was not given."""

    log_scale: Tensor  # () or (k,)

    def _keep_scale(self, name: str, value: Positive | None, learned: bool | None) -> None:
        start = log_positive(name, 1.0 if value is None else value)
        self.scale_name, self.given = name, value is not None
        if not self.given if learned is None else learned:
            self.log_scale = nn.Parameter(start)
        else:
            self.register_buffer("log_scale", start)

    def of_output(self, index: int) -> RegressionLikelihood:
        return alone(self, index)

    @property
    def learned(self) -> bool:
        return isinstance(self.log_scale, nn.Parameter)

    def lower_limits(self) -> list[tuple[nn.Parameter, float | Tensor]]:
        """A learned scale may fall to a tenth of its present value."""
        if not isinstance(self.log_scale, nn.Parameter):
            return []
        limits = self.log_scale.detach() + math.log(0.1)
        return [(self.log_scale, limits if limits.ndim else float(limits))]

    @torch.no_grad()
    def started_from(self, targets: Tensor) -> Self:
        """This likelihood with its learned scale, if it has no value yet, at the scale of the targets.

        Targets (B, k) give each of k outputs a scale of its own, others share one. Constant targets leave it at 1.
        """
        if self.given or not self.learned or bool(self.log_scale.any()) or len(targets) < 2:
            return self
        scale = self._scale_of(columns_of(targets))
        scale = torch.where((scale > 0) & (scale < math.inf), scale, 1.0)
        scale = scale if has_columns(targets) else scale.square().mean().sqrt()
        started = copy.deepcopy(self)
        started.log_scale = nn.Parameter(scale.log().to(self.log_scale))
        if scale.ndim:
            started._remember(**{self.scale_name: scale, "learned": True})
        return started

    def _scale_of(self, columns: Tensor) -> Tensor:  # (N, k) -> (k,)
        raise NotImplementedError

    def _log_scale_of(self, outputs: Tensor) -> Tensor:  # () or (k,)
        return per_output(self.scale_name, self.log_scale, outputs)


class LogLinked(RegressionLikelihood):
    """Targets of a typical size unit * exp(output), so at or above zero."""

    log_unit: Tensor  # () or (k,)

    def of_output(self, index: int) -> RegressionLikelihood:
        return alone(self, index)

    def out_of_reach(self, targets: Tensor, *, held: bool = False) -> str | None:
        """Counted in units, since outputs are logarithms: a median above 20 or below 1/20 of them."""
        sizes = columns_of(targets) / self.log_unit.detach().cpu().double().exp()
        positive = sizes[sizes > 0]
        median = float(positive.median()) if len(positive) else 1.0
        if 1.0 / REACH <= median <= REACH:
            return None
        kind = type(self).__name__
        wanted = f"targets: expected a median of {1.0 / REACH:g} to {REACH:g} units, got {median:.4g}; "
        if held:
            return (
                f"{wanted}train the network with livi.{kind}(unit=...), of the size of their mean, and pass that here."
            )
        return f"{wanted}livi.{kind}(unit=None) takes their mean as the unit, so that outputs are of order 1."

    def is_far(self, targets: Tensor) -> bool:
        return self.out_of_reach(targets) is not None

    @torch.no_grad()
    def standardised(self, targets: Tensor) -> Self:
        """A copy with the mean of the targets as its unit."""
        other, mean = copy.deepcopy(self), columns_of(targets).mean(0)
        mean = torch.where((mean > 0) & (mean < math.inf), mean, 1.0)
        other.log_unit.copy_((mean if other.log_unit.ndim and len(other.log_unit) == len(mean) else mean.mean()).log())
        return other

    def _keep_unit(self, unit: Positive | None) -> None:
        self.unit_given = unit is not None
        self.register_buffer("log_unit", log_positive("unit", 1.0 if unit is None else unit))

    @torch.no_grad()
    def _with_unit_of(self, targets: Tensor) -> Self:
        """A copy with the targets' mean as its unit, one per output for targets (B, k), unless it has a unit."""
        if self.unit_given or bool(self.log_unit.any()) or not len(targets):
            return self
        mean = columns_of(targets).mean(0)
        mean = torch.where((mean > 0) & (mean < math.inf), mean, 1.0)
        unit = mean if has_columns(targets) else mean.mean()
        other = copy.deepcopy(self)
        other.log_unit, other.unit_given = unit.log().to(self.log_unit), True
        other._remember(unit=unit)
        return other

    def _log_size(self, outputs: Tensor) -> Tensor:  # (S, B, ...)
        return outputs + per_output("unit", self.log_unit, outputs)


class LogLinkedScaled(LogLinked, Scaled):
    """A log link, and a scale of its own."""

    def __init__(self, scale_name: str, scale: Positive | None, learned: bool | None, unit: Positive | None) -> None:
        super().__init__()
        self._keep_scale(scale_name, scale, learned)
        self._keep_unit(unit)

    def started_from(self, targets: Tensor) -> Self:
        """This likelihood with its scale and unit, if they have no values yet, from the targets."""
        return super().started_from(targets)._with_unit_of(targets)


def per_output(name: str, values: Tensor, outputs: Tensor) -> Tensor:  # () or (k,)
    """One value for all outputs, or as many as their last axis has entries."""
    if values.numel() == 1:
        return values.reshape(())
    if outputs.ndim < 3 or outputs.shape[-1] != len(values):
        raise other_last_axis(outputs, len(values), f"value of {name}", f"{name} one value")
    return values


def alone(likelihood: RegressionLikelihood, index: int) -> RegressionLikelihood:
    """A copy with the numbers of one output, none of them to be learned."""
    one = copy.deepcopy(likelihood)
    for name in ("log_scale", "log_unit", "centre"):
        values = getattr(one, name, None)
        if values is not None and values.numel() > 1:
            delattr(one, name)
            one.register_buffer(name, values.detach()[index].clone())
    return one


def columns_of(targets: Tensor) -> Tensor:  # (N, ...) -> (N, k)
    return targets.detach().cpu().double().reshape(len(targets), -1)


def has_columns(targets: Tensor) -> bool:
    """Several outputs rather than one, pixels or tokens."""
    return targets.ndim == 2 and targets.shape[1] > 1


def log_rising(start: Tensor, steps: Tensor) -> Tensor:
    """log Gamma(start + steps) - log Gamma(start) - steps log(start), which goes to 0 as start grows.

    A difference of two lgamma would lose all digits of single precision there. Instead Stirling's series is taken
    apart by hand, at start + 8 and with the eight factors between divided out again: good to 1e-11.
    """
    high = start + _SHIFT
    factors = torch.stack([torch.log1p(steps / (start + i)) for i in range(_SHIFT)]).sum(0)
    bulk = steps * torch.log1p(_SHIFT / start) + (high + steps - 0.5) * torch.log1p(steps / high) - steps
    return bulk + _stirling(high + steps) - _stirling(high) - factors


def _stirling(x: Tensor) -> Tensor:
    """log Gamma(x) minus Stirling's formula, for x >= 8."""
    inverse = x.reciprocal()
    square = inverse.square()
    return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
