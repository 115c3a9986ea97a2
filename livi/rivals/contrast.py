"""The contrast density r to which AVB and KIVI compare q, to estimate the entropy of q from draws alone.

An implicit q can be sampled, but its density is unknown. A classifier or a kernel regression learns
log q(theta) / r(theta) from draws of q and of a contrast r with a known density, and H[q] = -E_q [log q / r + log r].
With the prior p as contrast, this is -KL(q || p) - E_q log p. The closer r is to q, the easier the ratio is to learn:
*adaptive contrast* (Mescheder et al. 2017, section 3.3) takes the independent Gaussian with the moments of q.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from livi.draws import normal
from livi.family.entropy import EntropyEstimate, EntropyReport
from livi.model.priors import Prior

MEMORY = 0.9  # decay of the running moments, per step
NARROWEST = 1e-6  # lower limit of the standard deviations


class Contrast(NamedTuple):
    """A contrast r(theta), and the coordinates in which q and r are compared; a ratio of densities is the same in all.

    Attributes:
        coordinates: maps weights to the coordinates of the comparison.
        draw: this many draws from r, in these coordinates.
        log_prob: log r of weights.
    """

    coordinates: Callable[[Tensor], Tensor]  # (S, m) -> (S, m)
    draw: Callable[[int, torch.Generator | None], Tensor]  # -> (S, m)
    log_prob: Callable[[Tensor], Tensor]  # (S, m) -> (S,)


def prior_contrast(prior: Prior, num_params: int) -> Contrast:
    """The prior as contrast. A learned scale of it gets no gradient from here: the entropy does not depend on it."""
    fixed = copy.deepcopy(prior).requires_grad_(False)
    return Contrast(lambda theta: theta, lambda count, rng: fixed.sample(count, num_params, rng), fixed.log_prob)


class Moments(nn.Module):
    """Running mean and standard deviation of each weight under q, for the adaptive contrast."""

    def __init__(self, like: Tensor) -> None:  # (m,)
        super().__init__()
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", like.detach().clone())
        self.register_buffer("std", torch.ones_like(like))

    @torch.no_grad()
    def follow(self, theta: Tensor, memory: float = MEMORY) -> None:  # (S, m)
        """Update the moments by these draws; with `memory` 0 they are those of these draws alone."""
        self.mean.lerp_(theta.mean(0), 1.0 - memory)
        variance = self.std.square().lerp(theta.var(0), 1.0 - memory)
        self.std.copy_(variance.sqrt().clamp_min(NARROWEST))

    def contrast(self) -> Contrast:
        """The independent Gaussian with the present moments, compared in coordinates where it is standard normal."""
        mean, std = self.mean.clone(), self.std.clone()

        def log_prob(theta: Tensor) -> Tensor:
            unit = (theta - mean) / std
            return -0.5 * (unit.square() + math.log(2.0 * math.pi)).sum(1) - std.log().sum()

        def draw(count: int, rng: torch.Generator | None) -> Tensor:
            return normal((count, len(mean)), rng, mean.dtype, mean.device)

        return Contrast(lambda theta: (theta - mean) / std, draw, log_prob)


def as_entropy(log_density: Tensor) -> tuple[EntropyEstimate, ...]:  # (S,)
    """The entropy -E log q from estimates of log q at draws, of a whole mixture if each component has as many draws."""
    report = EntropyReport(torch.ones_like(log_density, dtype=torch.bool), products=0)
    return (EntropyEstimate(-log_density, report),)
