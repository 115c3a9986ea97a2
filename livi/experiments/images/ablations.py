"""Ablations of livi on images: of correlations, latents, samples and components, one at a time.

as fitted               the posterior itself, with one component
layers apart            layers drawn independently: the same q of each layer, without correlations between layers
weights apart           draws of every weight permuted by themselves: the same marginals, without any correlations
latents D               a generator with about D latents
samples S               S weight vectors a step
components K            a mixture of K generators, trained jointly, for about as many gradients as five networks take
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from livi.experiments.deadlines import Deadline
from livi.experiments.images import bench as images_bench
from livi.experiments.images.bench import SEEDS, Config, Images
from livi.experiments.images.methods import Fitted, Task, fit_livi
from livi.experiments.images.problems import Sets
from livi.experiments.images.scores import scores
from livi.experiments.images.text import ABLATIONS, KINDS, summary
from livi.experiments.images.text import ablations_text as text
from livi.experiments.rows import Row
from livi.experiments.runs import Job, Say, all_jobs, check_different, empty_document, recorded_fit, run_jobs
from livi.family.family import WeightSampler
from livi.family.generators import Generator
from livi.inference import Recipe
from livi.inference.rules import Size, default_generator
from livi.model.likelihoods import Categorical
from livi.model.problem import Problem
from livi.network import Layout
from livi.posterior.diagnostics.correlation import check_correlation
from livi.posterior.diagnostics.layers import Layers
from livi.posterior.posterior import Posterior

__all__ = ["Ablations", "bench", "correlations", "notes", "result_path", "text"]

LATENTS = (16, 64, 256, 1024)
SAMPLES = (2, 8, 16)
COMPONENTS = (2, 4)
DRAWS, CHUNK, WEIGHTS = 400, 16, 20_000  # for correlations between layers
MIN_PERMUTED = 16  # draws that are permuted together, at least


@dataclass(frozen=True)
class IndependentLayers:
    """Weights whose layers come from different draws of a sampler."""

    sampler: WeightSampler

    @property
    def layout(self) -> Layout:
        return self.sampler.layout

    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (S, m)
        parts = [self.sampler.sample(num_samples, rng)[:, group.start : group.stop] for group in self.layout.groups]
        return torch.cat(parts, 1)


@dataclass(frozen=True)
class IndependentWeights:
    """Draws of a sampler, at least 16, with those of each weight permuted by themselves."""

    sampler: WeightSampler

    @property
    def layout(self) -> Layout:
        return self.sampler.layout

    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (S, m)
        theta = self.sampler.sample(max(MIN_PERMUTED, num_samples), rng)
        source = theta.device if rng is None else rng.device
        order = torch.rand(theta.shape, generator=rng, device=source).argsort(0).to(theta.device)
        return theta.gather(0, order)[:num_samples]


INDEPENDENT: dict[str, Callable[[WeightSampler], WeightSampler]] = {
    "layers apart": IndependentLayers,
    "weights apart": IndependentWeights,
}
OF_ONE_FIT = ("as fitted", *INDEPENDENT)


@dataclass(frozen=True)
class Ablations:
    """The runs to do: every variant under every seed; for the rest see `livi.experiments.images.bench.Config`."""

    problem: str
    variants: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS
    part: str = "test"
    epochs: int | None = None
    fit_epochs: float | None = None
    samples: int | None = None
    norm: str = "batch"
    quick: bool = False

    def __post_init__(self) -> None:
        self.config()
        if not self.variants:
            object.__setattr__(self, "variants", default_variants(self.quick))
        for name in self.variants:
            kind, _, number = name.rpartition(" ")
            if name not in OF_ONE_FIT and not (kind in ("latents", "samples", "components") and number.isdecimal()):
                allowed = f"{', '.join(OF_ONE_FIT)}, latents D, samples S, components K"
                raise ValueError(f"variants: expected some of {allowed}, got {name!r}.")
        check_different("variants", self.variants)

    def config(self) -> Config:
        """The configuration of the benchmark in which livi is fitted."""
        given = {name: value for name, value in asdict(self).items() if name != "variants"}
        return Config(methods=("livi",), **given)

    def jobs(self) -> list[Job]:
        return all_jobs([self.problem], self.variants, self.seeds)


def default_variants(quick: bool = False) -> tuple[str, ...]:
    numbered = {"latents": LATENTS, "samples": SAMPLES, "components": COMPONENTS}
    chosen = {kind: values[: 1 if quick else None] for kind, values in numbered.items()}
    return (*OF_ONE_FIT, *(f"{kind} {value}" for kind, values in chosen.items() for value in values))


def result_path(chosen: Ablations, out: Path) -> Path:
    path = images_bench.result_path(chosen.config(), out)
    return path.with_name(f"{path.stem}-ablations.json")


def bench(
    chosen: Ablations, out: Path, folder: Path, *, device: str = "cpu", minutes: float | None = None, say: Say = print
) -> dict[str, Any]:
    """Run the variants that are not yet in out/PROBLEM-ablations.json, adding each one to it, and return its content.

    Arguments and stopping as in `livi.experiments.images.bench.bench`.
    """
    config, path, deadline = chosen.config(), result_path(chosen, out), Deadline.after(minutes)
    sets = Images(folder, device).load(config)
    experiment = f"{chosen.problem} {ABLATIONS}"
    return run_jobs(
        path,
        empty_document(experiment, chosen, ("variants", "seeds")),
        chosen.jobs(),
        partial(_row, config=config, sets=sets, folder=path.with_suffix(""), deadline=deadline, kept={}, say=say),
        key=KINDS[experiment].key,
        notes=notes(chosen, folder),
        jobs=1,
        summary=summary,
        line=KINDS[experiment].line,
        say=say,
        deadline=deadline,
        stops_itself=True,
    )


def _row(
    job: Job, config: Config, sets: Sets, folder: Path, deadline: Deadline, kept: dict[int, Fitted], say: Say
) -> Row:
    """Fit and score one variant. The first three share one fit, which stays in `kept`."""
    problem, variant, seed = job
    task = config.task(sets, seed, folder, deadline, say)

    def fit() -> Row:
        fitted = _fitted(variant, task, kept)
        [posterior] = fitted.posteriors
        scored = scores(fitted, sets, quick=True)
        found = {name: scored[name] for name in ("accuracy", "nll", "ece", "brier", "others_mean")}
        found |= {"seconds": fitted.seconds, "latent_dim": posterior.plan["latent_dim"]}
        found |= {"bound": _last_bound(posterior) if variant not in INDEPENDENT else None}
        return found | ({"correlations": correlations(posterior, seed)} if variant == "as fitted" else {})

    return recorded_fit({"problem": problem, "variant": variant, "seed": seed}, (), fit, num_threads=None)


def notes(chosen: Ablations, folder: Path) -> list[str]:
    """Notes below the table: what was scored."""
    return images_bench.scored_on(chosen.config(), folder)


def _fitted(variant: str, task: Task, kept: dict[int, Fitted]) -> Fitted:
    if variant in OF_ONE_FIT:
        if task.seed not in kept:
            kept.clear()
            kept[task.seed] = fit_livi(task, "one-component", components=1)
        fitted = kept[task.seed]
        change = INDEPENDENT.get(variant)
        return fitted if change is None else replace(fitted, posteriors=[_changed(fitted.posteriors[0], change)])
    kind, _, number = variant.rpartition(" ")
    options: dict[str, dict[str, Any]] = {
        "latents": {"generator": partial(_generator, task=task, latents=int(number))},
        "samples": {"recipe": Recipe(num_samples=int(number))},
        "components": {"components": int(number)},
    }
    return fit_livi(task, variant.replace(" ", "-"), **options[kind])


def _changed(posterior: Posterior, change: Callable[[WeightSampler], WeightSampler]) -> Posterior:
    """The posterior with another sampler in place of its own."""
    return Posterior(
        change(posterior.sampler),
        posterior.likelihood,
        posterior.prior,
        buffers=posterior.buffers,
        calibration=posterior.calibration,
        history=posterior.history,
        plan=posterior.plan,
    )


def _generator(layout: Layout, task: Task, latents: int) -> Generator:
    """The default generator for as many examples as give it about this number of latents."""
    problem = Problem.of(layout.module, task.data, Categorical())
    return default_generator(replace(Size.of(problem), layout=layout, num_data=10 * latents))


def correlations(posterior: Posterior, seed: int) -> dict[str, Any]:
    """Correlations between layers, as in `CorrelationCheck`, ready for JSON; NaN, as for a single weight, is None."""
    layers = Layers(posterior.layout, WEIGHTS)
    rng = torch.Generator(posterior.layout.device).manual_seed(seed)
    columns = layers.columns.to(posterior.layout.device)
    draws = torch.cat([posterior.sample(CHUNK, rng)[:, columns].cpu() for _ in range(DRAWS // CHUNK)])
    found = check_correlation(draws, layers, max_matrix=0)
    return {
        "layers": list(found.layers),
        "sizes": list(found.sizes),
        "mean_square": _numbers(found.mean_square),
        "noise": _numbers(found.noise),
        "across": found.across,
        "across_noise": found.across_noise,
        "num_samples": found.num_samples,
    }


def _numbers(values: Tensor) -> list[list[float | None]]:
    return [[value if value == value else None for value in row] for row in values.tolist()]


def _last_bound(posterior: Posterior) -> float | None:
    recent = [row["bound"] for row in posterior.history[-10:]]
    return sum(recent) / len(recent) if recent else None
