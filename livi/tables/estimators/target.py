"""The scale on which a target is modelled: as it is, its logarithm or a count; and the way back to its own units."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from livi.posterior.prediction import DrawnPrediction, LogNormalPrediction, RegressionPrediction
from livi.tables.estimators.scaling import Array, Scaling

SCALES = ("plain", "log", "count")
_ROOM = 0.5  # of the range of the logarithms seen, that a drawn network may go beyond it on either side
_NO_SPREAD = float(np.finfo(np.float64).tiny)  # whose square is 0: a scale that leaves means, and deviations of 0

TargetPrediction = RegressionPrediction | LogNormalPrediction | DrawnPrediction


@dataclass(frozen=True)
class TargetScale:
    """How targets become numbers of mean 0 and standard deviation 1, and predictions of these predictions of targets.

    Args:
        kind: "plain"; "log" for positive targets, whose noise then grows with their size; "count", left as it is.
        scaling: of the targets, or of their logarithms.
        limits: between which the predicted mean of a logarithm, or the logarithm of a mean count, is held. Where a
            network extrapolates by a few standard deviations, an exponential would make millions of it. For the same
            reason the noise of a logarithm is at most the spread of all logarithms: one network in a hundred with ten
            times that noise would decide the mean alone.
        spread: by which all deviations from a mean prediction are multiplied in the end, of networks and of noise.
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
            scaling = Scaling(np.asarray(low), np.asarray(_NO_SPREAD))
        room = _ROOM * (high - low)
        return cls(kind, scaling, (low - room, high + room) if kind == "log" else None, spread)

    @property
    def constant(self) -> bool:
        """All targets are the same."""
        return bool(self.scaling.scale == _NO_SPREAD)

    def standardise(self, targets: Array) -> Array:
        values = np.log(targets) if self.kind == "log" else targets
        return np.zeros_like(values) if self.constant else self.scaling.standardise(values)

    def in_units(self, prediction: TargetPrediction) -> TargetPrediction:
        """The prediction of a standardised target as one of the target itself."""
        if not isinstance(prediction, RegressionPrediction):
            return prediction
        shift, scale = map(float, self.scaling)
        if self.constant:  # one draw for all, whose average is exact
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
        """The opposite of `to_facts`."""
        kind, limits = facts["kind"], facts["limits"]
        spread = float(facts.get("spread", 1.0))  # older files leave it as it is
        if kind not in SCALES or (limits is None) != (kind == "plain") or not 0.0 < spread < math.inf:
            raise ValueError("another target scale than a fit has")
        scaling = Scaling(*(np.asarray(float(part)) for part in facts["scaling"]))
        return cls(kind, scaling, None if limits is None else (float(limits[0]), float(limits[1])), spread)


def smallest_step(targets: Array) -> float:
    """Between two different targets; 0 where all are the same.

    >>> smallest_step(np.array([3.0, 5.0, 4.0, 5.0])), smallest_step(np.array([2.0, 2.0]))
    (1.0, 0.0)
    """
    steps = np.diff(np.unique(targets))
    return float(steps.min()) if len(steps) else 0.0


def rounding(targets: Array) -> float:
    """The standard deviation that rounding to the nearest step leaves, with the smallest step between targets.

    No noise of targets that come in steps should be narrower (but for `TargetScale.spread`): a density of whole numbers
    would be credited with their being whole, and pay for it beyond all measure at the first number that it misses.
    """
    return smallest_step(targets) / math.sqrt(12.0)


def _limits_of_counts(targets: Array) -> tuple[float, float]:
    """Of the logarithm of their mean: from a hundredth of the average count to beyond the largest one."""
    mean, most = max(float(targets.mean()), 1e-6), max(float(targets.max()), 1.0)
    return float(np.log(mean / 100.0)), float(np.log(most) + _ROOM * np.log(1.0 + most / mean))


def modelled(prediction: TargetPrediction) -> RegressionPrediction | DrawnPrediction:
    """The prediction on the scale that was modelled: that of the logarithm, where that is what was predicted."""
    return prediction.logs if isinstance(prediction, LogNormalPrediction) else prediction


def stretched(prediction: TargetPrediction, reach: float) -> tuple[Tensor, Tensor]:  # (B,), (B,)
    """So many total standard deviations below and above the median, on the scale that was modelled."""
    values = modelled(prediction)
    middle, reached = values.quantile(0.5), reach * values.total_std
    lower, upper = middle - reached, middle + reached
    if isinstance(prediction, DrawnPrediction):
        return lower.clamp_min(0.0), upper
    return (lower.exp(), upper.exp()) if isinstance(prediction, LogNormalPrediction) else (lower, upper)
