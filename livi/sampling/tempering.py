"""Sequential Monte Carlo from the prior to the posterior: chains end up in several modes, in the modes' own shares.

Chains that do not cross between modes keep the shares that they started with. Draws of the prior that are cooled slowly
do not: with log p_b(theta) = log p(theta) + b log p(D | theta) and b from 0 to 1 (Del Moral, Doucet and Jasra 2006),
each rise of b by h multiplies the weight of a chain by p(D | theta)^h. When weights have become unequal, chains are
resampled in proportion to them, and steps at every temperature move copies apart. In the limit of many chains and small
steps the population is distributed as the posterior, whatever its modes, and the product of the mean weights estimates
the evidence p(D).

Steps have no Metropolis test, and large ones leave chains too near their mode at every temperature, which adds up: in
Bayesian linear regression with 40 weights an energy error of 5e-4 made the log evidence 2.5 nats too high, one of 1e-5
0.36 ± 0.25 (256 chains, three seeds; with 6 weights 0.19 ± 0.05 and 0.01 ± 0.06, eight seeds; by a throw-away script,
of which a test has the case of 20 weights). So it is at most 1e-5 here, whatever that of the chains that follow.

Each rise of b is chosen such that its weights have an effective sample size of 0.9 of all chains. The number of
temperatures grows with what the data say, not with the number of chains: 6 on toy problem A, 36 on B. With 5 steps at
each in place of 20 as few as 3 of B's 256 draws are the ancestors of all chains, and shares of modes go wrong on some
seeds (docs/benchmarks/polish.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from livi.sampling.chains import Differentiated, LogDensity, MovingChains, differentiated
from livi.sampling.resampling import resampled

KEPT = 0.9  # effective share of the chains in one rise of the inverse temperature
RESAMPLED = 0.5  # effective share below which chains are resampled
STEPS = 20  # at each temperature; about as many as chains need to move apart at the first temperatures
MOST = 2000  # temperatures
MAX_ERROR = 1e-5  # energy error of a step, per weight


@dataclass(frozen=True)
class Population:
    """Chains that have reached the posterior.

    Attributes:
        theta: one row for each chain, equally likely.
        temperatures: how many they went through.
        gradients: how many one chain took.
        ancestors: from how many draws of the prior they descend; where few, the shares of modes are unreliable.
        log_evidence: estimate of log p(D), given all scales.
    """

    theta: Tensor  # (C, m)
    temperatures: int
    gradients: int
    ancestors: int
    log_evidence: float


@torch.no_grad()
def anneal(
    target: Differentiated,
    log_prior: LogDensity,
    start: Tensor,  # (C, m)
    *,
    energy_error: float,
    rng: torch.Generator | None = None,
    steps: int = STEPS,
) -> Population:
    """Move draws of the prior to the posterior.

    Args:
        target: log p(D, theta) and its gradient.
        log_prior: log p(theta), of which `start` are draws.
        energy_error: of a step, as for `run_chains`, but at most 1e-5.
        steps: at each temperature.

    Raises:
        ValueError: the posterior is not reached within 2,000 temperatures, or nowhere finite.
    """
    path = _Path(target, differentiated(log_prior))
    error = min(energy_error, MAX_ERROR)
    chains = MovingChains(path, start, (error, error), rng)
    log_weights = start.new_zeros(len(start), dtype=torch.float64)
    origin = torch.arange(len(start), device=start.device)
    log_weights[list(chains.lost)] = -math.inf  # the data rule them out
    temperatures, gradients, log_evidence = 0, 1, math.log1p(-len(chains.lost) / len(start))
    while path.inverse < 1.0:
        if temperatures == MOST:
            raise ValueError(
                f"start: expected to reach the posterior from the prior in {MOST:,} temperatures, got to an inverse "
                f'temperature of {path.inverse:.2g}; start at the draws of a fit, by start="draws".'
            )
        parts = path.parts(chains.x)
        fit = (parts.joint - parts.prior).double()
        fit = fit.where(torch.isfinite(fit), -math.inf)
        rise = _rise(log_weights, fit, 1.0 - path.inverse)
        before = log_weights.logsumexp(0)
        log_weights = log_weights + rise * fit
        log_evidence += float(log_weights.logsumexp(0) - before)
        path.inverse = 1.0 if rise >= 1.0 - path.inverse else path.inverse + rise
        chains.value, chains.gradient = path.between(parts)
        if path.inverse == 1.0 or _effective(log_weights) < RESAMPLED:
            rows = resampled(log_weights, len(log_weights), rng)
            origin, log_weights = origin[rows], torch.zeros_like(log_weights)
            chains.take(rows)
        for _ in range(steps):
            chains.adapt(*chains.advance(), progress=0.0)
        chains.length = chains.spread()
        temperatures, gradients = temperatures + 1, gradients + 1 + 2 * steps
    return Population(chains.x, temperatures, gradients, len(origin.unique()), log_evidence)


class _Parts(NamedTuple):
    joint: Tensor  # (C,)
    joint_gradient: Tensor  # (C, m)
    prior: Tensor  # (C,)
    prior_gradient: Tensor  # (C, m)


class _Path:
    """log p(theta) + b log p(D | theta) and its gradient, b being `inverse`."""

    def __init__(self, joint: Differentiated, prior: Differentiated) -> None:
        self.joint, self.prior, self.inverse = joint, prior, 0.0

    def __call__(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        return self.between(self.parts(theta))

    def parts(self, theta: Tensor) -> _Parts:
        return _Parts(*self.joint(theta), *self.prior(theta))

    def between(self, parts: _Parts) -> tuple[Tensor, Tensor]:
        return (
            torch.lerp(parts.prior, parts.joint, self.inverse),
            torch.lerp(parts.prior_gradient, parts.joint_gradient, self.inverse),
        )


def _rise(log_weights: Tensor, fit: Tensor, most: float) -> float:
    """How far the inverse temperature may rise: by bisection, to the effective share that is to be kept."""
    weights = log_weights.softmax(0)

    def share(rise: float) -> float:
        change = (rise * (fit - fit.max())).exp()
        return float((weights * change).sum().square() / (weights * change.square()).sum())

    low, high = 0.0, most
    if share(high) >= KEPT:
        return high
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if share(middle) >= KEPT else (low, middle)
    return high


def _effective(log_weights: Tensor) -> float:
    """The effective share of the chains."""
    return 1.0 / (len(log_weights) * float(log_weights.softmax(0).square().sum()))
