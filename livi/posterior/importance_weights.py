"""Importance weights p / q of draws of q: what they estimate, and whether they can be relied on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from livi.draws import permutation
from livi.posterior.diagnostics.estimate import Estimate, jackknife
from livi.posterior.pareto import effective, largest_shape, pareto_shape, smoothed

FEWEST = 20.0  # effective draws; averages over fewer are averages over a few draws
ALIKE = 0.9  # effective share of the draws above which weights are so nearly equal that their tail is irrelevant


class Worth(NamedTuple):
    """How much importance weights can be relied on.

    >>> print(Worth(samples=2000, effective=100.0, pareto_shape=0.9).trouble())
    the largest have a Pareto shape of 0.90, where the mean of 2,000 is of use up to 0.70
    >>> Worth(samples=2000, effective=1990.0, pareto_shape=0.9).reliable
    True
    """

    samples: int
    effective: float  # how many equally weighted draws the smoothed weights are worth
    pareto_shape: float

    @property
    def largest_shape(self) -> float:
        """The largest Pareto shape with which so many weights have a usable mean, 0.7 or less."""
        return largest_shape(self.samples)

    @property
    def reliable(self) -> bool:
        """The weights have a usable mean, and more than a handful of draws have a say in it."""
        return not self.trouble()

    def trouble(self) -> str:
        """What is wrong with the weights, in words; nothing where they are reliable."""
        if self.effective < FEWEST:
            return f"they leave {self.effective:.1f} effective draws of {self.samples:,}"
        if math.isnan(self.pareto_shape):
            return f"{self.samples} draws are too few to tell what they are worth"
        if self.pareto_shape > self.largest_shape and self.effective < ALIKE * self.samples:
            return (
                f"the largest have a Pareto shape of {self.pareto_shape:.2f}, where the mean of {self.samples:,} is of "
                f"use up to {self.largest_shape:.2f}"
            )
        return ""


@dataclass(frozen=True, eq=False)
class ImportanceWeights:
    """log p - log q of each draw of q, where p need not be normalised; errors are by the jackknife.

    Draws may come component by component: for errors they are put in another order, always the same.
    """

    log_weights: Tensor  # (S,), in double precision

    @cached_property
    def smoothed(self) -> Tensor:  # (S,)
        """Log weights that sum to 1, the largest smoothed."""
        return smoothed(self.log_weights)

    @cached_property
    def worth(self) -> Worth:
        return Worth(len(self.log_weights), effective(self.smoothed), pareto_shape(self.log_weights))

    @property
    def bound(self) -> Estimate:
        """Mean log weight, the ELBO."""
        return self._estimate(lambda rows: rows.mean())

    @property
    def log_evidence(self) -> Estimate:
        """Log of the mean weight, an estimate of log of p's normaliser."""
        return self._estimate(_log_mean_exp)

    @property
    def divergence(self) -> Estimate:
        """KL(q || p), as far as q's draws can see: the evidence less the bound."""
        return self._estimate(lambda rows: _log_mean_exp(rows) - rows.mean())

    def _estimate(self, statistic: Callable[[Tensor], Tensor]) -> Estimate:
        order = permutation(len(self.log_weights), 0).to(self.log_weights.device)
        value, error = jackknife(statistic, self.log_weights[order])
        return Estimate(float(value), float(error))


def _log_mean_exp(rows: Tensor) -> Tensor:
    return rows.logsumexp(0) - math.log(len(rows))
