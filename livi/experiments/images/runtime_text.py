"""Run time and memory in words, beside the paper's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from livi.experiments.rows import Row, spread
from livi.experiments.scoreboard import Column, board, cells, markdown

Rows = Sequence[Mapping[str, Any]]

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
    """The table, the paper's, and the notes."""
    rows = [row for row in document["rows"] if row["error"] is None]
    parts = ["## Until validation NLL stops falling: LeNet on MNIST", table(rows), LEGEND] if rows else []
    parts += ["## The paper's numbers", paper_table()]
    said = [*document["notes"], *_messages(document["rows"])]
    return "\n\n".join([*parts, "## Notes", "\n".join(f"- {sentence}" for sentence in said)])


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
    """For each method the number of seeds, and the spread over them of every number."""
    methods = dict.fromkeys(row["method"] for row in rows)
    sound = {name: [row for row in rows if row["method"] == name and row["error"] is None] for name in methods}
    return [
        {"method": method, "seeds": len(group)}
        | {
            column.name: spread([row[column.name] for row in group if row[column.name] is not None])
            for column in COLUMNS
        }
        for method, group in sound.items()
    ]


def line(row: Mapping[str, Any]) -> str:
    """One method in a few words."""
    told = f"{row['method']} seed {row['seed']}: "
    if row["error"] is not None:
        return f"{told}failed: {_first_line(row['error'])}"
    return f"{told}{rung(row)}" + ("" if row["settled"] else ", and was still improving")


def rung(row: Mapping[str, Any]) -> str:
    """One fit in a few words."""
    if row["error"] is not None:
        return f"{row['gradients']:,} gradients: failed: {_first_line(row['error'])}"
    memory = "" if row["memory"] is None else f", {row['memory']:,.0f} MB"
    return f"{row['gradients']:,} gradients: NLL {row['nll']:.4f} in {row['seconds']:.1f} s{memory}"


def _messages(rows: Rows) -> list[str]:
    """What a reader has to know of single methods: failures, fits that might have gone on, warnings."""
    found = []
    for row in rows:
        name = f"{row['method']} ({row['seed']})"
        if row["error"] is not None:
            found.append(f"{name}: failed: {_first_line(row['error'])}")
        elif not row["settled"]:
            found.append(f"{name}: still improving at {row['gradients']:,} gradients, the most that were tried.")
        found += [f"{name}: {_first_line(message)}" for message in row["warnings"]]
    return found


def _first_line(message: str) -> str:
    return (message.strip().splitlines() or ["no words"])[0]
