"""The runs of the UCI benchmark: a row for every method on every split of every set, over processes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from livi import checks
from livi.experiments.datasets import uci
from livi.experiments.deadlines import Deadline
from livi.experiments.machine import forget_peak_memory, peak_memory
from livi.experiments.rows import Row
from livi.experiments.runs import Job, Say, all_jobs, check_names, check_splits, empty_document, recorded_fit, run_jobs
from livi.experiments.uci.data import Split
from livi.experiments.uci.methods import METHODS, available_methods, check_installed, default_methods
from livi.experiments.uci.search import Choice, choose, fitted, log_score, predicted
from livi.experiments.uci.text import KIND, text
from livi.family.last_layer import ExactLastLayer
from livi.posterior import metrics
from livi.posterior.posterior import Posterior
from livi.posterior.prediction import RegressionPrediction

__all__ = [
    "METHODS",
    "Config",
    "available_methods",
    "bench",
    "default_methods",
    "default_sets",
    "fit_row",
    "notes",
    "text",
]

FILE = "uci.json"
LEVEL = 0.9
PACKAGES = ("numpyro", "laplace-torch", "ivon-opt")
_MAY_DIFFER = (
    "sets",
    "methods",
    "splits",
    "first_split",
    "device",
)  # fields of Config, between runs that add to one file


@dataclass(frozen=True)
class Config:
    """The runs to do: every method on every split of every set.

    Args:
        splits, first_split: number of the published splits of each set, and the first one.
        steps: number of steps of every fit, see `livi.experiments.uci.methods`.
        search_rows: largest number of rows to which candidates are fitted.
        device: of networks and rows during fits.
    """

    sets: tuple[str, ...]
    methods: tuple[str, ...]
    splits: int = 20
    first_split: int = 0
    steps: int = 1000
    search_rows: int = 2000
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_names("sets", self.sets, tuple(uci.NAMES))
        check_names("methods", self.methods, tuple(METHODS))
        check_installed(self.methods)
        for name in ("steps", "search_rows"):
            checks.positive_int(name, getattr(self, name))
        check_splits(self.splits, self.first_split)
        checks.device(self.device)

    def jobs(self, folder: Path) -> list[Job]:
        """Only splits that exist."""
        counts = {name: uci.num_splits(folder, name) for name in self.sets}
        wanted = all_jobs(self.sets, self.methods, range(self.first_split, self.first_split + self.splits))
        return [(name, method, split) for name, method, split in wanted if split < counts[name]]


def default_sets(folder: Path | None) -> tuple[str, ...]:
    """The sets in the folder; if there are none, all sets, so that an error says what is missing."""
    return (() if folder is None else tuple(uci.available(folder))) or tuple(uci.NAMES)


def bench(
    config: Config,
    out: Path,
    folder: Path | None,
    *,
    jobs: int = 1,
    minutes: float | None = None,
    say: Say = print,
) -> dict[str, Any]:
    """Run what is not yet in out/uci.json, adding a row after every run, and return its content.

    A run that fails is a row with its `error`, and is tried again by the next call. Other sets, methods and splits may
    be added to the same file.

    Args:
        folder: where the UCI sets are.
        jobs: number of runs at a time, each in a process of its own.
        minutes: time after which to stop; the next call continues.

    Raises:
        FileNotFoundError: a set is not there.
        ValueError: one of its files is damaged, or the file in `out` belongs to another configuration.
    """
    if folder is None:
        raise FileNotFoundError(
            f"LIVI_DATA_DIR: expected a folder with the UCI sets in uci, got none; copy {uci.SOURCE} there."
        )
    wanted = config.jobs(folder)
    first_splits = {name: split for name, _, split in reversed(wanted)}
    for name, split in first_splits.items():  # a damaged file raises here, not after hours
        Split.read(folder, name, split, search_rows=config.search_rows)
    return run_jobs(
        out / FILE,
        empty_document("uci", config, _MAY_DIFFER, PACKAGES),
        wanted,
        partial(fit_row, config=config, folder=folder),
        key=KIND.key,
        notes=notes(config, folder),
        jobs=jobs,
        deadline=Deadline.after(minutes),
        summary=KIND.summary,
        line=KIND.line,
        say=say,
    )


def fit_row(job: Job, config: Config, folder: Path) -> Row:
    """Choose by validation rows, fit to all training rows, and score the test rows; ready for JSON.

    Every random draw follows from the split's number. `seconds` are those of all fits and predictions, `fit_seconds`
    those of the last fit alone, `memory` the peak memory of the process in MB.
    """
    name, method, number = job
    split = Split.read(folder, name, number, search_rows=config.search_rows)
    row: Row = {
        "data": name,
        "method": method,
        "split": number,
        "seed": number,
        "features": split.whole.inputs.shape[1],
        "train_rows": len(split.whole.targets),
        "test_rows": len(split.whole.scored_targets),
        "device": config.device,
    }

    def fit() -> Row:
        choice = choose(METHODS[method], split, steps=config.steps, seed=number, device=config.device)
        return _final(method, split, choice, config, number)

    forget_peak_memory()
    row = recorded_fit(row, (*KIND.quantities(), "fit_seconds", "chosen", "validation", "last_layer"), fit)
    return row | {"seconds": row["whole_seconds"], "memory": peak_memory()}


def notes(config: Config, folder: Path | None) -> list[str]:
    """Notes above the tables: what was left out, and why."""
    found = []
    if folder is not None:
        counts = {name: uci.num_splits(folder, name) for name in config.sets}
        few = [name for name, count in counts.items() if count < config.first_split + config.splits]
        found += [f"{name} has splits 0 to {counts[name] - 1} only." for name in few]
    left_out = [name for name in METHODS if name not in available_methods()]
    if left_out:
        found.append(f"Not installed: what {', '.join(left_out)} need; see docs/rivals.md.")
    if config.steps < 500:
        found.append(f"{config.steps} steps instead of fits. The numbers mean nothing.")
    return found


def _final(method: str, split: Split, choice: Choice, config: Config, seed: int) -> dict[str, Any]:
    """Fit what was chosen to all training rows, and score the test rows."""
    begun = time.perf_counter()
    posterior = fitted(
        METHODS[method],
        choice.candidate,
        split.whole,
        steps=config.steps,
        seed=seed,
        noise=choice.noise,
        device=config.device,
    )
    seconds = time.perf_counter() - begun
    prediction = predicted(posterior, split.whole, seed)
    facts = {"chosen": str(choice.candidate), "validation": choice.scores, "fit_seconds": seconds}
    if "nuts" in posterior.plan:
        facts["rhat"], facts["effective"] = posterior.plan["nuts"]["rhat"], posterior.plan["nuts"]["effective"]
    return facts | {"last_layer": _last_layer(posterior)} | _scores(prediction, split)


def _scores(prediction: RegressionPrediction, split: Split) -> dict[str, float]:
    targets = torch.from_numpy(split.whole.scored_targets)
    return {
        "log_score": log_score(prediction, split.whole),
        "rmse": metrics.rmse(prediction, targets),
        "crps": metrics.crps(prediction, targets),
        "coverage": metrics.coverage(prediction, targets, LEVEL),
        "noise": float(prediction.stds.double().mean()),
    }


def _last_layer(posterior: Posterior) -> str:
    return "exact" if isinstance(posterior.sampler, ExactLastLayer) else "sampled"
