"""The benchmarks on images: every method under every seed, a row each, on one device, in pieces of any length."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, get_args

import torch

from livi import checks
from livi.experiments.datasets import pictures
from livi.experiments.deadlines import Deadline, OutOfTime
from livi.experiments.images.methods import QUICK_SAMPLES, Task, check_method, default_methods, fit_method
from livi.experiments.images.problems import PROBLEMS, ImageProblem, Part, Sets, load
from livi.experiments.images.scores import scores
from livi.experiments.images.text import line, summary, text
from livi.experiments.rows import Row, started
from livi.experiments.runs import Job, Say, empty_document, listening, run_jobs

__all__ = ["Config", "bench", "fit_row", "notes", "result_path", "text"]

SEEDS = (300, 301, 302)
_CHOSEN = ("methods", "seeds")  # what may differ between runs that add to one file


@dataclass(frozen=True)
class Config:
    """What to run.

    Args:
        part: which images to score; neither is trained on. Choose settings by "validation" only.
        epochs, fit_epochs: of the networks that fits start from, and of fits on the bound; None leaves them to the
            problem and the methods.
        gradients: so many for each method that starts from scratch; None leaves each its own schedule.
        samples: networks that answer; None leaves that to the problem.
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
        if not self.seeds or len(set(self.seeds)) != len(self.seeds) or min(self.seeds) < 0:
            given = ",".join(map(str, self.seeds)) or "none"
            raise ValueError(f"seeds: expected different numbers from 0 on, got {given}; give each once.")
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
        """Seed by seed, so that an interrupted run has every method equally often."""
        return [(self.problem, method, seed) for seed in self.seeds for method in self.methods]


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
    """Run what is not yet in out/PROBLEM.json, adding to it after every fit; its content.

    A fit that fails is a row with its `error`, and is tried again by the next run. Other methods and seeds may be added
    to the same file; networks, and with `minutes` checkpoints of fits, lie in the folder PROBLEM beside it.

    Args:
        folder: where the images are.
        jobs: fits at a time, each in a process of its own; "cuda" is then one GPU after the other.
        minutes: to stop after. Trainings and fits on the bound stop within seconds, and the same command goes on with
            them; other fits are finished first.

    Raises:
        FileNotFoundError: the images to train on are not there.
        ValueError: they are damaged, or the file in `out` belongs to another configuration.
    """
    path, deadline = result_path(config, out), Deadline.after(minutes)
    where = _Where(folder, device)
    sets = where.sets(config)
    document = empty_document(config.problem, config, _CHOSEN)
    alone = partial(fit_row, config=config, sets=sets, folder=path.with_suffix(""), deadline=deadline, say=say)
    beside = partial(_fit_beside, config=config, where=where, folder=path.with_suffix(""), deadline=deadline)
    over = f"{minutes:g} minutes are over; the same command goes on from here" if minutes is not None else ""
    try:
        found = run_jobs(
            path,
            document,
            config.jobs(),
            alone if jobs == 1 else beside,
            key=lambda row: (row["problem"], row["method"], row["seed"]),
            notes=notes(config, folder),
            jobs=jobs,
            summary=summary,
            line=line,
            say=say,
        )
    except OutOfTime:
        say(over)
        return started(path, document) | {"notes": notes(config, folder)}
    done = {(row["problem"], row["method"], row["seed"]) for row in found["rows"]}
    if deadline.passed() and not done.issuperset(config.jobs()):  # processes that ran out of time say nothing
        say(over)
    return found


@dataclass(frozen=True)
class _Where:
    """Where the images are, and where they shall be."""

    folder: Path
    device: str

    def sets(self, config: Config) -> Sets:
        return load(
            config.setting, self.folder, part=config.part, quick=config.quick, device=checks.device(self.device)
        )


_read = lru_cache(maxsize=1)(_Where.sets)  # once in every process


def _fit_beside(job: Job, config: Config, where: _Where, folder: Path, deadline: Deadline) -> Row | None:
    """`fit_row` in a process of its own; None where the time is up before it ends."""
    if deadline.passed():
        return None
    try:
        return fit_row(job, config, _read(where, config), folder, deadline, _keep_quiet)
    except OutOfTime:
        return None


def _keep_quiet(text: str) -> None:
    """Lines of several fits at once would tell nothing."""


def fit_row(job: Job, config: Config, sets: Sets, folder: Path, deadline: Deadline, say: Say) -> Row:
    """Fit one method and score it, ready for JSON. Every random draw follows from the seed."""
    problem, method, seed = job
    samples = QUICK_SAMPLES if config.quick else config.setting.samples
    task = Task(
        sets,
        seed,
        folder,
        deadline,
        quick=config.quick,
        samples=config.samples or samples,
        epochs=config.epochs,
        fit_epochs=config.fit_epochs,
        gradients=config.gradients,
        norm=config.norm,
        say=say,
    )
    row: Row = {"problem": problem, "method": method, "seed": seed, "error": None}
    begun = time.perf_counter()
    _forget(task.device)
    with listening() as caught:
        try:
            fitted = fit_method(method, task)
            row |= {"seconds": fitted.seconds, "start_seconds": fitted.start_seconds, "memory": _memory(task.device)}
            row |= scores(fitted, sets, quick=config.quick)
        except OutOfTime:
            raise
        except Exception as trouble:  # the other methods are worth having
            row["error"] = f"{type(trouble).__name__}: {trouble}"
    said = list(dict.fromkeys(f"{warning.category.__name__}: {warning.message}" for warning in caught))
    return row | {"whole_seconds": time.perf_counter() - begun, "warnings": said}


def notes(config: Config, folder: Path) -> list[str]:
    """What a reader of the table has to know: what was scored, what was left out, and why."""
    found = ["A small network, a few images and steps. The numbers mean nothing."] if config.quick else []
    found.append(f"Scored on {config.part} images, which nothing was trained on.")
    if config.part == "validation":
        found.append("OOD sets are synthetic: validation images altered in six ways. Reported sets decide nothing.")
    missing = [name for name in config.setting.others if not pictures.available(folder, name)]
    if missing and config.part == "test":
        found.append(f"Not there: {', '.join(missing)}; run `livi data get {' '.join(missing)}`.")
    if config.part == "test" and config.setting.shifts and config.setting.shifted:
        found.append(f"Rotated or corrupted: the first {config.setting.shifted:,} scored images.")
    return found


def _forget(device: torch.device) -> None:
    """So that one method's memory is not another's."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _memory(device: torch.device) -> float | None:
    """GB of tensors at the most while it was fitted; None where that is not counted."""
    return torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else None
