"""`Estimate`, a number with its standard error; and `Skipped`, in place of one that was not computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

NUM_BATCHES = 16
"""Batches or jackknife groups behind a standard error, which is then itself good to about 20 %."""


@dataclass(frozen=True)
class Estimate:
    """A number and its Monte Carlo standard error.

    >>> print(Estimate(-25.3123, 0.418))
    -25.31 ± 0.42
    """

    value: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.value:.{self._digits()}f} ± {self.standard_error:.{self._digits()}f}"

    def away_from(self, reference: float, errors: float = 3.0) -> bool:
        """Whether the value differs from the reference by more than so many standard errors."""
        return abs(self.value - reference) > errors * self.standard_error

    def _digits(self) -> int:
        """Decimals that show two digits of the standard error, but at most five of the value."""
        size, value = self.standard_error, abs(self.value)
        wanted = 1 - math.floor(math.log10(size)) if math.isfinite(size) and size > 0.0 else 3
        sensible = 4 - math.floor(math.log10(value)) if math.isfinite(value) and value > 0.0 else wanted
        return max(0, min(wanted, sensible, 9))


@dataclass(frozen=True)
class Skipped:
    """A check that was not made, and why: not applicable, not affordable, too few samples."""

    reason: str

    def __str__(self) -> str:
        return self.reason


NO_PRIOR = Skipped("not applicable: the posterior carries no prior")


def from_batches(means: Sequence[Tensor] | Tensor) -> Estimate:
    """An estimate from the means of independent batches of equal size, in which draws may depend on each other.

    Antithetic, orthogonal or stratified draws are independent only from batch to batch, so an error taken from the
    single draws would be wrong; one taken from batch means is right for all of them.
    """
    values = torch.stack(list(means)).double()
    error = values.std() / math.sqrt(len(values)) if len(values) > 1 else values.new_tensor(float("nan"))
    return Estimate(values.mean().item(), error.item())


def jackknife(statistic: Callable[[Tensor], Tensor], samples: Tensor) -> tuple[Tensor, Tensor]:
    """A statistic of the rows of samples, and its standard error from leaving out one group of rows at a time."""
    count = len(samples)
    groups = min(NUM_BATCHES, count)
    member = torch.arange(count, device=samples.device) % groups
    left_out = torch.stack([statistic(samples[member != group]) for group in range(groups)])
    squares = (left_out - left_out.mean(0)).square().sum(0)
    return statistic(samples), (squares * (groups - 1) / groups).sqrt()
