"""What a fit had not seen, met in a table or in parts of one: each is said once, with the first of its places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from livi.tables.numbers import Say
from livi.tables.reading import Table

_NAMED = 3  # places and values named in a message
_KEPT = 1_000  # different values counted; what is kept must not grow with the rows


@dataclass
class _Met:
    lines: list[int] = field(default_factory=list)  # the first of them
    count: int = 0
    values: dict[str, None] = field(default_factory=dict)  # in the order in which they were met


class Surprises:
    """Collects what is met, part by part, until it is told."""

    def __init__(self) -> None:
        self._met: dict[tuple[str, str, str], _Met] = {}  # by where, what and consequence
        self._said: dict[str, None] = {}
        self._beyond: dict[tuple[str, str, str], _Met] = {}  # by column, and from where to where it was fitted
        self._rows_beyond, self._name = 0, ""

    def note(self, text: str) -> None:
        """Something that has no place, and is said once however often it is met."""
        self._said[text] = None

    def meet(
        self,
        table: Table,
        column: str,
        rows: NDArray[np.bool_],
        what: str,
        consequence: str,
        values: Sequence[str] = (),
    ) -> None:
        """Something about these rows of a column, with the values that were met there, if it is about values."""
        met = self._met.setdefault((f"{table.name}, column {column!r}", what, consequence), _Met())
        met.lines += table.lines[rows][: _NAMED - len(met.lines)].tolist()
        met.count += int(rows.sum())
        if len(met.values) < _KEPT:
            met.values.update(dict.fromkeys(values))

    def beyond(self, table: Table, columns: Mapping[tuple[str, str, str], NDArray[np.bool_]]) -> None:
        """Rows that are far outside the range of the fit, by column, with the ends of that range."""
        for place, rows in columns.items():
            met = self._beyond.setdefault(place, _Met())
            met.lines += table.lines[rows][: _NAMED - len(met.lines)].tolist()
            met.count += int(rows.sum())
        if columns:
            self._rows_beyond += int(np.any(list(columns.values()), 0).sum())
            self._name = table.name

    def tell(self, say: Say) -> None:
        for text in self._said:
            say(text)
        for (where, what, consequence), met in self._met.items():
            say(f"{where}, {_places(met)}: {what}{_listed(met.values)}; {consequence}")
        if self._beyond:
            say(self._outside())

    def _outside(self) -> str:
        """One sentence for all columns, those with most rows first."""
        ordered = sorted(self._beyond.items(), key=lambda item: -item[1].count)
        shown = [f"{name!r} in {_places(met)} (beyond {low} to {high})" for (name, low, high), met in ordered[:_NAMED]]
        columns = f" and {len(ordered) - _NAMED} more columns" if len(ordered) > _NAMED else ""
        rows = f"{self._rows_beyond:,} row{'s are' if self._rows_beyond > 1 else ' is'}"
        return (
            f"{self._name}: {rows} far outside the range of the rows fitted to, and predicted by extrapolation: "
            f"{', '.join(shown)}{columns}"
        )


def places(table: Table, rows: NDArray[np.bool_]) -> str:
    """Where these rows are: "row 17", "rows 3, 5, 8 and 12 more"."""
    return _places(_Met(table.lines[rows][:_NAMED].tolist(), int(rows.sum())))


def listed(names: Sequence[str]) -> str:
    """The first of these names: "'a', 'b', 'c' and 4 more"."""
    return _with_more([repr(name) for name in names[:_NAMED]], len(names))


def _places(met: _Met) -> str:
    return f"row{'s' if met.count > 1 else ''} {_with_more(list(map(str, met.lines)), met.count)}"


def _listed(values: dict[str, None]) -> str:
    if len(values) >= _KEPT:
        return f": {', '.join(map(repr, list(values)[:_NAMED]))} and many more"
    return f": {listed(list(values))}" if values else ""


def _with_more(shown: Sequence[str], count: int) -> str:
    return ", ".join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "")
