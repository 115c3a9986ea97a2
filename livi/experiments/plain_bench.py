"""The plain benchmark: is livi at least as good as the network it started from? A row for each fit of each method."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from livi import checks
from livi.experiments.datasets import uci
from livi.experiments.plain_methods import METHODS, Task, scores
from livi.experiments.plain_problems import PROBLEMS, Part, available, missing
from livi.experiments.plain_text import KIND, text
from livi.experiments.plain_training import warm_up
from livi.experiments.rows import Row
from livi.experiments.runs import Job, Say, all_jobs, check_names, check_seeds, empty_document, recorded_fit, run_jobs

__all__ = ["Config", "available", "bench", "fit_row", "notes", "text"]

FILES = {"test": "plain.json", "validation": "plain-validation.json"}
SEEDS = (300, 301, 302)


@dataclass(frozen=True)
class Config:
    """The runs to do: every method on every problem under every seed, one thread a fit.

    Args:
        part: which rows to score. Neither is trained on.
        steps: limit for every fit, to see that everything works; the numbers mean nothing.
    """

    problems: tuple[str, ...]
    methods: tuple[str, ...] = tuple(METHODS)
    seeds: tuple[int, ...] = SEEDS
    part: Part = "test"
    steps: int | None = None

    def __post_init__(self) -> None:
        check_names("problems", self.problems, tuple(PROBLEMS))
        check_names("methods", self.methods, tuple(METHODS))
        check_seeds(self.seeds)
        if self.part not in get_args(Part):
            raise ValueError(f"part: expected validation or test, got {self.part!r}.")
        if self.steps is not None:
            checks.positive_int("steps", self.steps)

    def jobs(self) -> list[Job]:
        return all_jobs(self.problems, self.methods, self.seeds)


def bench(config: Config, out: Path, folder: Path | None, *, jobs: int = 1, say: Say = print) -> dict[str, Any]:
    """Run the fits that are not yet in out/plain.json (or plain-validation.json), adding each one; return its content.

    A fit that fails is a row with its `error`, and is tried again by the next run.

    Args:
        folder: where the UCI sets are, or None.
        jobs: number of fits at a time, each in a process of its own.

    Raises:
        FileNotFoundError: the data of a problem are not there.
        ValueError: they are damaged, or the file in `out` belongs to another configuration.
    """
    for name in config.problems:
        remedy = missing(name, folder)
        if remedy is not None:
            raise FileNotFoundError(f"{name}: expected its data, got none; {remedy}.")
        PROBLEMS[name].draw(config.seeds[0], folder)  # a damaged file raises here, not after hours
    return run_jobs(
        out / FILES[config.part],
        empty_document("plain", config),
        config.jobs(),
        partial(fit_row, config=config, folder=folder),
        key=KIND.key,
        notes=notes(config, folder),
        jobs=jobs,
        summary=KIND.summary,
        line=KIND.line,
        say=say,
    )


def fit_row(job: Job, config: Config, folder: Path | None) -> Row:
    """Fit one method to one problem and score it, ready for JSON. Every random draw follows from the seed.

    `seconds` are those of training alone; `warnings` and `error` are those of the fit.
    """
    name, method, seed = job
    problem = PROBLEMS[name]
    parts = problem.draw(seed, folder)
    rows = parts.held_out(config.part)
    row: Row = {
        "problem": name,
        "method": method,
        "seed": seed,
        "task": problem.task,
        "train_rows": len(parts.train.targets),
        "scored_rows": len(rows.targets),
    }

    def fit() -> Row:
        answer = METHODS[method](Task(problem, parts, rows.inputs, seed, config.steps))
        seconds = {"seconds": answer.seconds, "start_seconds": answer.start_seconds}
        return scores(answer.prediction, rows, parts) | seconds

    warm_up()
    return recorded_fit(row, (*KIND.quantities(problem.task), "outputs", "start_seconds"), fit)


def notes(config: Config, folder: Path | None) -> list[str]:
    """Notes below the table: what was scored, what was left out, and why."""
    found = []
    if config.steps is not None:
        found.append(f"At most {config.steps} steps instead of fits. The numbers mean nothing.")
    found.append(f"Scored on {config.part} rows, which nothing was trained on.")
    for name in PROBLEMS:
        if name not in config.problems:
            remedy = missing(name, folder)
            found.append(f"Left out: {name}, {'not asked for' if remedy is None else f'no data; {remedy}'}.")
    for name in config.problems:
        if PROBLEMS[name].needs == "uci" and missing(name, folder) is None and folder is not None:
            count = uci.num_splits(folder, name)
            splits = ", ".join(str(seed % count) for seed in config.seeds)
            found.append(f"{name}: published splits {splits}.")
    return found
