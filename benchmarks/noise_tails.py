"""Noise with heavier tails than a Gaussian's, in predictions alone or in chains too, for `choose_intervals`.

`outliers@0.001` is what `LIVIRegressor` does: chains by Gaussian noise, and answers in which that share of the rows is
ten times as far off, and `narrowed@0.9` the same with all its spread, of networks and of noise, times that factor.
`fitted@0.001` has the chains know of it (`livi.ContaminatedGaussian`). `student@8` has noise of a
Student-t with so many degrees of freedom, in chains and answers, whose scale varies as the Gaussian's does.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from scipy import stats
from torch import Tensor

import livi
from benchmarks.bench_truth import FLOOR, Way, answered_by, fitted, noise
from livi.experiments.table_data import Split
from livi.model.likelihoods import aligned
from livi.posterior.prediction import RegressionPrediction
from livi.posterior.prediction.shapes import NoiseShape
from livi.rivals import fit_langevin

WAYS = ("outliers", "narrowed", "fitted", "student")


class StudentNoise(livi.HeteroscedasticGaussian):
    """y ~ mean(x) + s(x) T, T of a Student-t."""

    def __init__(self, df: float) -> None:
        super().__init__(FLOOR)
        self.df = df
        self.constant = math.lgamma(0.5 * df + 0.5) - math.lgamma(0.5 * df) - 0.5 * math.log(df * math.pi)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, scale = super().moments(outputs)
        return mean, scale * math.sqrt(self.df / (self.df - 2.0))

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        mean, scale = (aligned(part, targets) for part in super().moments(outputs))
        return self._density((targets - mean) / scale, -scale.log()).flatten(2).sum(2)

    def log_prob_with_gradient(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        residual, inverse = self._residuals(outputs, targets)
        weight = (self.df + 1.0) / (self.df + residual.square())
        values = self._density(residual, inverse.log()).flatten(2).sum(2)
        return values, self._gradient(outputs, residual, inverse, weight)

    def _density(self, residual: Tensor, log_inverse: Tensor) -> Tensor:
        return self.constant + log_inverse - 0.5 * (self.df + 1.0) * torch.log1p(residual.square() / self.df)


@dataclass(frozen=True)
class StudentShape(NoiseShape):
    """A Student-t in its standard deviations."""

    df: float = 8.0

    @property
    def is_normal(self) -> bool:
        return False

    @property
    def law(self) -> Any:
        return stats.t(self.df, scale=math.sqrt((self.df - 2.0) / self.df))

    def below(self, units: Tensor) -> Tensor:
        return torch.from_numpy(self.law.cdf(units.numpy()))

    def log_density(self, units: Tensor) -> Tensor:
        return torch.from_numpy(self.law.logpdf(units.numpy()))

    def quantile(self, level: float) -> float:
        return float(self.law.ppf(level))


def tailed(split: Split, number: int, way: str, most: int) -> RegressionPrediction:
    """What one of these ways says of the test rows, in the targets' units."""
    kind, _, text = way.partition("@")
    value = float(text)
    likelihoods = {
        "outliers": noise,
        "narrowed": noise,
        "fitted": lambda: livi.ContaminatedGaussian(value, floor=FLOOR),
        "student": lambda: StudentNoise(value),
    }

    def answer(posterior: livi.Posterior, inputs: Tensor) -> RegressionPrediction:
        if kind in ("outliers", "narrowed"):
            share = (value,) if kind == "outliers" else ()
            posterior = copy.copy(posterior)  # others will answer by the same
            posterior.likelihood = livi.ContaminatedGaussian.like(posterior.likelihood, *share)  # type: ignore[arg-type]
        found: Any = posterior.predict(inputs, num_samples=400)
        if kind == "narrowed":
            means = found.mean + value * (found.means - found.mean)
            return RegressionPrediction(means, value * found.stds, found.noise_shape)
        if kind == "student":
            return RegressionPrediction(*posterior.likelihood.moments(found.outputs), StudentShape(df=value))  # type: ignore[operator]
        return found

    make = fitted(fit_langevin, likelihoods[kind])
    if kind in ("outliers", "narrowed"):
        make = _once(make, (split.name, number, most))
    return answered_by(split, number, make, {"activation": "gelu"}, most, answer)[0]


_KNOWN: dict[tuple[str, int, int], livi.Posterior] = {}


def _once(make: Way, key: tuple[str, int, int]) -> Way:
    """The same fit for all ways that differ in answers alone."""

    def made(net: Any, data: Any, options: dict[str, Any]) -> livi.Posterior:
        if key not in _KNOWN:
            _KNOWN[key] = make(net, data, options)
        return _KNOWN[key]

    return made
