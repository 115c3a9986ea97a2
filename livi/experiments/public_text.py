"""Tables of the benchmark on public tables as Markdown, and whether requirements set beforehand were met."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

from livi.experiments.rows import Row, Rows, spread

QUANTITIES: dict[str, tuple[str, ...]] = {
    "regression": ("rmse", "r2", "log_score", "coverage", "worst_fifth", "seconds"),
    "classification": ("accuracy", "log_score", "coverage", "seconds"),
}
TITLES = {
    "rmse": "RMSE",
    "r2": "R2",
    "accuracy": "accuracy, %",
    "log_score": "log score",
    "coverage": "in 90 %, %",
    "worst_fifth": "worst fifth, %",
    "seconds": "s",
}
COVERAGE = (0.85, 0.97)
LEGEND = """\
A fifth of each table is held out. Log score: mean log density of the targets in their own units, or mean log
probability of the true class; higher is better, bold. In 90 %: share of the targets in intervals (sets of classes)
that should hold 90 %. Worst fifth: that share in the fifth of the rows, by size of the prediction, where it is
furthest from 90 %; none of fewer than 100 rows. s: seconds of fit and predictions.
Boosting has a constant sigma from validation residuals."""


def text(document: Mapping[str, Any]) -> str:
    """The whole report: notes, a table for each task, and the requirements."""
    rows: Rows = [row for row in document["rows"] if row["error"] is None]
    failed = [f"{row['data']}, {row['method']}: {row['error']}" for row in document["rows"] if row["error"] is not None]
    machine = document.get("machine", {})
    found = ["\n".join(f"- {note}" for note in document["notes"])] if document["notes"] else []
    for task in QUANTITIES:
        some = [row for row in rows if row["task"] == task]
        found += [f"## {task.capitalize()}", table(some)] if some else []
    sentences = [*requirements(rows), *(f"Failed: {failure}" for failure in failed)]
    found.append("\n".join(f"- {sentence}" for sentence in sentences))
    where = ", ".join(f"{name}: {value}" for name, value in machine.items() if value is not None)
    return "\n\n".join([*found, LEGEND, *([f"Machine: {where}; jobs: {document.get('jobs', 1)}."] if where else [])])


def table(rows: Rows) -> str:
    """The rows of one task as Markdown: a line for each table, split and method."""
    names = QUANTITIES[rows[0]["task"]]
    titles = ["table (rows fitted)", "method", *(TITLES[name] for name in names)]
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    best = {
        (row["data"], row["split"]): max(
            each["log_score"] for each in rows if (each["data"], each["split"]) == (row["data"], row["split"])
        )
        for row in rows
    }
    for row in rows:
        first = row["log_score"] == best[row["data"], row["split"]]
        cells = [_cell(name, row[name], bold=name == "log_score" and first) for name in names]
        method = row["method"] if row.get("model") is None else f"{row['method']} ({row['model']})"
        name = f"{row['data']} ({row['train_rows']:,})"
        lines.append(f"| {' | '.join([name, method, *cells])} |")
    return "\n".join(lines)


def requirements(rows: Rows) -> list[str]:
    """On how many tables livi meets each requirement; these were set before any result was seen."""
    ours = [row for row in rows if row["method"] == "livi"]
    numbers = [row for row in ours if row["task"] == "regression"]
    poor = [row["data"] for row in numbers if row["r2"] < 0]
    low, high = COVERAGE
    outside = [f"{row['data']} ({row['coverage']:.1%})" for row in numbers if not low <= row["coverage"] <= high]
    rivals = {(row["data"], row["split"]): row["log_score"] for row in rows if row["method"] == "boosting"}
    compared = [row for row in ours if (row["data"], row["split"]) in rivals]
    losses = [row["data"] for row in compared if row["log_score"] <= rivals[row["data"], row["split"]]]
    found = [
        f"R2 below 0: {', '.join(poor) or 'on none'} of {len(numbers)} regressions.",
        f"Coverage of {low:.0%} to {high:.0%}: on {len(numbers) - len(outside)} of {len(numbers)} regressions"
        f"{'; outside: ' + ', '.join(outside) if outside else ''}.",
    ]
    if compared:
        found.append(
            f"Log score better than boosting's: on {len(compared) - len(losses)} of {len(compared)} tables"
            f"{'; behind: ' + ', '.join(losses) if losses else ''}."
        )
        seconds = {name: mean(row["seconds"] for row in rows if row["method"] == name) for name in ("livi", "boosting")}
        found.append(f"Seconds a table, on average: livi {seconds['livi']:.0f}, boosting {seconds['boosting']:.1f}.")
    return found


def summary(rows: Rows) -> list[Row]:
    """For each table and method: mean, sd, min and max of every quantity over splits."""
    keys = dict.fromkeys((row["data"], row["method"], row["task"]) for row in rows)
    return [
        {"data": data, "method": method, "task": task}
        | {
            name: spread(
                [row[name] for row in rows if (row["data"], row["method"]) == (data, method) and row[name] is not None]
            )
            for name in QUANTITIES[task]
        }
        for data, method, task in keys
    ]


def line(row: Mapping[str, Any]) -> str:
    """One line about a row, for the progress of a run."""
    start = f"{row['data']} {row['method']} split {row['split']}: "
    if row["error"] is not None:
        return f"{start}{row['error'].splitlines()[0]}"
    names = QUANTITIES[row["task"]]
    return start + ", ".join(f"{TITLES[name].removesuffix(', %')} {_cell(name, row[name])}" for name in names)


def _cell(name: str, value: float | None, *, bold: bool = False) -> str:
    if value is None:
        return "–"
    if name in ("accuracy", "coverage", "worst_fifth"):
        return f"{100 * value:.1f}"
    shown = f"{value:.4g}" if name == "rmse" else f"{value:.1f}" if name == "seconds" else f"{value:.3f}"
    return f"**{shown}**" if bold else shown
