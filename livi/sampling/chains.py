"""Microcanonical Langevin chains: many at once, on any differentiable log density of rows.

A chain has a position x and a direction u of unit length. Along

    dx = u dt,    du = (1 - u u^T) grad log p(x) / (d - 1) dt

the positions of a long trajectory are distributed as p (Robnik, De Luca, Silverstein and Seljak 2023, "Microcanonical
Hamiltonian Monte Carlo"): the speed is constant and the time spent at a place makes up for it, so that nothing about p
bounds how far a chain goes in one step but curvature. A step is three kicks of u, a drift of x by half a step between
each two, and a little noise on u, by which the direction is forgotten over a distance `length`. The outer kicks are
0.193 of the step each and the middle one the rest (McLachlan 1995), so that a step costs two gradients, and goes more
than twice as far as one of two half kicks before its error is as large. With e = grad / |grad|, a = e.u and
s = step |grad| / (d - 1), a kick is

    u <- (u + e (sinh s + a (cosh s - 1))) / (cosh s + a sinh s),

and the energy it adds (d - 1) log(cosh s + a sinh s). What a step adds in all, less the gain in log p, is its error.
There is no Metropolis test: the bias is held small by the step, chosen for a mean squared error of 5e-4 per dimension
(for Bayesian networks so used, with larger errors, by Sommer et al. 2025, "Microcanonical Langevin Ensembles"). What
that costs on Gaussians is in docs/benchmarks/polish.md. On the one stiff network where samplers were compared, chains
with a test, Hamiltonian or microcanonical, were slower, and a scale for each weight, from draws or gradients, did not
help.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from livi import checks
from livi.draws import normal

LogDensity = Callable[[Tensor], Tensor]  # (C, m) -> (C,)
Differentiated = Callable[[Tensor], tuple[Tensor, Tensor]]  # (C, m) -> (C,), (C, m)
ENERGY_ERROR = 5e-4  # mean square of a step's energy error, per dimension
HOPELESS = 2000.0  # times the wanted error, above which a step is not taken
OUTER = 0.1931833275037836  # of a step, in each of its outer kicks
FAILING = 0.2  # a chain is dropped if more than this share of its steps were not taken


@dataclass(frozen=True)
class ChainRun:
    """T draws of each chain that was kept, and how the chains fared after their warm-up.

    Attributes:
        dropped: numbers of the chains that were left out, and why.
        energy_error: mean squared energy error of a step, per dimension, for each chain kept.
        failed: share of steps that were not taken, over all chains.
    """

    draws: Tensor  # (T, C, m)
    log_density: Tensor  # (T, C)
    step_size: Tensor  # (C,)
    length: float
    energy_error: Tensor  # (C,)
    failed: float
    dropped: dict[int, str]
    gradients: int  # of one chain


def differentiated(log_density: LogDensity) -> Differentiated:
    """The log density of each row, together with its gradient."""

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            value = log_density(leaf)
            (gradient,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), gradient

    return both


@torch.no_grad()
def run_chains(
    target: Differentiated,
    start: Tensor,  # (C, m)
    *,
    steps: int,
    warm_up: int,
    draws: int,
    rng: torch.Generator | None = None,
    energy_error: float = ENERGY_ERROR,
    first_error: float | None = None,
    watch: Callable[[int, Tensor], None] | None = None,
    adjust: Callable[[int, Tensor], bool] | None = None,
) -> ChainRun:
    """Run a chain from each row: a warm-up that chooses its step size, then steps that change it less and less.

    Args:
        target: log density and gradient of each row; see `differentiated`.
        warm_up: how many of the steps are not kept.
        draws: of each chain, at equal distances over the remaining steps.
        energy_error: mean square of a step's energy error that the step size is chosen for, per dimension.
        first_error: the same at the first step, from where it changes to `energy_error` over the warm-up. Larger ones
            take chains far from poor starts.
        watch: called with each step's number and the log densities.
        adjust: called in the warm-up before each step, with its number and the rows of the chains that hold; says
            whether it has changed the target, which is then evaluated anew.

    Raises:
        ValueError: fewer than two dimensions, no steps left for so many draws, or not one chain that holds.
    """
    checks.positive_int("warm_up", warm_up)
    checks.positive_int("draws", draws)
    checks.positive_float("energy_error", energy_error)
    first = energy_error if first_error is None else checks.positive_float("first_error", first_error)
    if checks.positive_int("steps", steps) - warm_up < draws:
        raise ValueError(
            f"steps: expected at least {warm_up + draws}, for a warm-up of {warm_up} and {draws} draws, got {steps}."
        )
    if start.ndim != 2 or start.shape[1] < 2:
        raise ValueError(f"start: expected shape (chains, at least 2 weights), got {tuple(start.shape)}.")
    chains = MovingChains(target, start, (first, energy_error), rng)
    total = torch.zeros_like(chains.value)
    failures = total.clone()
    kept: list[Tensor] = []
    values: list[Tensor] = []
    for step in range(steps):
        if step == warm_up:
            chains.settle()
        if adjust is not None and step < warm_up and adjust(step, chains.x[not_lost(chains.value, chains.dim)]):
            chains.value, chains.gradient = target(chains.x)
        error, taken = chains.advance()
        chains.adapt(error, taken, step / warm_up)
        if step >= warm_up:
            total += torch.where(taken, error, 0.0)
            failures += ~taken
            number = step - warm_up + 1
            if number * draws // (steps - warm_up) > len(kept):
                kept.append(chains.x.clone())
                values.append(chains.value.clone())
        if watch is not None:
            watch(step + 1, chains.value)
    sampled = steps - warm_up
    log_density, share = torch.stack(values), failures / sampled
    dropped = chains.lost | _hopeless(log_density, share, start.shape[1])
    if len(dropped) == len(start):
        raise ValueError(
            f"chains: expected at least one of {len(start)} to hold, got none: chain 0 {dropped[0]}. Start from "
            "weights nearer the posterior, or in float64."
        )
    held = torch.tensor([i for i in range(len(start)) if i not in dropped], device=start.device)
    return ChainRun(
        torch.stack(kept)[:, held],
        log_density[:, held],
        chains.step_size[held, 0],
        chains.length,
        (total / (sampled - failures).clamp_min(1.0))[held],
        float(share.mean()),
        dropped,
        2 * steps + 1,
    )


class MovingChains:
    """The state of all chains, and one step of each."""

    def __init__(
        self, target: Differentiated, start: Tensor, errors: tuple[float, float], rng: torch.Generator | None
    ) -> None:
        self.target, self.errors, self.wanted, self.rng = target, errors, errors[0], rng
        self.x, self.dim = start.detach().clone(), start.shape[1]
        self.value, self.gradient = target(self.x)
        self.lost = self._replace_lost()
        self.u = self._direction()
        # A short first step, which turns no direction by much however stiff the target: |grad|^2 is about the sum of
        # its curvatures. At a mode, where the gradient is zero, the width of the rows, of order one, bounds the step.
        norm = _length(self.gradient).clamp_min_(0.1 * math.sqrt(self.dim))
        self.first_step = 0.1 * math.sqrt(self.dim) / norm
        self.step_size = self.first_step
        self.shorter = torch.ones_like(self.step_size)  # in force where steps have failed
        # Running average of error / step^6, with steps in units of the first step, and its weight.
        self.level, self.weight = torch.zeros_like(self.step_size), 0.0
        self.length = self._forgetting_length()
        self.sums, self.count = [torch.zeros_like(self.x[0]) for _ in range(2)], 0
        self.origin, self.adapted = self.x.mean(0), 0

    def _replace_lost(self) -> dict[int, str]:
        """Move rows without a finite density or gradient to the best row; their chains will be dropped."""
        finite = torch.isfinite(self.value) & torch.isfinite(self.gradient).all(1)
        if not bool(finite.any()):
            raise ValueError(
                "start: expected rows of finite log density, got none; standardise inputs and targets, or fit again."
            )
        best = self.value.where(finite, -math.inf).argmax()
        self.x = self.x.where(finite[:, None], self.x[best])
        self.gradient = self.gradient.where(finite[:, None], self.gradient[best])
        self.value = self.value.where(finite, self.value[best])
        lost = (~finite).nonzero()[:, 0].tolist()
        return dict.fromkeys(lost, "started where the log density is not finite")

    def _direction(self) -> Tensor:  # (C, m)
        return _unit(self._noise())

    def _noise(self) -> Tensor:  # (C, m)
        return normal(tuple(self.x.shape), self.rng, self.x.dtype, self.x.device)

    def advance(self) -> tuple[Tensor, Tensor]:  # (C,), (C,)
        """One step of every chain: its squared energy error per dimension, and whether it was taken.

        A step with a hopeless error is not: the chain stays, takes a new direction, and tries half the step, which
        grows again with every success.
        """
        step = self.step_size * self.shorter
        rate, half = step / (self.dim - 1), 0.5 * step
        u, size, growth = _kick(self.u, self.gradient, OUTER * rate)
        x = torch.addcmul(self.x, half, u)
        value, gradient = self.target(x)
        u, more, middle = _kick(u, gradient, (1.0 - 2.0 * OUTER) * rate)
        x = torch.addcmul(x, half, u)
        value, gradient = self.target(x)
        u, most, last = _kick(u, gradient, OUTER * rate)
        energy = (size + more).add_(most).add_((growth * middle).mul_(last).log_()).mul_(self.dim - 1)
        error = (energy[:, 0] - (value - self.value)).square_().div_(self.dim)
        taken = error < HOPELESS * self.wanted  # NaN is not, nor is what a gradient without an end would add
        rows = taken[:, None]
        noise = self._noise()
        self.x, self.gradient = torch.where(rows, x, self.x), torch.where(rows, gradient, self.gradient)
        self.value = torch.where(taken, value, self.value)
        forget = step.mul_(2.0 / self.length).expm1_().div_(self.dim).sqrt_()
        self.u = _unit(torch.where(rows, torch.addcmul(u, forget, noise), noise))
        self.shorter = torch.where(rows, 1.1 * self.shorter, 0.5 * self.shorter).clamp_(max=1.0)
        return error, taken

    def adapt(self, error: Tensor, taken: Tensor, progress: float) -> None:
        """Choose the step size. Errors go with its sixth power, so error / step^6 is averaged over recent steps.

        After the warm-up (`progress` above 1) it changes ever more slowly, but still, as chains reach stiffer regions.
        """
        rate = max(0.01, 0.05 * (1.0 - progress)) / max(1.0, progress)
        self.wanted = self.errors[0] + (self.errors[1] - self.errors[0]) * min(1.0, progress)
        most = HOPELESS * self.wanted
        found = error.clamp(max=most).nan_to_num(nan=most)[:, None] / (self.step_size / self.first_step).pow(6)
        self.level = torch.lerp(self.level, found, rate)
        self.weight += rate * (1.0 - self.weight)
        best = self.first_step * (self.wanted * self.weight / self.level.clamp_min(1e-30)).pow(1.0 / 6.0)
        self.step_size = torch.minimum(best, 1.3 * self.step_size).where(taken[:, None], 0.7 * self.step_size)
        self.adapted += 1
        if progress >= 1.0:
            return
        if self.adapted % 50 == 0:
            self.length = self._forgetting_length()
        if progress >= 0.5:
            away = self.x - self.origin
            self.sums = [self.sums[0] + away.sum(0), self.sums[1] + away.square().sum(0)]
            self.count += len(away)

    def spread(self) -> float:
        """Root mean square distance of the chains from their mean."""
        return float((self.x - self.x.mean(0)).square().sum(1).mean().sqrt())

    def _forgetting_length(self) -> float:
        """The distance over which directions are forgotten: the spread of the chains, but at least 200 steps."""
        return max(self.spread(), 200.0 * float(self.step_size.median()))

    def take(self, rows: Tensor) -> None:
        """Continue with these chains, which may name one several times, all in new directions."""
        self.x, self.value, self.gradient = self.x[rows], self.value[rows], self.gradient[rows]
        self.step_size, self.first_step = self.step_size[rows], self.first_step[rows]
        self.shorter, self.level = self.shorter[rows], self.level[rows]
        self.u = self._direction()

    def settle(self) -> None:
        """The distance over which a direction is forgotten: how far from its mean a chain is expected to be.

        That is the root of the summed variances (Robnik et al. 2023), of all chains together since half of the warm-up.
        """
        mean, square = (part / max(1, self.count) for part in self.sums)
        self.length = max(float((square - mean.square()).sum().clamp_min(0.0).sqrt()), float(self.step_size.median()))
        self.shorter = torch.ones_like(self.shorter)


def _kick(u: Tensor, gradient: Tensor, rate: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The direction after a kick, s = rate |grad|, and the g of the energy (d - 1) (s + log g) that it adds.

    By q = exp(-s) - 1, lest a large s overflow: with w = 2 + q - a q, g = exp(-s) (cosh s + a sinh s) is
    (2 + q) w / 2 - (1 + q), and the direction (1 + q) u - q w e / 2 divided by it.
    """
    norm = _length(gradient)
    along = (u * gradient).sum(1, keepdim=True).div_(norm)
    size = rate * norm
    fall = torch.expm1(-size)
    most, left = fall + 2.0, fall + 1.0
    wide = torch.addcmul(most, along, fall, value=-1.0)
    growth = torch.addcmul(left, most, wide, value=-0.5).neg_()
    towards = wide.mul_(fall).div_(norm.mul_(growth))
    return torch.addcmul(u * left.div_(growth), towards, gradient, value=-0.5), size, growth


