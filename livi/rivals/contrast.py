"""A density ratio beside a known density: what adversarial and kernel estimates of an entropy have in common.

Of an implicit q only draws are known. A classifier or a kernel regression can learn log q(theta) / r(theta) from draws
of q and of a contrast r whose density is known, and then H[q] = -E_q [log q / r + log r]. With the prior as contrast
that is minus KL(q || p) minus the mean log prior. The nearer r is to q, the less there is to learn: *adaptive contrast*
(Mescheder et al. 2017, section 3.3) takes the independent Gaussian with the mean and variance of q.
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

MEMORY = 0.9  # of the moments, from one step to the next
NARROWEST = 1e-6  # standard deviation


class Contrast(NamedTuple):
    """r(theta): where it looks at weights from, draws as seen from there, and log r."""

    coordinates: Callable[[Tensor], Tensor]  # (S, m) -> (S, m), in which r is about as wide as 1
    draw: Callable[[int, torch.Generator | None], Tensor]  # -> (S, m), in those coordinates
    log_prob: Callable[[Tensor], Tensor]  # (S, m) -> (S,), of weights


def prior_contrast(prior: Prior, num_params: int) -> Contrast:
    """The prior, whose own parameters get no gradient from it: an entropy does not depend on them."""
    fixed = copy.deepcopy(prior).requires_grad_(False)
    return Contrast(lambda theta: theta, lambda count, rng: fixed.sample(count, num_params, rng), fixed.log_prob)


class Moments(nn.Module):
    """Mean and standard deviation of each weight under q, followed along a fit: the adaptive contrast."""

    def __init__(self, like: Tensor) -> None:  # (m,)
        super().__init__()
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", like.detach().clone())
        self.register_buffer("std", torch.ones_like(like))

    @torch.no_grad()
    def follow(self, theta: Tensor, memory: float = MEMORY) -> None:  # (S, m)
        self.mean.lerp_(theta.mean(0), 1.0 - memory)
        variance = self.std.square().lerp(theta.var(0), 1.0 - memory)
        self.std.copy_(variance.sqrt().clamp_min(NARROWEST))

    def contrast(self) -> Contrast:
        mean, std = self.mean.clone(), self.std.clone()

        def log_prob(theta: Tensor) -> Tensor:
            unit = (theta - mean) / std
            return -0.5 * (unit.square() + math.log(2.0 * math.pi)).sum(1) - std.log().sum()

        def draw(count: int, rng: torch.Generator | None) -> Tensor:
            return normal((count, len(mean)), rng, mean.dtype, mean.device)

        return Contrast(lambda theta: (theta - mean) / std, draw, log_prob)


def as_entropy(log_density: Tensor) -> tuple[EntropyEstimate, ...]:  # (S,)
    """-E log q, from estimates of log q at draws; with the draws in equal shares it is that of a whole mixture."""
    report = EntropyReport(torch.ones_like(log_density, dtype=torch.bool), products=0)
    return (EntropyEstimate(-log_density, report),)
