"""Warnings about a fitted posterior: collapsed or runaway spread, an unconverged entropy, a lost likelihood."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from livi.family.generators import Generator
from livi.family.implicit import ImplicitPosterior
from livi.family.latents import Independent
from livi.family.moments import moments
from livi.family.noise import Noise
from livi.family.objective import Bound
from livi.inference.final_check import Yardstick
from livi.model.problem import are_labels
from livi.posterior.diagnostics.verdict import COLLAPSED, RUNAWAY

DRAWS = 64  # with which spreads are measured
SMALL_NOISE = 0.05  # times the size of the weights: a fixed noise above this is a useful spread by itself


@torch.no_grad()
def alarms(
    bound: Bound,
    log_likelihood: float,
    yardstick: Yardstick,
    unconverged: float,
    rng: torch.Generator,
) -> list[str]:
    """A sentence about each problem found.

    Args:
        log_likelihood: of the data, expected under q.
        yardstick: what that is held against. The start's is counted from the constant prediction's, where that is
            known, so that the units of the targets do not matter.
        unconverged: share of steps whose entropy estimate missed its tolerance.
    """
    found = []
    names = [group.name for group in bound.family.layout.groups]
    idle, spread = _spreads(bound, rng)
    collapsed = [name for i, name in enumerate(names) if spread[i] < COLLAPSED or idle[i]]
    runaway = [name for i, name in enumerate(names) if spread[i] > RUNAWAY]
    if collapsed and bound.family.learns_spread:
        found.append(
            f"Collapsed spread: the weights of {', '.join(collapsed[:4])} vary no more than their small fixed noise, "
            "or less than 1/1000 of their prior scale; uncertainty will be too small. Raise Recipe.steps or spread, or "
            "check num_data."
        )
    if runaway:
        found.append(
            f"Runaway spread: the weights of {', '.join(runaway[:4])} vary more than 3 times their prior scale; "
            "lower the learning rates or raise Recipe.num_samples."
        )
    if unconverged > 0.1:
        found.append(
            f"Unconverged log-determinant: {unconverged:.0%} of the entropy estimates missed their tolerance; raise "
            "max_iterations or the noise."
        )
    nats = float(bound.family.num_params)  # one for each weight
    start, constant = yardstick.start, yardstick.constant
    apart = abs(start - (constant or 0.0))
    if constant is not None and start > constant and are_labels(bound.likelihood):
        nats = min(nats, 20.0 + 0.5 * apart)  # a nat for each weight may be more than there is to lose
    if start - log_likelihood > yardstick.heat * nats + 0.1 * apart:
        found.append(
            f"Likelihood far below the MAP start: {log_likelihood:.1f} against {start:.1f} nats; the "
            "posterior may be too wide or not converged. Raise Recipe.steps or num_samples, or lower its rates."
        )
    return found


def _spreads(bound: Bound, rng: torch.Generator) -> tuple[Tensor, Tensor]:  # (layers,), (layers,)
    """By layer: whether g varies less than a tenth of a small fixed noise, and its deviation relative to the prior.

    Both are taken within each component, since the distance between components would hide that each has collapsed.
    """
    layout, prior = bound.family.layout, bound.prior
    scale = prior.std(layout.num_params)
    if scale is None:
        scale = torch.ones(layout.num_params, dtype=layout.dtype, device=layout.device)
    slices = [slice(group.start, group.stop) for group in layout.groups]
    if not isinstance(bound.family, ImplicitPosterior):
        sampled = lambda some: bound.family.sample(some.stop - some.start, rng)  # noqa: E731
        total = moments(sampled, DRAWS, layout.num_params)[1] / scale
        wide = torch.stack([_rms(total[part]) for part in slices])
        return torch.zeros_like(wide, dtype=torch.bool), wide
    idle, widest = [], []
    for generator, noise in zip(bound.family.generators, bound.family.noises, strict=True):
        assert isinstance(generator, Generator)
        assert isinstance(noise, Noise)
        z = Independent().draw(DRAWS, generator.latent_dim, rng, dtype=layout.dtype, device=layout.device)
        centre, made = moments(partial(_rows_of, generator, z), DRAWS, layout.num_params)
        std = noise.std().expand(layout.num_params)
        total = (made.square() + std.square()).sqrt() / scale
        size, own, fixed, wide = (
            torch.stack([_rms(values[part]) for part in slices]) for values in (centre, made, std, total)
        )
        lost = (own < 0.1 * fixed) & (fixed < SMALL_NOISE * size)
        idle.append(lost & (not any(True for _ in noise.parameters())))
        widest.append(wide)
    return torch.stack(idle).any(0), torch.stack(widest).amax(0)


def _rows_of(generator: Generator, z: Tensor, some: slice) -> Tensor:
    made: Tensor = generator(z[some])
    return made


def _rms(values: Tensor) -> Tensor:
    return values.square().mean().sqrt()
