"""Fits to densities with reference draws: how far livi, Gaussians and semi-implicit inference are from each."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from livi import checks
from livi.experiments.columns import SECONDS
from livi.experiments.density_targets import TARGETS, Target, available
from livi.experiments.rows import Row
from livi.experiments.runs import Job, Say, all_jobs, check_names, check_seeds, empty_document, recorded_fit, run_jobs
from livi.experiments.scoreboard import Column, Kind, table
from livi.family.entropy import Exact
from livi.family.family import Estimation
from livi.family.generators import MLP, Affine
from livi.family.noise import DiagonalNoise
from livi.inference import fit_density
from livi.network import Layout
from livi.posterior.density import Density
from livi.posterior.interruption import completed
from livi.rivals import Constant, SemiImplicit

__all__ = ["METHODS", "Config", "available", "bench", "fit_row", "notes", "text"]

FILE = "densities.json"
SEEDS = (400, 401, 402)
DRAWS = 8192  # for distances
DIRECTIONS = 200
CHECKED = 512  # draws at which log q is estimated
MIXING = 5000  # draws of the mixing distribution, for log q of a semi-implicit density
SHOWN = 200  # draws kept for the figure
KIND = Kind(
    "Densities with known answers",
    "target",
    "seed",
    {
        "": (
            Column("kl", "KL(q to p), nats", "lower", 3),
            Column("w2", "sliced W2", "lower", 3),
            Column("w2_floor", "W2 of p to itself", None, 3),
            SECONDS,
        )
    },
    listed="only",
)


def semi_implicit(layout: Layout) -> SemiImplicit:
    """The family of Yin and Zhou's examples: a mixing network with at least ten latents, noise learned by dimension."""
    dim = layout.num_params
    generator = MLP(max(10, dim), dim, hidden=(64, 64), activation=nn.Tanh, skip=True, offset=True)
    return SemiImplicit(layout, generator.to(layout.device, layout.dtype), DiagonalNoise(dim, 0.3), num_mixing=100)


METHODS: dict[str, dict[str, Any]] = {
    "livi": {},
    "sivi": {"family": semi_implicit},
    "full_rank": {"generator": Affine.for_layout},
    "mean_field": {
        "generator": Constant.for_layout,
        "noise": lambda layout: DiagonalNoise(layout.num_params, 1.0),
    },
}


@dataclass(frozen=True)
class Config:
    """The runs to do: every method on every target under every seed, one thread a fit.

    Args:
        steps: number of steps of every fit, whatever the method.
    """

    targets: tuple[str, ...]
    methods: tuple[str, ...] = tuple(METHODS)
    seeds: tuple[int, ...] = SEEDS
    steps: int = 1500

    def __post_init__(self) -> None:
        check_names("targets", self.targets, tuple(TARGETS))
        check_names("methods", self.methods, tuple(METHODS))
        checks.positive_int("steps", self.steps)
        check_seeds(self.seeds)

    def jobs(self) -> list[Job]:
        return all_jobs(self.targets, self.methods, self.seeds)


def bench(config: Config, out: Path, *, jobs: int = 1, say: Say = print) -> dict[str, Any]:
    """Run the fits that are not yet in out/densities.json, adding each one to it, and return its content."""
    for name in config.targets:
        if TARGETS[name].missing():
            raise ModuleNotFoundError(f"{name}: expected {TARGETS[name].needs}, got none; pip install livi[baselines].")
    return run_jobs(
        out / FILE,
        empty_document("densities", config),
        config.jobs(),
        partial(fit_row, config=config),
        key=KIND.key,
        notes=notes(config),
        jobs=jobs,
        summary=KIND.summary,
        line=KIND.line,
        say=say,
    )


def fit_row(job: Job, config: Config) -> Row:
    """Fit one method to one target, ready for JSON. Every random draw follows from the seed.

    `kl` is KL(q || p) in nats, from draws of q and estimates of log q; `w2` the sliced 2-Wasserstein distance to draws
    of p, and `w2_floor` that between two samples of p of the same size.
    """
    name, method, seed = job
    target = TARGETS[name]
    row: Row = {"target": name, "method": method, "seed": seed, "dim": target.dim}
    fit = partial(_scores, target, method, seed, config.steps, drawn=seed == config.seeds[0])
    return recorded_fit(row, (*KIND.quantities(), "kl_error", "bound", "draws"), fit)


def _scores(target: Target, method: str, seed: int, steps: int, *, drawn: bool) -> Row:
    """Fit, and compare with draws of p; with some of the fit's own draws for a figure."""
    rng = torch.Generator().manual_seed(seed)
    begun = time.perf_counter()
    q = fit_density(target.log_prob, target.dim, steps=steps, seed=seed, progress=False, **METHODS[method])
    found: Row = {"seconds": time.perf_counter() - begun}
    points, truth, second_truth = completed(q).sample(DRAWS, rng), target.sample(DRAWS, rng), target.sample(DRAWS, rng)
    found |= {"w2": sliced(points, truth), "w2_floor": sliced(second_truth, truth), "bound": q.bound.value}
    found |= divergence(q, rng, normalised=target.normalised)
    shown = [[round(float(value), 3) for value in point] for point in points[:SHOWN, :2]]
    return found | ({"draws": shown} if drawn else {})


@torch.no_grad()
def divergence(q: Density, rng: torch.Generator, *, normalised: bool) -> dict[str, float]:
    """KL(q || p) in nats: minus the ELBO, with log q by importance sampling, plus log Z, estimated where unknown.

    For a semi-implicit q it is an upper bound, with log q taken as a mixture over many draws of psi.
    """
    if isinstance(q.sampler, SemiImplicit):
        assert q.target is not None
        q.sampler.num_mixing = MIXING
        draw = q.sampler.draw(CHECKED, rng)
        [estimate] = q.sampler.entropy(draw, Estimation(Exact(), CHECKED, rng))
        weights = q.target(draw.theta) + estimate.nats
        log_z = 0.0 if normalised else float(weights.logsumexp(0)) - torch.tensor(float(CHECKED)).log().item()
        return {"kl": log_z - float(weights.mean()), "kl_error": float(weights.std()) / CHECKED**0.5}
    found = q.diagnose(CHECKED, num_importance=128, rng=rng)
    if normalised:
        return {"kl": -found.elbo.value, "kl_error": found.elbo.standard_error}
    return {"kl": found.divergence.value, "kl_error": found.divergence.standard_error}


def sliced(left: Tensor, right: Tensor) -> float:  # (S, m), (S, m)
    """The sliced 2-Wasserstein distance: root mean square of those of projections on random directions."""
    rng = torch.Generator().manual_seed(0)
    directions = torch.randn(left.shape[1], DIRECTIONS, generator=rng).to(left)
    directions = directions / directions.norm(dim=0)
    ours, theirs = (left @ directions).sort(0).values, (right @ directions).sort(0).values
    return float((ours - theirs).square().mean().sqrt())


def notes(config: Config) -> list[str]:
    left_out = [name for name in TARGETS if name not in config.targets]
    return [f"Every fit takes {config.steps} steps.", *(f"Left out: {name}." for name in left_out)]


def text(document: Mapping[str, Any]) -> str:
    """The results as a Markdown table."""
    return "\n\n".join([table(document["rows"], KIND, KIND.shown()), KIND.legend()])
