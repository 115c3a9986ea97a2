"""The benchmarks on images: a row for every method under every seed, on one device, in runs of any length."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, get_args

import torch

from livi import checks
from livi.experiments.datasets import pictures
from livi.experiments.deadlines import Deadline
from livi.experiments.images.methods import QUICK_SAMPLES, Task, check_method, default_methods, fit_method
from livi.experiments.images.problems import PROBLEMS, ImageProblem, Part, Sets, load
from livi.experiments.images.scores import scores
from livi.experiments.images.text import KINDS, summary, text
from livi.experiments.rows import Row
from livi.experiments.runs import (
    Job,
    Say,
    all_jobs,
    check_different,
    check_seeds,
    empty_document,
    recorded_fit,
    run_jobs,
)

__all__ = ["Config", "bench", "fit_row", "notes", "result_path", "text"]

SEEDS = (300, 301, 302)
_MAY_DIFFER = ("methods", "seeds")  # fields of Config, between runs that add to one file


@dataclass(frozen=True)
class Config:
    """The runs to do: every method under every seed.

    Args:
        part: which images to score; neither is trained on. Choose settings by "validation" only.
        epochs, fit_epochs: of training the networks that fits start from, and of fits on the bound; by default those
            of the problem and of the method.
        gradients: number of gradients for each method that starts from scratch, in place of its own schedule.
        samples: number of networks in a prediction; by default that of the problem.
        norm: of residual networks; see livi.experiments.networks.
        quick: a small network, a few hundred images, a few steps, to see that everything works; the numbers mean
            nothing.
    """

    problem: str
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS
    part: Part = "test"
    epochs: int | None = None
    fit_epochs: float | None = None
    gradients: int | None = None
    samples: int | None = None
    norm: str = "batch"
    quick: bool = False

    def __post_init__(self) -> None:
        if self.problem not in PROBLEMS:
            raise ValueError(f"problem: expected one of {', '.join(PROBLEMS)}, got {self.problem!r}.")
        if not self.methods:
            object.__setattr__(self, "methods", default_methods(PROBLEMS[self.problem], self.quick))
        for name in self.methods:
            check_method(name, self.setting)
        check_different("methods", self.methods)
        check_seeds(self.seeds)
        if self.part not in get_args(Part):
            raise ValueError(f"part: expected validation or test, got {self.part!r}.")
        for name in ("epochs", "gradients", "samples"):
            if getattr(self, name) is not None:
                checks.positive_int(name, getattr(self, name))
        if self.fit_epochs is not None:
            checks.positive_float("fit_epochs", self.fit_epochs)
            if self.gradients is not None:
                raise ValueError("gradients: expected none beside fit_epochs, which decides how long livi's fits are.")

    @property
    def setting(self) -> ImageProblem:
        return PROBLEMS[self.problem]

    def jobs(self) -> list[Job]:
        return all_jobs([self.problem], self.methods, self.seeds)

    def task(self, sets: Sets, seed: int, folder: Path, deadline: Deadline, say: Say) -> Task:
        """The task of a fit under one of the seeds."""
        return Task(
            sets,
            seed,
            folder,
            deadline,
            quick=self.quick,
            samples=self.samples or (QUICK_SAMPLES if self.quick else self.setting.samples),
            epochs=self.epochs,
            fit_epochs=self.fit_epochs,
            gradients=self.gradients,
            norm=self.norm,
            say=say,
        )


def result_path(config: Config, out: Path) -> Path:
    words = [config.problem, *(["validation"] if config.part == "validation" else []), *(["quick"] * config.quick)]
    return out / f"{'-'.join(words)}.json"


def bench(
    config: Config,
    out: Path,
    folder: Path,
    *,
    device: str = "cpu",
    jobs: int = 1,
    minutes: float | None = None,
    say: Say = print,
) -> dict[str, Any]:
    """Run the fits that are not yet in out/PROBLEM.json, adding each one to it, and return its content.

    A fit that fails is a row with its `error`, and is tried again by the next run. Other methods and seeds may be added
    to the same file. Networks, and with `minutes` checkpoints of fits, are kept in the folder PROBLEM next to it.

    Args:
        folder: where the images are.
        jobs: number of fits at a time, each in a process of its own with the next GPU in turn.
        minutes: time after which to stop. Trainings and fits on the bound stop within seconds, and the next run
            continues them; other fits are finished first.

    Raises:
        FileNotFoundError: the images to train on are not there.
        ValueError: they are damaged, or the file in `out` belongs to another configuration.
    """
    path, deadline, images = result_path(config, out), Deadline.after(minutes), Images(folder, device)
    images.load(config)  # what is missing or damaged raises here
    fit = partial(fit_row, config=config, images=images, folder=path.with_suffix(""), deadline=deadline)
    return run_jobs(
        path,
        empty_document(config.problem, config, _MAY_DIFFER),
        config.jobs(),
        partial(fit, say=say if jobs == 1 else _keep_quiet),
        key=KINDS[config.problem].key,
        notes=notes(config, folder),
        jobs=jobs,
        summary=summary,
        line=KINDS[config.problem].line,
        say=say,
        deadline=deadline,
        stops_itself=True,
    )


@dataclass(frozen=True)
class Images:
    """The folder with the images, and the device to load them to."""

    folder: Path
    device: str

    def load(self, config: Config) -> Sets:
        """The images of a problem, which are read once in every process."""
        return _loaded(self, config.problem, config.part, config.quick)


@lru_cache(maxsize=1)
def _loaded(images: Images, problem: str, part: Part, quick: bool) -> Sets:
    return load(PROBLEMS[problem], images.folder, part=part, quick=quick, device=checks.device(images.device))


def _keep_quiet(text: str) -> None:
    """Print nothing: lines of several fits at once would be mixed up."""


def fit_row(job: Job, config: Config, images: Images, folder: Path, deadline: Deadline, say: Say) -> Row:
    """Fit one method and score it, ready for JSON. Every random draw follows from the seed."""
    problem, method, seed = job
    task = config.task(images.load(config), seed, folder, deadline, say)

    def fit() -> Row:
        fitted = fit_method(method, task)
        memory = _peak_memory(task.device)
        found = {"seconds": fitted.seconds, "start_seconds": fitted.start_seconds, "memory": memory}
        return found | scores(fitted, task.sets, quick=config.quick)

    _reset_memory(task.device)
    return recorded_fit({"problem": problem, "method": method, "seed": seed}, (), fit, num_threads=None)


def notes(config: Config, folder: Path) -> list[str]:
    """Notes below the table: what was scored, what was left out, and why."""
    found = scored_on(config, folder)
    if config.part == "test" and config.setting.shifts and config.setting.shifted:
        found.append(f"Rotated or corrupted: the first {config.setting.shifted:,} scored images.")
    return found


def scored_on(config: Config, folder: Path) -> list[str]:
    """Notes on the scored images and OOD sets."""
    found = ["A small network, a few images and steps. The numbers mean nothing."] if config.quick else []
    found.append(f"Scored on {config.part} images, which nothing was trained on.")
    if config.part == "validation":
        found.append("OOD sets are synthetic: validation images altered in six ways. Reported sets decide nothing.")
    missing = [name for name in config.setting.others if not pictures.available(folder, name)]
    if missing and config.part == "test":
        found.append(f"Not there: {', '.join(missing)}; run `livi data get {' '.join(missing)}`.")
    return found


def _reset_memory(device: torch.device) -> None:
    """Free memory and reset its peak, so that methods are measured separately."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _peak_memory(device: torch.device) -> float | None:
    """Peak memory of tensors in GB since `_reset_memory`; None without a GPU."""
    return torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else None
