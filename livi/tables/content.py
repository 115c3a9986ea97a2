"""The content of a report on a table model: plain numbers, words and arrays.

`livi.tables` fills it, `livi.report` turns it into a page. Nothing here needs pandas or torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Task = Literal["regression", "classification"]
Judgement = Literal["calibrated", "overconfident", "underconfident", "too few rows"]
PartKind = Literal["size", "group"]  # a fifth by size of the prediction, or the rows with one value of a column


@dataclass(frozen=True, eq=False)
class RegressionRows:
    """Targets that the fit has not seen, and the predictions for them, in the target's own units. n >= 1 rows.

    All numbers are finite. `levels` rise; `lower[i]` and `upper[i]` are the ends of the central intervals that should
    hold `levels[i]` of the targets, conformal ones for a conformal model. The ends of intervals for counts are counts,
    so these hold more than their level: their coverage is judged by `pit`.
    """

    target: NDArray[np.float64]  # (n,)
    mean: NDArray[np.float64]  # (n,)
    epistemic_std: NDArray[np.float64]  # (n,) the part that more data would reduce
    aleatoric_std: NDArray[np.float64]  # (n,) the noise of the target itself
    total_std: NDArray[np.float64]  # (n,)
    pit: NDArray[np.float64]  # (n,) P(Y <= target), uniform on [0, 1] if the prediction is calibrated
    levels: NDArray[np.float64]  # (L,) such as 0.05, 0.10, ..., 0.95
    lower: NDArray[np.float64]  # (L, n)
    upper: NDArray[np.float64]  # (L, n)
    counts: bool = False

    @property
    def inside(self) -> NDArray[np.bool_]:  # (L, n)
        """Which targets count as covered by the intervals of each level: by `pit` for counts, else by the ends."""
        if self.counts:
            return np.abs(self.pit - 0.5) <= 0.5 * self.levels[:, None]
        return (self.lower <= self.target) & (self.target <= self.upper)

    def __len__(self) -> int:
        return len(self.target)


@dataclass(frozen=True, eq=False)
class ClassificationRows:
    """Labels that the fit has not seen and the probabilities predicted for them. n >= 1 rows, k >= 2 classes.

    All numbers are finite; entropies are in nats. `target[i]` is an index into `classes`.
    """

    target: NDArray[np.int64]  # (n,)
    classes: tuple[str, ...]  # (k,)
    probabilities: NDArray[np.float64]  # (n, k)
    entropy: NDArray[np.float64]  # (n,) the total uncertainty
    mutual_information: NDArray[np.float64]  # (n,) its epistemic part

    def __len__(self) -> int:
        return len(self.target)


@dataclass(frozen=True)
class Baseline:
    """The score of a simple model: a constant prediction for all rows, or a linear model of the same columns."""

    kind: Literal["constant", "linear"]
    value: float


BASELINE_NAMES: dict[Task, dict[str, str]] = {
    "regression": {"constant": "the average for every row", "linear": "a linear model"},
    "classification": {"constant": "the most frequent class", "linear": "a linear model"},
}


@dataclass(frozen=True)
class Metric:
    """A score with its name, its printed form, and a note on how to read it."""

    key: str  # as in JSON: "rmse"
    name: str  # as shown: "RMSE"
    value: float
    text: str  # the value, rounded for reading: "0.1234", "91.2 %"
    note: str = ""  # "lower is better, in units of price"
    baselines: tuple[Baseline, ...] = ()

    def with_baselines(self, baselines: tuple[Baseline, ...]) -> Metric:
        return replace(self, baselines=tuple(baselines))


@dataclass(frozen=True)
class Coverage:
    """The share of targets inside the intervals (or sets) of one level, and the range to expect if calibrated."""

    level: float  # 0.9
    share: float  # of the targets inside
    low: float  # `share` of a calibrated model lies between `low` and `high` 95 times in 100
    high: float
    width: float  # average width, in the target's units (number of classes in a set, for classification)
    judgement: Judgement


@dataclass(frozen=True)
class Part:
    """Coverage of the 90 % intervals in a part of the rows."""

    kind: PartKind
    name: str  # "the fifth with the highest predictions of price", "rows with cut = Fair"
    rows: int
    coverage: Coverage


@dataclass(frozen=True)
class Driver:
    """A column's permutation importance: the error of predictions, and that with its values shuffled among the rows."""

    name: str
    error: float  # RMSE, or the average probability given to wrong classes
    without: float  # the same with the column shuffled


