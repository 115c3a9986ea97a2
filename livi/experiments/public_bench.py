"""The benchmark on public tables, as users have them: `livi fit` with its defaults against histogram boosting.

Boosting has no density of its own. It is given a normal one, whose standard deviation is that of residuals on a fifth
of the rows, held out from a first fit; means come from a second fit to all rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from livi import checks
from livi.experiments.public_data import DISTRIBUTIONS, TABLES, available, split_frame
from livi.experiments.public_text import KIND, text
from livi.experiments.rows import Row
from livi.experiments.runs import Job, Say, all_jobs, check_names, check_splits, empty_document, recorded_fit, run_jobs
from livi.experiments.table_scores import LEAST_PROBABILITY
from livi.posterior.interruption import completed
from livi.tables import Table
from livi.tables.content import RegressionRows
from livi.tables.encoding import encode, target_classes, target_numbers
from livi.tables.fitting import fit_table
from livi.tables.options import FitOptions
from livi.tables.parts import LEVEL, parts_of
from livi.tables.schema import Schema

__all__ = ["METHODS", "Config", "available", "bench", "fit_row", "notes", "text"]

FILE = "public.json"
METHODS = ("livi", "boosting")
_HALF_WIDTH = 1.6448536269514722  # of a central 90 % interval, in standard deviations


@dataclass(frozen=True)
class Config:
    """The runs to do: every method on every split of every table.

    Args:
        first_split, splits: seeds of the rows that are held out, a fifth of each table. Seeds below 100 are for
            development.
        max_rows: number of rows drawn from a table with more rows to fit to.
        quick: a few steps instead of a fit, to see that everything works; the numbers mean nothing.
    """

    data: tuple[str, ...]
    methods: tuple[str, ...] = METHODS
    splits: int = 1
    first_split: int = 100
    max_rows: int = 1_000_000
    threads: int = 1
    quick: bool = False

    def __post_init__(self) -> None:
        check_names("data", self.data, tuple(TABLES))
        check_names("methods", self.methods, METHODS)
        check_splits(self.splits, self.first_split)
        for name in ("max_rows", "threads"):
            checks.positive_int(name, getattr(self, name))

    def jobs(self) -> list[Job]:
        return all_jobs(self.data, self.methods, range(self.first_split, self.first_split + self.splits))


def bench(config: Config, out: Path, *, jobs: int = 1, say: Say = print) -> dict[str, Any]:
    """Run the fits that are not yet in out/public.json, adding each one to it, and return its content."""
    return run_jobs(
        out / FILE,
        empty_document("public", config, packages=DISTRIBUTIONS.values()),
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
    """Fit one method to one split of a table and score it, ready for JSON."""
    name, method, number = job
    table = TABLES[name]
    train, test = split_frame(name, number)
    if len(train) > config.max_rows:
        train = train.sample(config.max_rows, random_state=number)
    row: Row = {"data": name, "method": method, "split": number, "task": table.task}
    row |= {"train_rows": len(train), "test_rows": len(test), "model": None}
    tables = (Table.from_frame(train, name), Table.from_frame(test, name))

    def fit() -> Row:
        schema = None if method == "livi" else _schema(tables[0], name, number)  # from a short fit, not timed
        begun = time.perf_counter()
        if schema is None:
            found = _livi(tables, name, number, config.quick)
        else:
            found = _boosting(tables, schema, number, config.quick)
        return found | {"seconds": time.perf_counter() - begun}

    return recorded_fit(row, KIND.quantities(table.task), fit, config.threads)


def notes(config: Config) -> list[str]:
    """Notes above the table: what was left out, and why."""
    found = ["Quick: a few steps instead of fits. The numbers mean nothing."] if config.quick else []
    missing = sorted({DISTRIBUTIONS[TABLES[name].package] for name in TABLES if name not in available()})
    if missing:
        found.append(f'Left out: tables of {", ".join(missing)}; `pip install "livi[bench]"` brings them.')
    return found


def _options(seed: int, task: Any, quick: bool) -> FitOptions:
    few: dict[str, Any] = {"steps": 10, "hidden": (5,)} if quick else {}
    return FitOptions(task=task, validation=0.0, seed=seed, diagnose=False, **few)


def _livi(tables: tuple[Table, Table], name: str, seed: int, quick: bool) -> dict[str, Any]:
    """`livi fit` with its defaults on the training rows, and `livi evaluate` on the test rows."""
    train, test = tables
    model = fit_table(train, TABLES[name].target, _options(seed, TABLES[name].task, quick), _silent)
    completed(model.estimator.posterior_)
    evaluation = model.evaluate(test, _silent)
    scores = {metric.key: metric.value for metric in evaluation.metrics}
    covered = next(line.share for line in evaluation.coverage if line.level == LEVEL)
    if TABLES[name].task == "classification":
        return {"accuracy": scores["accuracy"], "log_score": -scores["nll"], "coverage": covered}
    fifths = [part.coverage.share for part in evaluation.parts if part.kind == "size"]
    fitted = model.estimator.model_
    return {
        "rmse": scores["rmse"],
        "r2": scores["r2"],
        "log_score": scores["log_score"],
        "coverage": covered,
        "worst_fifth": _worst(fifths),
        "model": f"{fitted.target_scale}, {fitted.noise}",
    }


def _boosting(tables: tuple[Table, Table], schema: Schema, seed: int, quick: bool) -> dict[str, Any]:
    """scikit-learn's histogram boosting with its defaults, on the same features as livi."""
    train, test = tables
    rows, test_rows = encode(train, schema, _silent), encode(test, schema, _silent)
    options: dict[str, Any] = {"random_state": seed} | ({"max_iter": 5} if quick else {})
    if schema.task == "classification":
        labels, test_labels = target_classes(train, schema), target_classes(test, schema)
        classifier = HistGradientBoostingClassifier(**options).fit(rows, labels)
        chances = classifier.predict_proba(test_rows)
        likely = np.maximum(chances[np.arange(len(test_labels)), test_labels], LEAST_PROBABILITY)
        return {"accuracy": float((chances.argmax(1) == test_labels).mean()), "log_score": float(np.log(likely).mean())}
    targets, test_targets = target_numbers(train, schema), target_numbers(test, schema)
    fitted, held = train_test_split(np.arange(len(rows)), test_size=0.2, random_state=seed)
    trial = HistGradientBoostingRegressor(**options).fit(rows[fitted], targets[fitted])
    sigma = float(np.sqrt(np.mean((targets[held] - trial.predict(rows[held])) ** 2)))
    mean = HistGradientBoostingRegressor(**options).fit(rows, targets).predict(test_rows)
    return _normal_scores(mean, sigma, test_targets)


