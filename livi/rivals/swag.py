"""SWAG: a Gaussian with the moments of SGD iterates that start at a MAP estimate (Maddox et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from livi import checks
from livi.draws import normal
from livi.family.gaussians import LowRankCovariance
from livi.inference.divergence import FitError
from livi.model.data import Batch, Data, TensorData, remaining_batches
from livi.model.likelihoods import Likelihood
from livi.model.problem import Problem
from livi.posterior.posterior import Posterior
from livi.rivals.map_start import as_posterior, best_map, checked, loss_gradient

BATCHES = 8  # fewest batches of an epoch by default: SWAG measures gradient noise, which large batches lack
LARGEST_BATCH = 128
PROBES = 32  # batches from whose gradients the gradient noise is estimated
POWER_STEPS = 20  # of the power iteration for the largest curvature


@checked
def fit_swag(
    net: nn.Module,
    data: Any,
    likelihood: Likelihood,
    *,
    rank: int = 20,
    steps: int = 2000,
    rate: float | None = None,
    collected: int = 100,
    batch_size: int | None = None,
    **options: Any,
) -> Posterior:
    """SWAG: q(theta) = N(mean, (diag + D D^T / (rank - 1)) / 2) from iterates of plain SGD at a constant rate.

    Mean and diagonal variance are those of all collected iterates; the columns of D are the last `rank` of them, minus
    the running mean. For a given problem, the width of q depends only on learning rate and batch size. The default rate
    makes the stationary distribution of SGD closest to the posterior: 2 B m / (N tr C), for batches of B examples and
    per-example gradients with covariance C (Mandt et al. 2017, Theorem 1), or half of the largest stable rate if that
    is less. The theorem assumes batches drawn with replacement. Here each epoch goes through all examples, which makes
    the variances two to three times smaller for 8 batches. A learned noise stays at its MAP estimate.

    Args:
        rank: number of columns of D.
        steps: of SGD after the MAP fit; nothing is collected in the first quarter.
        rate: learning rate of SGD on -log p(D, theta) / N.
        collected: number of collected iterates.
        batch_size: by default an eighth of the examples, at most 128; a DataLoader has its own.
        **options: as in `fit_ensemble`, for the MAP fit.

    Raises:
        ValueError: `rank`, `collected` and `steps` do not go together.
        FitError: the steps diverge.
    """
    if checks.positive_int("rank", rank) < 2 or checks.positive_int("collected", collected) < rank:
        raise ValueError(f"rank: expected 2 to collected = {collected}, got {rank}; collect more, or lower the rank.")
    if checks.positive_int("steps", steps) * 3 // 4 < collected:
        raise ValueError(
            f"steps: expected at least {math.ceil(collected * 4 / 3)}, to collect {collected}, got {steps}."
        )
    start = best_map("fit_swag", net, data, likelihood, options)
    problem, seed = start.problem, options.get("seed", 0)
    batches = _minibatches(problem.data, batch_size)
    chosen = _Rates.measured(problem, batches, start.theta, seed)
    used = chosen.rate if rate is None else checks.positive_float("rate", rate)
    moments = _Moments(start.theta, rank)
    first, last = steps // 4, steps
    every = (last - first) // collected
    for step, theta in enumerate(_descent(problem, batches, start.theta, used, seed, steps)):
        if step >= first and (step - first) % every == every - 1 and moments.count < collected:
            moments.add(theta)
    if not (torch.isfinite(moments.mean).all() and torch.isfinite(moments.squares).all()):
        raise FitError(
            f"fit_swag: steps diverged at a rate of {used:.2g}; pass a lower `rate` (the curvature at the start allows "
            f"{chosen.stable:.2g}) or a larger `batch_size`, or check the data for extreme values."
        )
    sampler = moments.sampler(problem)
    return as_posterior(
        problem,
        start.recipe,
        sampler.requires_grad_(False),
        "swag",
        gradients=steps + PROBES + 2 * POWER_STEPS,
        rank=rank,
        rate=used,
        stationary_rate=chosen.stationary,
        stable_rate=chosen.stable,
        steps=steps,
        collected=moments.count,
        batch_size=len(batches.first()[1]),
    )


class _Moments:
    """Running mean and sum of squared deviations of weights, and the last deviations from the running mean."""

    def __init__(self, theta: Tensor, rank: int) -> None:
        self.count, self.rank = 0, rank
        self.mean, self.squares = torch.zeros_like(theta), torch.zeros_like(theta)
        self.deviations: list[Tensor] = []

    def add(self, theta: Tensor) -> None:
        self.count += 1
        before = theta - self.mean
        self.mean = self.mean + before / self.count
        self.squares = self.squares + before * (theta - self.mean)  # Welford: avoids a difference of large numbers
        self.deviations = [*self.deviations[-(self.rank - 1) :], theta - self.mean]

    def sampler(self, problem: Problem) -> LowRankCovariance:
        std = (0.5 * self.squares / self.count).sqrt()
        columns = torch.stack(self.deviations, 1) / math.sqrt(2.0 * (self.rank - 1))
        return LowRankCovariance(problem.layout, self.mean, std, columns)


class _Rates(NamedTuple):
    """Learning rates of SGD on -log p(D, theta) / N."""

    stationary: float  # the rate whose stationary distribution is closest to the posterior
    stable: float  # half of the largest rate at which SGD does not diverge

    @property
    def rate(self) -> float:
        return min(self)

    @classmethod
    def measured(cls, problem: Problem, data: Data, theta: Tensor, seed: int) -> _Rates:
        """The rates at these weights, from gradients of some batches and the largest Hessian eigenvalue of one."""
        some = list(remaining_batches(data, seed, 0, PROBES))
        total, squares = torch.zeros_like(theta), 0.0
        for batch in some:
            gradient = loss_gradient(problem, theta, batch)
            total, squares = total + gradient, squares + float(gradient.square().sum())
        size = sum(len(targets) for _, targets in some) / len(some)
        spread = (squares - float(total.square().sum()) / len(some)) / (len(some) - 1)
        trace = size * spread  # of the covariance of one example's gradient
        stationary = 2.0 * size * len(theta) / (problem.data.num_data * max(trace, 1e-30))
        return cls(stationary, 1.0 / max(_largest_curvature(problem, theta, some[0], seed), 1e-30))


def _minibatches(data: Data, batch_size: int | None) -> Data:
    if not isinstance(data, TensorData):
        if batch_size is not None:
            raise ValueError("batch_size: expected only with (X, y) data; a DataLoader has its own.")
        return data
    size = max(1, min(LARGEST_BATCH, data.num_data // BATCHES)) if batch_size is None else batch_size
    return TensorData(data.inputs, data.targets, size, augment=data.augment)


def _largest_curvature(problem: Problem, theta: Tensor, batch: Batch, seed: int) -> float:
    """The largest absolute eigenvalue of the Hessian, by power iteration with Hessian-vector products."""
    rng = torch.Generator().manual_seed(seed)
    vector = normal(tuple(theta.shape), rng, theta.dtype, theta.device)
    row, size = theta.detach().requires_grad_(), 0.0
    gradient = loss_gradient(problem, row, batch, recorded=True)
    for _ in range(POWER_STEPS):
        vector = vector / vector.norm().clamp_min(1e-30)
        vector = torch.autograd.grad(gradient, row, vector, retain_graph=True)[0]
        size = float(vector.norm())
    return size


def _descent(
    problem: Problem, data: Data, theta: Tensor, rate: float, seed: int, steps: int
) -> Iterator[Tensor]:  # steps of (m,)
    """The weights after each step of SGD."""
    for batch in remaining_batches(data, seed, 0, steps):
        theta = theta - rate * data.emphasis(batch) * loss_gradient(problem, theta, batch)
        yield theta
