"""Tables of the benchmark on public tables as Markdown, and whether requirements set beforehand were met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import mean
from typing import Any

from livi.experiments.columns import ACCURACY, COVERAGE, LOG_SCORE, RMSE, SECONDS
from livi.experiments.rows import Rows, listed, succeeded, with_names
from livi.experiments.scoreboard import Column, Kind, table

KIND = Kind(
    "Public tables, beside boosting",
    "data",
    "split",
    {
        "regression": (LOG_SCORE, RMSE, COVERAGE, SECONDS),
        "classification": (LOG_SCORE, ACCURACY, COVERAGE, SECONDS),
    },
    {
        "regression": (
            Column("r2", "R2", "higher", 3),
            Column("worst_fifth", "worst fifth, %", None, 1, percent=True),
        )
    },
    listed="data",
)
RANGE = (0.85, 0.97)  # where the coverage of 90 % intervals should lie
LEGEND = """\
A fifth of each table is held out; beside a table's name is the number of rows fitted. Log score: mean log density of
the targets in their own units, or mean log probability of the true class. In 90 %: share of the targets in intervals
(sets of classes) that should hold 90 %. Worst fifth: that share in the fifth of the rows, by size of the prediction,
where it is furthest from 90 %; none of fewer than 100 rows. s: seconds of fit and predictions. Boosting has a constant
sigma from validation residuals."""


def text(document: Mapping[str, Any]) -> str:
    """The whole report: notes, a table for each task, and the requirements."""
    rows = succeeded(document["rows"])
    failed = [f"{row['data']}, {row['method']}: {row['error']}" for row in document["rows"] if row["error"] is not None]
    machine = document.get("machine", {})
    found = [listed(document["notes"])] if document["notes"] else []
    for task in KIND.columns:
        some = [row for row in rows if row["task"] == task]
        found += [f"## {task.capitalize()}", table(some, KIND, KIND.shown(task), _named)] if some else []
    found.append(listed([*requirements(rows), *(f"Failed: {failure}" for failure in failed)]))
    where = ", ".join(f"{name}: {value}" for name, value in machine.items() if value is not None)
    return "\n\n".join(
        [*found, KIND.legend(), LEGEND, *([f"Machine: {where}; jobs: {document.get('jobs', 1)}."] if where else [])]
    )


def _named(rows: Rows) -> tuple[str, str]:
    """A table with its number of rows, and a method with the models that it chose."""
    models = "; ".join(dict.fromkeys(row["model"] for row in rows if row.get("model") is not None))
    method = rows[0]["method"]
    return f"{rows[0]['data']} ({rows[0]['train_rows']:,})", f"{method} ({models})" if models else method


def requirements(rows: Rows) -> list[str]:
    """On how many tables livi meets each requirement; these were set before any result was seen."""
    ours = [row for row in rows if row["method"] == "livi"]
    numbers = [row for row in ours if row["task"] == "regression"]
    poor = [row["data"] for row in numbers if row["r2"] < 0]
    low, high = RANGE
    outside = [f"{row['data']} ({row['coverage']:.1%})" for row in numbers if not low <= row["coverage"] <= high]
    rivals = {(row["data"], row["split"]): row["log_score"] for row in rows if row["method"] == "boosting"}
    compared = [row for row in ours if (row["data"], row["split"]) in rivals]
    losses = Counter(row["data"] for row in compared if row["log_score"] <= rivals[row["data"], row["split"]])
    found = [
        f"R2 below 0: {', '.join(poor) or 'on none'} of {len(numbers)} regressions.",
        f"Coverage of {low:.0%} to {high:.0%}: on {len(numbers) - len(outside)} of {len(numbers)} regressions"
        f"{with_names('outside:', outside)}.",
    ]
    if compared:
        found.append(
            f"Log score better than boosting's: on {len(compared) - losses.total()} of {len(compared)} splits of tables"
            f"{with_names('behind:', [f'{name} ({count})' for name, count in losses.items()])}."
        )
        seconds = {name: mean(row["seconds"] for row in rows if row["method"] == name) for name in ("livi", "boosting")}
        found.append(f"Seconds a table, on average: livi {seconds['livi']:.0f}, boosting {seconds['boosting']:.1f}.")
    return found
