"""Whether chains agree: split R-hat and effective sample size of any numbers that were followed along them."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def split_rhat(values: Tensor) -> Tensor:  # (T, C, ...) -> (...)
    """Root of total over within variance, of half chains: 1 where all chains agree; 1.1 is large.

    Gelman et al. 2013, "Bayesian Data Analysis", section 11.4. NaN for fewer than four draws per chain.
    """
    halves = _halves(values)
    length = halves.shape[0]
    if length < 2:
        return torch.full_like(halves[0, 0], float("nan"))
    within, total = _variances(halves)
    same = total <= 0  # a number that never changes
    return torch.where(same, 1.0, (total / within.clamp_min(1e-300)).sqrt())


def effective_size(values: Tensor) -> Tensor:  # (T, C, ...) -> (...)
    """The number of independent draws that would estimate the mean as well, by Geyer's initial monotone sequence.

    NaN for fewer than eight draws per chain.
    """
    halves = _halves(values)
    length, count = halves.shape[:2]
    if length < 4:
        return torch.full_like(halves[0, 0], float("nan"))
    within, total = _variances(halves)
    centred = halves - halves.mean(0)
    spectrum = torch.fft.rfft(centred, n=2 * length, dim=0).abs().square()
    covariance = torch.fft.irfft(spectrum, n=2 * length, dim=0)[:length].mean(1) / length  # over chains
    correlation = 1.0 - (within - covariance * length / (length - 1)) / total.clamp_min(1e-300)
    pairs = correlation[: length // 2 * 2].unflatten(0, (-1, 2)).sum(1)
    pairs = torch.where((pairs > 0).cumprod(0).bool(), pairs, 0.0).cummin(0).values
    time = (2.0 * pairs.sum(0) - 1.0).clamp_min(1.0 / math.log10(length * count))
    return torch.where(total <= 0, float(length * count), length * count / time)


def _halves(values: Tensor) -> Tensor:  # (T // 2, 2 C, ...)
    half = values.shape[0] // 2
    return torch.cat([values[:half], values[half : 2 * half]], 1).double()


def _variances(halves: Tensor) -> tuple[Tensor, Tensor]:  # (...), (...)
    """The mean variance within chains, and the estimate of the total variance."""
    length = halves.shape[0]
    within = halves.var(0).mean(0)
    between = halves.mean(0).var(0)
    return within, (length - 1) / length * within + between
