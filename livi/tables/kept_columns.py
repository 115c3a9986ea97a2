"""Files that `livi predict --keep` writes: predictions and the columns they were made from, side by side.

Predictions have the same names whatever the data. A column of the data whose name is taken gets " (input)" appended.
When such a file is read again, by `predict` or `evaluate`, the predictions are left out and that column has its own
name again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from livi.tables.numbers import Say
from livi.tables.reading import Table
from livi.tables.schema import Schema
from livi.tables.unseen_values import listed
from livi.tables.values import Cells

INPUT = " (input)"


def kept_titles(table: Table, predicted: Sequence[str]) -> dict[str, str]:
    """By column of a table, its name in a file that has predictions of these names too."""
    taken = set(predicted)
    titles = {}
    for name in table.columns:
        title = name
        while title in taken:
            title += INPUT
        titles[name] = title
        taken.add(title)
    return titles


def note_titles(table: Table, predicted: Sequence[str], note: Say) -> None:
    for name, title in kept_titles(table, predicted).items():
        if title != name:
            note(f"{table.name}: column {name!r} is written as {title!r}, for {name!r} is a column of the predictions")


def without_predictions(table: Table, predicted: Sequence[str], schema: Schema, note: Say) -> Table:
    """The table without predictions of these names, and with its other columns under their own names again.

    A table without such predictions is returned unchanged. So are columns of these names that are inputs of the model,
    as they are if it was fitted to a file of predictions, unless an " (input)" column shows that they are predictions.
    """
    known = {schema.target, *(facts.name for facts in schema.column_facts)}
    if not set(predicted) <= set(table.columns):
        return table
    if known.issuperset(predicted) and not any(name + INPUT in table.columns for name in predicted):
        return table
    columns: dict[str, Cells] = {}
    titles = {}
    for title, cells in table.columns.items():
        if title in predicted:
            continue
        name = _own_name(title, table, known - set(columns)) if _was_renamed(title, predicted) else title
        columns[name], titles[name] = cells, title
    how = "".join(f"; {title!r} is read as {name!r}" for name, title in titles.items() if title != name)
    note(f"{table.name}: ignored, for they are predictions by livi: {listed(list(predicted))}{how}")
    whole = frozenset(name for name, title in titles.items() if title in table.whole)
    return replace(table, columns=columns, whole=whole)


def _was_renamed(title: str, predicted: Sequence[str]) -> bool:
    """Whether the title may be that of a column that was renamed because a prediction has its name."""
    while title.endswith(INPUT):
        title = title.removesuffix(INPUT)
    return title in predicted


def _own_name(title: str, table: Table, known: set[str]) -> str:
    """The shortest name known to the fit from which a column of this title may have been renamed."""
    found, name = title, title
    while name.endswith(INPUT) and name.removesuffix(INPUT) in table.columns:
        name = name.removesuffix(INPUT)
        found = name if name in known else found
    return found
