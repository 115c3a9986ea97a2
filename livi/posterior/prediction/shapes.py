"""The shape of noise: the distribution of targets around a network's mean, in standard deviations."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from livi.draws import normal

_HALVINGS = 80  # of the range in which a quantile lies


@dataclass(frozen=True)
class NoiseShape:
    """A mixture of normal distributions around 0, of variance 1: sum_p share_p N(0, width_p^2).

    Args:
        parts: share and width of each, as `ContaminatedGaussian.parts` has them; one normal distribution by default.

    >>> [round(shape.quantile(0.95), 3) for shape in (NoiseShape(), NoiseShape(((0.75, 0.5), (0.25, 13**0.5 / 2))))]
    [1.645, 1.538]
    """

    parts: tuple[tuple[float, float], ...] = ((1.0, 1.0),)

    @property
    def is_normal(self) -> bool:
        return len(self.parts) == 1

    def below(self, units: Tensor) -> Tensor:
        """The distribution function."""
        if self.is_normal:
            return below(units)
        return torch.stack([share * below(units / width) for share, width in self.parts]).sum(0)

    def log_density(self, units: Tensor) -> Tensor:
        if self.is_normal:
            return _log_density(units)
        return self._together([_log_density(units / width) - math.log(width) for _, width in self.parts])

    def log_mass(self, first: Tensor, last: Tensor) -> Tensor:
        """The logarithm of the probability between two places, first < last."""
        if self.is_normal:
            return _log_mass(first, last)
        return self._together([_log_mass(first / width, last / width) for _, width in self.parts])

    def quantile(self, level: float) -> float:
        return _quantile(self.parts, level)

    def draw(self, like: Tensor, rng: torch.Generator | None) -> Tensor:
        """Numbers of this distribution, as many as there are in a tensor, and as those are."""
        units = normal(tuple(like.shape), rng, like.dtype, like.device)
        if self.is_normal:
            return units
        shares, widths = (like.new_tensor(column) for column in zip(*self.parts, strict=True))
        place = below(normal(tuple(like.shape), rng, like.dtype, like.device))  # uniform, on every device the same
        return units * widths[torch.bucketize(place, shares.cumsum(0)[:-1].contiguous())]

    def _together(self, logs: list[Tensor]) -> Tensor:
        """The mixture's log density or log probability, from those of its parts."""
        shares = [math.log(share) for share, _ in self.parts]
        return torch.stack([each + share for each, share in zip(logs, shares, strict=True)]).logsumexp(0)


NORMAL = NoiseShape()


def below(units: Tensor) -> Tensor:
    """The standard normal distribution function. (torch.special.ndtr is 1 + erf, which rounds the lower tail off.)"""
    return 0.5 * torch.erfc(-math.sqrt(0.5) * units)


def _log_density(units: Tensor) -> Tensor:
    return -0.5 * units.square() - 0.5 * math.log(2.0 * math.pi)


def _log_mass(first: Tensor, last: Tensor) -> Tensor:
    """Log probability of an interval, as precise far above 0 as below; by the density in the middle of a narrow one."""
    first, last = first.where(first < 0.0, -last), last.where(first < 0.0, -first)  # the lower tail is precise
    above, width = torch.special.log_ndtr(last), last - first
    mass = above + (-torch.expm1(torch.special.log_ndtr(first) - above)).log()
    middle = _log_density(0.5 * (first + last)) + width.log()
    return middle.where(width < torch.finfo(width.dtype).eps ** (1 / 3), mass)


@functools.lru_cache
def _quantile(parts: tuple[tuple[float, float], ...], level: float) -> float:
    """The quantile by bisection of the smaller tail, whose probability does not round to 1."""
    mass = min(level, 1.0 - level)
    low, high = -40.0 * max(width for _, width in parts), 0.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        tail = sum(0.5 * share * math.erfc(-math.sqrt(0.5) * middle / width) for share, width in parts)
        low, high = (middle, high) if tail < mass else (low, middle)
    found = 0.5 * (low + high)
    return found if level < 0.5 else -found
