"""The scale on which a target is modelled (as it is, its logarithm, or a count), and conversion back to its units."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from livi.posterior.prediction import DrawnPrediction, LogNormalPrediction, RegressionPrediction
from livi.tables.estimators.scaling import Array, Scaling

TARGET_SCALES = ("plain", "log", "count")
# Share of the range of the training logarithms by which a network's predictions may exceed it on either side.
_LIMIT_MARGIN = 0.5
_CONSTANT_SCALE = float(np.finfo(np.float64).tiny)  # the scale of constant targets: its square, their variance, is 0

TargetPrediction = RegressionPrediction | LogNormalPrediction | DrawnPrediction


@dataclass(frozen=True)
class TargetScale:
    """Conversion of targets to mean 0 and standard deviation 1, and of predictions back to the units of targets.

    Args:
        kind: "plain"; "log" for positive targets, whose noise then grows with their size; "count", which is not scaled.
        scaling: of the targets, or of their logarithms.
        limits: the predicted mean of a logarithm, or logarithm of a mean count, is clipped to these. Otherwise a
            network's extrapolation by a few standard deviations would become a factor of millions. For the same reason
            the noise of a logarithm is at most the spread of all logarithms: one network in a hundred with ten times
            that noise would dominate the mean.
        spread: factor of all deviations from a mean prediction, those of networks and of noise.
    """

    kind: str
    scaling: Scaling
    limits: tuple[float, float] | None = None
    spread: float = 1.0

    @classmethod
    def of(cls, kind: str, targets: Array, weights: Array, spread: float = 1.0) -> Self:  # (n,), (n,)
        if kind == "count":
            return cls(kind, Scaling(np.asarray(0.0), np.asarray(1.0)), _limits_of_counts(targets))
        values = np.log(targets) if kind == "log" else targets
        scaling = Scaling.of(values, weights)
        low, high = float(values.min()), float(values.max())
        if np.ptp(scaling.standardise(values)) == 0.0:
            scaling = Scaling(np.asarray(low), np.asarray(_CONSTANT_SCALE))
        margin = _LIMIT_MARGIN * (high - low)
        return cls(kind, scaling, (low - margin, high + margin) if kind == "log" else None, spread)

    @property
    def constant(self) -> bool:
        """True if all targets are the same."""
        return bool(self.scaling.scale == _CONSTANT_SCALE)

    def standardise(self, targets: Array) -> Array:
        values = np.log(targets) if self.kind == "log" else targets
        return np.zeros_like(values) if self.constant else self.scaling.standardise(values)

    def in_units(self, prediction: TargetPrediction) -> TargetPrediction:
        """A prediction of the standardised target, converted to the units of the target."""
        if not isinstance(prediction, RegressionPrediction):
            return prediction
        shift, scale = map(float, self.scaling)
        if self.constant:  # a single draw, so that the average is exact
            means = torch.full_like(prediction.means[:1], shift, dtype=torch.float64)
            values = RegressionPrediction(means, torch.full_like(means, scale))
        else:
            values = prediction.rescaled(shift, scale)
        if self.limits is not None:
            values = RegressionPrediction(values.means.clamp(*self.limits), values.stds.clamp(max=scale))
        if self.spread != 1.0 and not self.constant:
            values = values.spread_by(self.spread)
        return values if self.limits is None else LogNormalPrediction(values)

    def to_facts(self) -> dict[str, Any]:
        scaling = tuple(map(float, self.scaling))
        return {"kind": self.kind, "scaling": scaling, "limits": self.limits, "spread": self.spread}

    @classmethod
    def from_facts(cls, facts: Any) -> Self:
        """The scale that `to_facts` described."""
        kind, limits = facts["kind"], facts["limits"]
        spread = float(facts.get("spread", 1.0))  # old files have none
        if kind not in TARGET_SCALES or (limits is None) != (kind == "plain") or not 0.0 < spread < math.inf:
            raise ValueError("another target scale than a fit has")
        scaling = Scaling(*(np.asarray(float(part)) for part in facts["scaling"]))
        return cls(kind, scaling, None if limits is None else (float(limits[0]), float(limits[1])), spread)


def smallest_step(targets: Array) -> float:
    """The smallest difference between two different targets; 0 if all are the same.

    >>> smallest_step(np.array([3.0, 5.0, 4.0, 5.0])), smallest_step(np.array([2.0, 2.0]))
    (1.0, 0.0)
    """
    steps = np.diff(np.unique(targets))
    return float(steps.min()) if len(steps) else 0.0


def rounding(targets: Array) -> float:
    """The standard deviation of rounding errors, if targets are rounded to their smallest step.

    The noise of such targets should not be smaller (except by `TargetScale.spread`): a density that peaks at whole
    numbers gains from targets being whole, and loses without limit at the first number that it misses.
    """
    return smallest_step(targets) / math.sqrt(12.0)


def _limits_of_counts(targets: Array) -> tuple[float, float]:
    """Limits of the logarithm of a mean count: from a hundredth of the average count to beyond the largest."""
    mean, most = max(float(targets.mean()), 1e-6), max(float(targets.max()), 1.0)
    return float(np.log(mean / 100.0)), float(np.log(most) + _LIMIT_MARGIN * np.log(1.0 + most / mean))


def modelled(prediction: TargetPrediction) -> RegressionPrediction | DrawnPrediction:
    """The prediction on the modelled scale: of the logarithm if that was modelled."""
    return prediction.logs if isinstance(prediction, LogNormalPrediction) else prediction


def stretched(prediction: TargetPrediction, reach: float) -> tuple[Tensor, Tensor]:  # (B,), (B,)
    """The ends of median -+ `reach` total standard deviations on the modelled scale, in the target's units."""
    values = modelled(prediction)
    middle, reached = values.quantile(0.5), reach * values.total_std
    lower, upper = middle - reached, middle + reached
    if isinstance(prediction, DrawnPrediction):
        return lower.clamp_min(0.0), upper
    return (lower.exp(), upper.exp()) if isinstance(prediction, LogNormalPrediction) else (lower, upper)
