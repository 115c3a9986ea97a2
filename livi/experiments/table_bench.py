"""The benchmark on tables: a row for every method on every split of every data set, in one process or several."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from livi import checks
from livi.experiments.datasets import uci
from livi.experiments.rows import Row
from livi.experiments.runs import Job, Say, all_jobs, check_names, check_splits, empty_document, recorded_fit, run_jobs
from livi.experiments.table_data import BUNDLED, NAMES, Run, read_split, splits_of, task_of
from livi.experiments.table_methods import (
    FOR_TASK,
    GP_ROWS,
    METHODS,
    PACKAGES,
    available_methods,
    check_installed,
    rows_used,
)
from livi.experiments.table_scores import scores
from livi.experiments.table_text import KIND, text
from livi.tables.estimators.target import smallest_step

__all__ = ["Config", "available_methods", "bench", "default_data", "fit_row", "notes", "text"]

FILE = "tables.json"
_MAY_DIFFER = ("data", "methods", "splits", "first_split")  # fields of Config, between runs that add to one file


@dataclass(frozen=True)
class Config:
    """The runs to do: every method on every split of every data set.

    Args:
        splits, first_split: number of splits of each data set, and the first one. Split 0 was used in choosing
            defaults.
        max_rows: number of rows drawn from a split with more training rows.
        threads: of each fit.
        quick: a few steps instead of a fit, to see that everything works; the numbers mean nothing.
    """

    data: tuple[str, ...]
    methods: tuple[str, ...]
    splits: int = 3
    first_split: int = 1
    max_rows: int = 10_000
    threads: int = 1
    quick: bool = False

    def __post_init__(self) -> None:
        check_names("data", self.data, NAMES)
        check_names("methods", self.methods, tuple(METHODS))
        check_installed(self.methods)
        for name in ("max_rows", "threads"):
            checks.positive_int(name, getattr(self, name))
        check_splits(self.splits, self.first_split)

    def jobs(self, folder: Path | None) -> list[Job]:
        """Only splits that exist, and methods for the task."""
        counts = {name: splits_of(name, folder) for name in self.data}
        wanted = all_jobs(self.data, self.methods, range(self.first_split, self.first_split + self.splits))
        return [
            (name, method, split)
            for name, method, split in wanted
            if (count := counts[name]) is None or split < count
            if FOR_TASK.get(method, task_of(name)) == task_of(name)
        ]


def default_data(folder: Path | None) -> tuple[str, ...]:
    """The bundled sets, and the UCI sets that are in the folder."""
    return (*BUNDLED, *(uci.available(folder) if folder is not None else ()))


def bench(config: Config, out: Path, folder: Path | None, *, jobs: int = 1, say: Say = print) -> dict[str, Any]:
    """Run the fits that are not yet in out/tables.json, adding each one to it, and return its content.

    A fit that fails is a row with its `error`, and is tried again by the next run. Other data, methods and splits may
    be added to the same file.

    Args:
        folder: where the UCI sets are, or None.
        jobs: number of fits at a time, each in a process of its own. It changes nothing in the rows but seconds.

    Raises:
        FileNotFoundError: a UCI set is not there.
        ValueError: a file of a UCI set is damaged, or the file in `out` belongs to another configuration.
    """
    wanted = config.jobs(folder)
    for name, split in dict.fromkeys((name, split) for name, _, split in wanted):
        read_split(name, split, folder, config.max_rows)  # a damaged file raises here, not after hours
    return run_jobs(
        out / FILE,
        empty_document("tables", config, _MAY_DIFFER, ("scikit-learn", *(package for _, package in PACKAGES.values()))),
        wanted,
        partial(fit_row, config=config, folder=folder),
        key=KIND.key,
        notes=notes(config, folder),
        jobs=jobs,
        summary=KIND.summary,
        line=KIND.line,
        say=say,
    )


def fit_row(job: Job, config: Config, folder: Path | None) -> Row:
    """Fit one method to one split and score it, ready for JSON. Every random draw follows from the split's number.

    `seconds` are those of fit and predictions together; `warnings` and `error` are those of the fit.
    """
    name, method, number = job
    split = read_split(name, number, folder, config.max_rows)
    row: Row = {
        "data": name,
        "method": method,
        "split": number,
        "task": split.task,
        "features": split.inputs.shape[1],
        "all_rows": split.all_rows,
        "train_rows": len(split.inputs),
        "used_rows": rows_used(method, split.task, len(split.inputs), config.quick),
        "test_rows": len(split.test_inputs),
    }

    def fit() -> Row:
        begun = time.perf_counter()
        answer = METHODS[method](split, Run(number, config.quick))
        seconds = time.perf_counter() - begun
        step = smallest_step(split.targets) if split.task == "regression" else 0.0
        return scores(answer, split.test_targets, step) | {"seconds": seconds}

    return recorded_fit(row, KIND.quantities(split.task), fit, config.threads)


def notes(config: Config, folder: Path | None) -> list[str]:
    """Notes above the table: what was left out, and why."""
    found = ["Quick: a few steps instead of fits. The numbers mean nothing."] if config.quick else []
    missing = [name for name in uci.NAMES if name not in config.data]
    if folder is None and missing:
        found.append(
            f"Left out: the UCI sets {', '.join(missing)}. To have them, copy {uci.SOURCE} to a folder called uci, and "
            "set LIVI_DATA_DIR to the folder around it."
        )
    elif missing:
        found.append(f"Left out: {', '.join(missing)}, not asked for or not in the folder uci of LIVI_DATA_DIR.")
    for name, (_, package) in PACKAGES.items():
        if name not in available_methods():
            found.append(f"Left out: {name}, which is not installed (pip install {package}).")
    last = config.first_split + config.splits - 1
    for name in config.data:
        count = splits_of(name, folder)
        if count is not None and count <= last:
            found.append(f"{name} has splits 0 to {count - 1} only.")
    found.append(
        f"At most {config.max_rows:,} rows to train on"
        + (
            f"; gp takes {GP_ROWS['regression']:,} for regression and {GP_ROWS['classification']:,} for classification."
            if "gp" in config.methods and not config.quick
            else "."
        )
    )
    return found