def _schema(train: Table, name: str, seed: int) -> Schema:
    """How `livi fit` reads the table, from a fit of one step, so that both methods get the same features."""
    task = TABLES[name].task
    # Given, so that no trial fits choose them.
    model: dict[str, Any] = {"target_scale": "plain", "noise": "constant"} if task == "regression" else {}
    options = FitOptions(task=task, validation=0.0, seed=seed, diagnose=False, steps=1, hidden=(1,), **model)
    return fit_table(train, TABLES[name].target, options, _silent).schema


def _normal_scores(mean: NDArray[np.float64], sigma: float, target: NDArray[np.float64]) -> dict[str, Any]:
    unit = (target - mean) / sigma
    reach = np.full((1, len(target)), _HALF_WIDTH * sigma)
    flat = np.full(len(target), sigma)
    rows = RegressionRows(target, mean, 0 * flat, flat, flat, flat, np.array([LEVEL]), mean - reach, mean + reach)
    return {
        "rmse": float(np.sqrt(np.mean((target - mean) ** 2))),
        "r2": 1.0 - float(np.mean((target - mean) ** 2) / target.var()),
        "log_score": float(np.mean(-0.5 * unit**2 - np.log(sigma) - 0.5 * np.log(2.0 * np.pi))),
        "coverage": float((np.abs(unit) <= _HALF_WIDTH).mean()),
        "worst_fifth": _worst([part.coverage.share for part in parts_of(rows, {}, "y")]),
    }


def _worst(shares: list[float]) -> float | None:
    """The share furthest from the level; None without any."""
    return max(shares, key=lambda share: abs(share - LEVEL), default=None)


def _silent(_: str) -> None:
    pass