@dataclass(frozen=True, eq=False)
class Effect:
    """Partial dependence on a column: the average prediction; `low` to `high` holds 90 % of the networks."""

    name: str
    kind: Literal["numeric", "date", "categorical"]
    values: tuple[float | str, ...]  # (P,) numbers, days since 1970, or categories
    mean: NDArray[np.float64]  # (P,)
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    about: str = ""  # for classification, the class whose probability is shown


@dataclass(frozen=True)
class Finding:
    """One finding of the diagnosis of the posterior."""

    severity: Literal["ok", "notice", "warning"]
    topic: str  # "bound", "entropy", ...
    text: str


@dataclass(frozen=True)
class ColumnFacts:
    """One column of the table and how it is used."""

    name: str
    kind: Literal["numeric", "date", "categorical", "dropped"]
    note: str = ""  # "3 missing values", "7 categories", "constant"


@dataclass(frozen=True)
class UnsureRow:
    """A row whose prediction has a large epistemic uncertainty, with its values in the file."""

    position: int  # index among the scored rows
    row: int  # line in the file, where the header is line 1
    values: Mapping[str, str]  # by column, target included; "" where missing


@dataclass(frozen=True, eq=False)
class Content:
    """Everything the report shows. Words from the user's file (names, values, labels) come as they are: escape them.

    Args:
        title: such as "price from houses.csv".
        task: "regression" or "classification".
        target: name of the target column.
        headline: one or two sentences with the main scores on the held-out rows.
        source: the rows that were scored, as "128 held-out rows of houses.csv"; "" where there are none.
        facts: what was fitted, by name, in the order to be shown: "Rows fitted": "512", "Network": ...
        columns: every column of the file but the target.
        notes: about the data, such as dropped columns and rows, and values that were filled in.
        history: one dict every few steps, with step, bound, log_likelihood, log_prior, entropy, kl_weight, rate.
        rows: held-out targets and predictions; None where nothing was held out (`--validation 0`).
        metrics: on those rows; empty where there are none.
        coverage: by rising level; empty where there are no rows.
        parts: coverage by size of the prediction and by group, for regression; empty where there are few rows.
        verdict: calibration in words, one sentence each; empty where there are no rows.
        unsure: the rows with the largest epistemic uncertainty, most uncertain first.
        findings: the diagnosis of the posterior in words; empty if it was not made.
        drivers: columns by permutation importance, most important first; empty if it was not computed.
        effects: how predictions change along the most important columns.
    """

    title: str
    task: Task
    target: str
    headline: str
    source: str
    facts: Mapping[str, str]
    columns: tuple[ColumnFacts, ...]
    notes: tuple[str, ...]
    history: tuple[Mapping[str, float], ...]
    rows: RegressionRows | ClassificationRows | None
    metrics: tuple[Metric, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    parts: tuple[Part, ...] = ()
    verdict: tuple[str, ...] = ()
    unsure: tuple[UnsureRow, ...] = ()
    findings: tuple[Finding, ...] = ()
    drivers: tuple[Driver, ...] = ()
    effects: tuple[Effect, ...] = ()

    def summary(self) -> dict[str, Any]:
        """The numbers and words without the rows, ready for JSON; a number that is not finite becomes None."""
        return {
            "title": self.title,
            "task": self.task,
            "target": self.target,
            "headline": self.headline,
            "source": self.source,
            "rows": 0 if self.rows is None else len(self.rows),
            "facts": dict(self.facts),
            "notes": list(self.notes),
            "metrics": {m.key: m.value if math.isfinite(m.value) else None for m in self.metrics},
            "baselines": {
                m.key: {one.kind: one.value if math.isfinite(one.value) else None for one in m.baselines}
                for m in self.metrics
                if m.baselines
            },
            "drivers": [vars(one).copy() for one in self.drivers],
            "coverage": [vars(line).copy() for line in self.coverage],
            "parts": [
                {"kind": part.kind, "name": part.name, "rows": part.rows, **vars(part.coverage)} for part in self.parts
            ],
            "verdict": list(self.verdict),
        }
