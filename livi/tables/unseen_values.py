"""Notes on values that the fit had not seen, collected over the parts of a table: each is said once, with its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from livi.tables.numbers import Say
from livi.tables.reading import Table
from livi.tables.wording import and_more

_NUM_NAMED = 3  # rows and values named in a message
_MAX_COUNTED_VALUES = 1_000  # different values counted, so that memory does not grow with the rows


@dataclass
class _Occurrences:
    lines: list[int] = field(default_factory=list)  # of the first rows
    count: int = 0  # of rows
    values: dict[str, None] = field(default_factory=dict)  # a set in order of occurrence

    def add(self, table: Table, rows: NDArray[np.bool_]) -> None:
        self.lines += table.lines[rows][: _NUM_NAMED - len(self.lines)].tolist()
        self.count += int(rows.sum())


class UnseenValues:
    """Collects what is unexpected in the parts of a table, until `tell` puts it in words."""

    def __init__(self) -> None:
        self._in_column: dict[tuple[str, str, str], _Occurrences] = {}  # by column, what and consequence
        self._texts: dict[str, None] = {}
        self._beyond: dict[tuple[str, str, str], _Occurrences] = {}  # by column and the ends of its range
        self._rows_beyond, self._name = 0, ""

    def note(self, text: str) -> None:
        """Add a sentence, which is said once however often it is added."""
        self._texts[text] = None

    def meet(
        self,
        table: Table,
        column: str,
        rows: NDArray[np.bool_],
        what: str,
        consequence: str,
        values: Sequence[str] = (),
    ) -> None:
        """Add what is unexpected in these rows of a column, its consequence, and the values if it is about values."""
        met = self._in_column.setdefault((f"{table.name}, column {column!r}", what, consequence), _Occurrences())
        met.add(table, rows)
        if len(met.values) < _MAX_COUNTED_VALUES:
            met.values.update(dict.fromkeys(values))

    def beyond(self, table: Table, columns: Mapping[tuple[str, str, str], NDArray[np.bool_]]) -> None:
        """Add rows far outside the range of the fit, by column and the ends of that range."""
        for column, rows in columns.items():
            self._beyond.setdefault(column, _Occurrences()).add(table, rows)
        if columns:
            self._rows_beyond += int(np.any(list(columns.values()), 0).sum())
            self._name = table.name

    def tell(self, say: Say) -> None:
        for text in self._texts:
            say(text)
        for (where, what, consequence), met in self._in_column.items():
            say(f"{where}, {_places(met)}: {what}{_listed(met.values)}; {consequence}")
        if self._beyond:
            say(self._outside())

    def _outside(self) -> str:
        """A sentence on all columns with rows outside their range, those with most rows first."""
        ordered = sorted(self._beyond.items(), key=lambda item: -item[1].count)
        shown = [
            f"{name!r} in {_places(met)} (beyond {low} to {high})" for (name, low, high), met in ordered[:_NUM_NAMED]
        ]
        columns = f" and {len(ordered) - _NUM_NAMED} more columns" if len(ordered) > _NUM_NAMED else ""
        rows = f"{self._rows_beyond:,} row{'s are' if self._rows_beyond > 1 else ' is'}"
        return (
            f"{self._name}: {rows} far outside the range of the rows fitted to, and predicted by extrapolation: "
            f"{', '.join(shown)}{columns}"
        )


def places(table: Table, rows: NDArray[np.bool_]) -> str:
    """These rows in words: "row 17", "rows 3, 5, 8 and 12 more"."""
    met = _Occurrences()
    met.add(table, rows)
    return _places(met)


def listed(names: Sequence[str]) -> str:
    """The first of these names: "'a', 'b', 'c' and 4 more"."""
    return and_more([repr(name) for name in names[:_NUM_NAMED]], len(names))


def _places(met: _Occurrences) -> str:
    return f"row{'s' if met.count > 1 else ''} {and_more(list(map(str, met.lines)), met.count)}"


def _listed(values: dict[str, None]) -> str:
    if len(values) >= _MAX_COUNTED_VALUES:
        return f": {', '.join(map(repr, list(values)[:_NUM_NAMED]))} and many more"
    return f": {listed(list(values))}" if values else ""
