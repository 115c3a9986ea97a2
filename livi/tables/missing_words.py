"""Missing values by words that the user names, such as unknown or -999, besides those of `values.MISSING`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from livi.tables.numbers import Say
from livi.tables.reading import Table
from livi.tables.values import Cells, number, texts


def with_missing(table: Table, words: Sequence[str], note: Say | None = None) -> Table:
    """The table with cells made missing that equal one of these words, in upper or lower case, or as a number.

    Args:
        note: called with a note on words that no cell equals.
    """
    if not words:
        return table
    names = {word.strip().lower() for word in words}
    values = {value for word in words if (value := number(word.strip())) is not None}
    met: set[str | float] = set()
    columns = {name: _without(cells, names, values, met) for name, cells in table.columns.items()}
    absent = [word for word in words if word.strip().lower() not in met and number(word.strip()) not in met]
    if absent and note is not None:
        note(f"--missing: no cell is {' or '.join(map(repr, absent))}")
    return replace(table, columns=columns)


def _without(cells: Cells, names: set[str], values: set[float], met: set[str | float]) -> Cells:
    if cells.dtype != object:
        gone = np.isin(cells.astype(np.float64), sorted(values))
        met.update(np.unique(cells[gone]).tolist())
        return np.where(gone, np.nan, cells)
    left = []
    for text in cells.tolist():
        value = number(text) if values else None
        found = text.lower() if text.lower() in names else value if value in values else None
        if found is not None:
            met.add(found)
        left.append(text if found is None else "")
    return texts(left)
