"""Predictions of positive targets whose logarithms were predicted: for each target a mixture of S log-normals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from livi.model.likelihoods import aligned
from livi.posterior.prediction.mixture import Numbers, Targets, check_targets
from livi.posterior.prediction.moments import Moments, Quantiles
from livi.posterior.prediction.regression import RegressionPrediction
from livi.posterior.prediction.shapes import below


@dataclass(frozen=True, eq=False)
class LogNormalPrediction(Quantiles, Moments):
    """p(y | x, D) ~ 1/S sum_s LogNormal(y; mean_s, std_s^2) for every target, from the prediction of log y.

    Densities are those of y itself: of log y, less log y for the change of scale. So they can be compared with those
    of any other prediction of y.

    >>> prediction = LogNormalPrediction(RegressionPrediction(torch.tensor([[[0.0]]]), torch.tensor(1.0)))
    >>> prediction.quantile(0.5), prediction.mean, prediction.log_prob(torch.tensor([2.0]))
    (tensor([1.]), tensor([1.6487]), tensor([-1.8523]))
    """

    logs: RegressionPrediction

    def __post_init__(self) -> None:
        if not self.logs.noise_shape.is_normal:
            raise ValueError(
                f"logs: expected normal noise, got a mixture of {len(self.logs.noise_shape.parts)} normal "
                "distributions, whose widest would decide the mean alone; fit with livi.HeteroscedasticGaussian()."
            )

    @property
    def num_samples(self) -> int:
        return self.logs.num_samples

    @property
    def means(self) -> Tensor:  # (S, B, ...)
        return self._moments()[0]

    @property
    def stds(self) -> Tensor:  # (S, B, ...)
        return self._moments()[1]

    @property
    def outputs(self) -> list[LogNormalPrediction]:
        """The prediction of each output by itself: k of them for a `mean` of shape (B, k), one for (B,)."""
        return [LogNormalPrediction(each) for each in self.logs.outputs]

    def quantile(self, q: Numbers) -> Tensor:  # (B, ...), or (Q, B, ...) for several
        return self.logs.quantile(q).exp()

    def cdf(self, targets: Targets) -> Tensor:  # the targets' shape
        """P(Y <= y) for every target; 0 for those that are not positive."""
        return self.logs.cdf(self._log(targets))

    def log_mass(self, low: Targets, high: Targets) -> Tensor:  # the targets' shape
        """log P(low < Y <= high) for every target."""
        return self.logs.log_mass(self._log(low), self._log(high))

    def log_prob(self, targets: Targets) -> Tensor:  # (B, ...) -> (B,)
        """Log density of the mixture for each example; -inf where a target is not positive."""
        logs = self._log(targets)
        possible = torch.isfinite(logs)
        held = logs.where(possible, 0.0)
        density, change = self.logs.log_prob(held), held.flatten(1).sum(1) if held.ndim > 1 else held
        possible = possible.flatten(1).all(1) if possible.ndim > 1 else possible
        return (density - change).where(possible, -math.inf)

    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (num_samples, B, ...)
        """Targets drawn from the prediction, each draw with one weight sample for all examples."""
        return self.logs.sample(num_samples, rng).exp()

    def crps(self, targets: Targets) -> Tensor:  # (B, ...)
        """Continuous ranked probability score of each target, E|Y - y| - E|Y - Y'| / 2, in closed form.

        From E[Y; Y > y] = E[Y] Phi((m + s^2 - log y) / s), and of two log-normals from their ratio, which is one too.
        """
        found = check_targets(targets, self.logs.means.device).to(self.logs.means.dtype)
        logs, scales = (aligned(part, found) for part in (self.logs.means, self.logs.stds))
        means = (logs + 0.5 * scales.square()).exp()
        unit = (self._log(found) - logs) / scales
        score = (found * (2.0 * below(unit) - 1.0) + means * (1.0 - 2.0 * below(unit - scales))).mean(0)
        for log, scale, mean in zip(logs, scales, means, strict=True):  # each pair's other half comes in its turn
            higher = mean * (2.0 * below((log - logs + scale.square()) / torch.hypot(scale, scales)) - 1.0)
            score = score - higher.mean(0) / len(logs)
        return score

    def __repr__(self) -> str:
        return f"LogNormalPrediction(num_samples={self.num_samples}, shape={tuple(self.logs.means.shape[1:])})"

    def _moments(self) -> tuple[Tensor, Tensor]:
        variance = self.logs.stds.square()
        means = (self.logs.means + 0.5 * variance).exp()
        return means, means * variance.expm1().sqrt()

    def _quantile_errors(self, q: Sequence[float]) -> list[Tensor]:
        """Errors of the quantiles of logarithms, times the quantiles of a log-normal with their moments."""
        logs = self.logs
        ends = [(logs.mean + NormalDist().inv_cdf(level) * logs.total_std).exp() for level in q]
        return [end * error for end, error in zip(ends, logs._quantile_errors(q), strict=True)]

    def _log(self, targets: Targets) -> Tensor:
        found = check_targets(targets, self.logs.means.device).to(self.logs.means.dtype)
        return found.clamp_min(0.0).log()
