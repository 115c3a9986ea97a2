"""Tables of run time and memory as Markdown, with the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from livi.experiments.rows import Rows, first_line, listed, succeeded
from livi.experiments.scoreboard import Column, Kind, markdown, table

COLUMNS = (
    Column("seconds", "s", "lower", 1),
    Column("memory", "MB at the most", "lower", 0),
    Column("memory_of_fit", "of which the fit", None, 0),
    Column("nll", "NLL", "lower", 4),
    Column("accuracy", "accuracy, %", "higher", 2, percent=True),
    Column("gradients", "gradients", None, 0),
    Column("whole_seconds", "s of all lengths", None, 0),
)
KIND = Kind("Run time and memory until validation NLL stops falling", "problem", "seed", {"": COLUMNS})
# Runtime analysis in the supplement of Uppal et al. (2023), NVIDIA RTX A4000, MNIST: minutes, GB.
PAPER = {
    "AVB": (64.1, 2.63),
    "mean field": (10.2, 0.81),
    "LIVI (L'')": (12.3, 0.93),
    "ensemble of 5": (15.6, 0.60),
    "MNF": (18.7, 1.77),
}
LEGEND = """\
s: seconds of the shortest fit that one of twice the gradients did not improve on, by more than a standard error of the
NLL of validation images. MB: tensors on a GPU, else the whole process; of which the fit: beyond what images and PyTorch
took before it began."""


def text(document: Mapping[str, Any]) -> str:
    """The whole report: the table, the paper's, and the notes."""
    rows = succeeded(document["rows"])
    parts = ["## Until validation NLL stops falling: LeNet on MNIST", table(rows, KIND, COLUMNS)] if rows else []
    parts += [KIND.legend(), LEGEND] if rows else []
    parts += ["## The paper's numbers", paper_table()]
    notes = [*document["notes"], *_still_improving(rows), *KIND.messages(document["rows"])]
    return "\n\n".join([*parts, "## Notes", listed(notes)])


def paper_table() -> str:
    lines = [[name, f"{minutes:g}", f"{memory:g}"] for name, (minutes, memory) in PAPER.items()]
    return markdown(["Uppal et al. (2023), RTX A4000", "minutes", "GB"], lines)


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


def _still_improving(rows: Rows) -> list[str]:
    return [
        f"{row['method']} ({row['seed']}): still improving at {row['gradients']:,} gradients, the most that were tried."
        for row in rows
        if not row["settled"]
    ]