def _unit(rows: Tensor) -> Tensor:
    return rows / _length(rows)


def _length(rows: Tensor) -> Tensor:  # (C, m) -> (C, 1)
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return length.clamp_min_(1e-30)


def not_lost(levels: Tensor, dim: int) -> Tensor:  # (C,) -> (C,)
    """Which log densities are not further below the upper median than draws of any posterior differ.

    By the median, more than half of the chains would have to be hopeless before hopeless ones pass.
    """
    finite = levels.nan_to_num(nan=-math.inf)
    typical = finite.sort().values[len(levels) // 2]
    return finite >= typical - log_density_range(dim)


def log_density_range(dim: int) -> float:
    """Nats by which log densities of draws from a posterior of so many weights differ at most."""
    return max(10.0, float(dim))


def _hopeless(log_density: Tensor, failed: Tensor, dim: int) -> dict[int, str]:  # (T, C), (C,)
    """Chains that often could not step, and chains hopelessly far below the others: their numbers, and why."""
    found: dict[int, str] = {}
    level, failing = log_density.mean(0), failed > FAILING
    sound = level.where(~failing, -math.inf)
    holding, best = not_lost(sound, dim).tolist(), float(sound.max())
    for i, (share, own) in enumerate(zip(failed.tolist(), level.tolist(), strict=True)):
        if failing[i]:
            found[i] = f"diverged in {share:.0%} of its steps"
        elif not holding[i]:
            found[i] = f"stayed {best - own:.0f} nats below the others"
    return found
