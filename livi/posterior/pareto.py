"""Pareto smoothing of importance weights: how heavy their tail is, and the weights with that tail smoothed."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

UNRELIABLE = 0.7  # Pareto shape beyond which importance weights have no usable mean (Vehtari et al. 2024)


class _Tail(NamedTuple):
    """A generalised Pareto distribution of what the largest weights have beyond a cutoff, in units of the largest."""

    length: int
    cutoff: Tensor  # ()
    shape: float
    scale: float  # 0 where all of the tail is alike


def pareto_shape(log_weights: Tensor) -> float:  # (S,)
    """Shape k of a generalised Pareto distribution of the largest weights: moments below order 1/k are finite.

    The tail is the largest 20 % of the weights, at most 3 sqrt(S) of them; k is the posterior mean estimate of Zhang
    and Stephens (2009), drawn to 0.5 as ten further weights would (Vehtari et al. 2024). NaN of fewer than 25 weights
    that are not 0.
    """
    tail = _tail(_not_zero(log_weights.double().sort().values))
    return math.nan if tail is None else tail.shape


def largest_shape(num_samples: int) -> float:
    """The largest k with which so many weights have a usable mean (Vehtari et al. 2024).

    >>> [round(largest_shape(count), 2) for count in (100, 1000, 100_000)]
    [0.5, 0.67, 0.7]
    """
    return min(1.0 - 1.0 / math.log10(num_samples), UNRELIABLE) if num_samples > 10 else 0.0


def smoothed(log_weights: Tensor) -> Tensor:  # (S,)
    """Log weights that sum to 1, the largest replaced by the quantiles of the distribution that fits them best.

    Pareto smoothed importance sampling (Vehtari, Simpson, Gelman, Yao and Gabry 2024): the order stays, none becomes
    larger than the largest was. Too few, or all alike, are left as they are, and so are weights of 0.
    """
    ordered, order = (log_weights.double() - log_weights.max()).sort()
    tail = _tail(_not_zero(ordered))
    if tail is not None and tail.scale > 0.0:
        steps = torch.arange(1, tail.length + 1, dtype=ordered.dtype, device=ordered.device)
        survivors = torch.log1p(-(steps - 0.5) / tail.length)
        beyond = torch.expm1(-tail.shape * survivors) / tail.shape if tail.shape else -survivors
        ordered[-tail.length :] = (tail.cutoff + tail.scale * beyond).log().clamp(max=0.0)
    values = torch.empty_like(ordered)
    values[order] = ordered.log_softmax(0)
    return values


def effective(log_weights: Tensor) -> float:  # (S,)
    """How many equally weighted draws these are worth: (sum w)^2 / sum w^2 (Kish).

    >>> effective(torch.zeros(40)), round(effective(torch.tensor([0.0, -50.0])), 6)
    (40.0, 1.0)
    """
    return float(torch.exp(2.0 * log_weights.logsumexp(0) - (2.0 * log_weights).logsumexp(0)))


def _not_zero(ordered: Tensor) -> Tensor:
    return ordered[ordered > -math.inf]


def _tail(ordered: Tensor) -> _Tail | None:
    """The tail of log weights, which are in double precision and ascending order."""
    count = int(min(0.2 * len(ordered), 3.0 * math.sqrt(len(ordered))))
    if count < 5:
        return None
    scaled = torch.exp(ordered - ordered[-1])
    cutoff = scaled[-count - 1]
    tail = (scaled[-count:] - cutoff).clamp_min(1e-300)
    if float(tail[-1] - tail[0]) <= 1e-12:
        return _Tail(count, cutoff, 0.0, 0.0)  # weights that are all alike
    size = 30 + math.isqrt(count)
    steps = torch.arange(1, size + 1, dtype=tail.dtype, device=tail.device) - 0.5
    slopes = 1.0 / tail[-1] + (1.0 - torch.sqrt(size / steps)) / (3.0 * tail[(count + 2) // 4 - 1])
    shapes = torch.log1p(-slopes[:, None] * tail).mean(1)
    fits = count * (torch.log(-slopes / shapes) - shapes - 1.0)
    slope = (torch.softmax(fits, 0) * slopes).sum()
    shape = float(torch.log1p(-slope * tail).mean())
    return _Tail(count, cutoff, (count * shape + 5.0) / (count + 10.0), -shape / float(slope))
