"""Tables of run time and memory as Markdown, with the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from livi.experiments.rows import Row, Rows, first_line, spread, succeeded
from livi.experiments.scoreboard import Column, board, cells, markdown

COLUMNS = (
    Column("seconds", "s", "lower", 1),
    Column("memory", "MB at the most", "lower", 0),
    Column("memory_of_fit", "of which the fit", None, 0),
    Column("nll", "NLL", "lower", 4),
    Column("accuracy", "accuracy, %", "higher", 2, percent=True),
    Column("gradients", "gradients", None, 0),
    Column("whole_seconds", "s of all lengths", None, 0),
)
# Runtime analysis in the supplement of Uppal et al. (2023), NVIDIA RTX A4000, MNIST: minutes, GB.
PAPER = {
    "AVB": (64.1, 2.63),
    "mean field": (10.2, 0.81),
    "LIVI (L'')": (12.3, 0.93),
    "ensemble of 5": (15.6, 0.60),
    "MNF": (18.7, 1.77),
}
LEGEND = """\
Mean ± standard error over seeds. s: seconds of the shortest fit that one of twice the gradients did not improve on, by
more than a standard error of the NLL of validation images. MB: tensors on a GPU, else the whole process; of which the
fit: beyond what images and PyTorch took before it began."""


def text(document: Mapping[str, Any]) -> str:
    """The whole report: the table, the paper's, and the notes."""
    rows = succeeded(document["rows"])
    parts = ["## Until validation NLL stops falling: LeNet on MNIST", table(rows), LEGEND] if rows else []
    parts += ["## The paper's numbers", paper_table()]
    notes = [*document["notes"], *_messages(document["rows"])]
    return "\n\n".join([*parts, "## Notes", "\n".join(f"- {sentence}" for sentence in notes)])


def table(rows: Rows) -> str:
    boards = {column: board(rows, column.name, place="problem", repeat="seed") for column in COLUMNS}
    columns = {column: cells(next(iter(found.values())), column) for column, found in boards.items() if found}
    lines = [
        [
            method,
            f"{sum(row['method'] == method for row in rows)}",
            *(found.get(method, "–") for found in columns.values()),
        ]
        for method in dict.fromkeys(row["method"] for row in rows)
    ]
    return markdown(["method", "seeds", *(column.title for column in columns)], lines)


def paper_table() -> str:
    lines = [[name, f"{minutes:g}", f"{memory:g}"] for name, (minutes, memory) in PAPER.items()]
    return markdown(["Uppal et al. (2023), RTX A4000", "minutes", "GB"], lines)


def summary(rows: Rows) -> list[Row]:
    """For each method the number of seeds, and mean, sd, min and max over them of every quantity."""
    methods = dict.fromkeys(row["method"] for row in rows)
    groups = {name: [row for row in succeeded(rows) if row["method"] == name] for name in methods}
    return [
        {"method": method, "seeds": len(group)}
        | {
            column.name: spread([row[column.name] for row in group if row[column.name] is not None])
            for column in COLUMNS
        }
        for method, group in groups.items()
    ]


def line(row: Mapping[str, Any]) -> str:
    """One line about a method, for the progress of a run."""
    start = f"{row['method']} seed {row['seed']}: "
    if row["error"] is not None:
        return f"{start}failed: {first_line(row['error'])}"
    return f"{start}{fit_line(row)}" + ("" if row["settled"] else ", and was still improving")


def fit_line(row: Mapping[str, Any]) -> str:
    """One line about a single fit."""
    if row["error"] is not None:
        return f"{row['gradients']:,} gradients: failed: {first_line(row['error'])}"
    memory = "" if row["memory"] is None else f", {row['memory']:,.0f} MB"
    return f"{row['gradients']:,} gradients: NLL {row['nll']:.4f} in {row['seconds']:.1f} s{memory}"


def _messages(rows: Rows) -> list[str]:
    """Notes on single methods: failures, fits that were still improving, warnings."""
    found = []
    for row in rows:
        name = f"{row['method']} ({row['seed']})"
        if row["error"] is not None:
            found.append(f"{name}: failed: {first_line(row['error'])}")
        elif not row["settled"]:
            found.append(f"{name}: still improving at {row['gradients']:,} gradients, the most that were tried.")
        found += [f"{name}: {first_line(message)}" for message in row["warnings"]]
    return found
