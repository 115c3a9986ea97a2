"""Counts 0, 1, 2, ... with the logarithm of their mean as output.

Log probabilities are computed in double precision and rounded once: they are small differences of terms as large as the
counts, of which single precision would lose a nat at a million.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

import torch
from torch import Tensor

from livi.draws import gamma, poisson
from livi.model.likelihoods.base import aligned, counts_of, refuse, single, summed, weighted_moments
from livi.model.likelihoods.scales import LogLinked, LogLinkedScaled, Positive, columns_of, log_rising


class Poisson(LogLinked):
    """y ~ Poisson(unit exp(output)): counts whose variance is their mean.

    Args:
        unit: of the mean, one number or one per output. 1 makes the output the logarithm of the mean. None takes the
            mean of the targets when a fit starts, so that outputs are of order one however large the counts are.

    >>> Poisson().log_prob(torch.zeros(1, 3, 1), torch.tensor([0, 1, 2]))
    tensor([[-1.0000, -1.0000, -1.6931]])
    """

    whole_numbers: ClassVar[bool] = True

    def __init__(self, *, unit: Positive | None = 1.0) -> None:
        super().__init__()
        self._keep_unit(unit)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        log_mean = aligned(self._log_size(single(outputs).double()), targets)
        counts = _counts(targets)
        return summed(counts * log_mean - log_mean.exp() - torch.lgamma(counts + 1.0)).to(outputs.dtype)

    def _check_values(self, outputs: Tensor, targets: Tensor) -> None:
        del outputs
        _valid(targets)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        log_mean = self._log_size(outputs)
        return log_mean.exp(), (0.5 * log_mean).exp()

    def sample(self, outputs: Tensor, rng: torch.Generator | None = None) -> Tensor:  # (S, B, ...)
        """A count for each sample and example."""
        return poisson(self._log_size(outputs).exp(), rng)

    def started_from(self, targets: Tensor) -> Self:
        """This likelihood with the mean of the targets as its unit, if none was given."""
        return self._with_unit_of(targets)

    def constant_log_prob(self, targets: Tensor, weights: Tensor | None = None) -> float | None:
        counts = columns_of(targets)
        often = counts_of(counts, weights)
        mean = weighted_moments(counts, often)[0]
        return float((often * (torch.xlogy(counts, mean) - mean - torch.lgamma(counts + 1.0))).sum())


class NegativeBinomial(LogLinkedScaled):
    """y ~ NegativeBinomial with mean = unit exp(output) and variance = mean + dispersion mean^2: spread-out counts.

    Towards a dispersion of 0 it is the Poisson distribution, without loss of digits.

    Args:
        dispersion: one number, or one per output. None learns it with the rest of the bound, from the spread of the
            targets: one per output for targets (B, k), else one for all.
        learned: learn a given dispersion too, from its value.
        unit: as in `Poisson`.

    >>> NegativeBinomial(1.0).log_prob(torch.zeros(1, 3, 1), torch.tensor([0, 1, 2]))  # 1/2, 1/4, 1/8
    tensor([[-0.6931, -1.3863, -2.0794]])
    """

    whole_numbers: ClassVar[bool] = True

    def __init__(
        self, dispersion: Positive | None = None, *, learned: bool | None = None, unit: Positive | None = 1.0
    ) -> None:
        super().__init__("dispersion", dispersion, learned, unit)

    def dispersion(self) -> Tensor:  # () or (k,)
        return self.log_scale.exp()

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        log_dispersion = self._log_scale_of(single(outputs)).double()
        log_mean = aligned(self._log_size(outputs.double()), targets)
        return summed(_negative_binomial(_counts(targets), log_mean, log_dispersion)).to(outputs.dtype)

    def _check_values(self, outputs: Tensor, targets: Tensor) -> None:
        del outputs
        _valid(targets)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean = self._log_size(outputs).exp()
        return mean, (mean + self._log_scale_of(outputs).exp() * mean.square()).sqrt()

    def sample(self, outputs: Tensor, rng: torch.Generator | None = None) -> Tensor:  # (S, B, ...)
        """A count for each sample and example: Poisson, with a gamma variable in its rate."""
        mean, dispersion = self._log_size(outputs).exp(), self._log_scale_of(outputs).exp()
        return poisson(mean * dispersion * gamma(dispersion.reciprocal().expand_as(mean).contiguous(), rng), rng)

    def constant_log_prob(self, targets: Tensor, weights: Tensor | None = None) -> float | None:
        """log p(targets) at their mean and the given dispersion; if that is learned, the best from 1e-5 to 1e3."""
        counts = columns_of(targets)
        often = counts_of(counts, weights)
        log_mean = weighted_moments(counts, often)[0].clamp_min(1e-12).log().expand_as(counts)
        if not self.learned:
            return float((often * _negative_binomial(counts, log_mean, self.log_scale.detach().cpu().double())).sum())
        tried = torch.linspace(math.log(1e-5), math.log(1e3), 40, dtype=torch.float64, device=counts.device)
        sums = torch.stack([(often * _negative_binomial(counts, log_mean, each)).sum(0) for each in tried])  # (40, k)
        return float(sums.amax(0).sum())

    def _scale_of(self, columns: Tensor) -> Tensor:
        mean = columns.mean(0)
        return ((columns.var(0) - mean) / mean.square()).nan_to_num(1.0).clamp_min(0.1)


def _negative_binomial(counts: Tensor, log_mean: Tensor, log_dispersion: Tensor) -> Tensor:
    """log p: Gamma(r + y) / (y! Gamma(r)) (r / (r + mean))^r (mean / (r + mean))^y with r = 1 / dispersion."""
    shape = (-log_dispersion).exp()
    log_sum = torch.nn.functional.softplus(log_mean + log_dispersion)  # log(1 + mean / r)
    ways = log_rising(shape, counts) - torch.lgamma(counts + 1.0)
    return ways + counts * log_mean - (shape + counts) * log_sum


def _counts(targets: Tensor) -> Tensor:
    """Targets that are 0, 1, 2, ..., in double precision; NaN in place of others."""
    return targets.double().where(_valid(targets), float("nan"))


def _valid(targets: Tensor) -> Tensor:  # (B, ...)
    valid = (targets >= 0) & (targets == targets.round() if targets.is_floating_point() else True)
    remedy = "positive measurements want livi.LogNormal(), others livi.Gaussian() or livi.StudentT()"
    refuse(targets, valid, "counts 0, 1, 2, ...", remedy)
    return valid
