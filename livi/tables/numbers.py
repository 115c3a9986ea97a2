"""Columns of numbers as numbers: by the notation of the fit, and with the words among them named."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from livi.tables.notation import CURRENCIES, Notation, could_be_decimals, in_common, written
from livi.tables.reading import Table
from livi.tables.values import Cells, how_to_write, number, parsed
from livi.tables.wording import as_argument

Say = Callable[[str], None]
_NAMED = 3  # words named in a message


def read_numbers(table: Table, names: Sequence[str], target: str, note: Say) -> tuple[Table, dict[str, Notation]]:
    """The table with numbers in place of the columns that show them by separators, currencies, percent or units.

    Raises:
        TableError: numbers that are written in two ways, such as 5% beside 7.
    """
    columns, notations = dict(table.columns), {}
    for name in names:
        cells = columns[name]
        if parsed(cells, number)[1].all():
            continue
        shown = cells.tolist()
        notation, mixed = in_common(shown)
        if mixed:
            other = "--task classification" if name == target else f"--categorical {as_argument(name)}"
            raise table.error(
                f"expected numbers that are written in one way, got {mixed}; correct them, or pass {other} if these "
                "are names.",
                column=name,
            )
        if notation is not None:
            columns[name] = parsed(cells, notation.read)[0]
            notations[name] = notation
            note(_said(name, notation, shown))
    return replace(table, columns=columns), notations


def _said(name: str, notation: Notation, shown: Sequence[str]) -> str:
    traits = [] if not notation.unit else ["percent" if notation.unit == "%" else f"in {notation.unit}"]
    sign = {",": "commas", "'": "apostrophes", " ": "blanks"}.get(notation.thousands)
    traits += [f"{sign} between thousands"] if sign else []
    traits += ["brackets for negative numbers"] if any(text.endswith(")") for text in shown) else []
    value = notation.read(notation.example)
    how = ", ".join(traits or ["signs aside"])
    text = f"column {name!r} is read as numbers, {how}: {notation.example!r} is {value:.12g}"
    doubtful = notation.thousands == "," and could_be_decimals(shown)
    return text + ("; if that comma is a decimal one, pass --decimal comma" if doubtful else "")


def in_notation(table: Table, name: str, notation: Notation | None, say: Say) -> Cells:
    """A column of another table as the fit read it: numbers where it has a notation, else as it is.

    Raises:
        TableError: a cell that is written differently, with the row.
    """
    cells = table.columns[name]
    if notation is None:
        return cells
    if cells.dtype != object:
        if notation.unit and notation.unit not in CURRENCIES:
            say(f"{table.name}, column {name!r}: numbers without a unit, taken for {notation.unit!r} as in the fit")
        return cells
    values, fine = parsed(cells, notation.read)
    if not fine.all():
        row = int(np.argmin(fine))
        raise table.error(
            f"expected a number as it was written in the fit ({notation.example!r}), got {cells[row]!r}; write it so, "
            "or leave it empty.",
            row=row,
            column=name,
        )
    return values


# --- words among numbers --------------------------------------------------------------------------


def readable(cells: Cells) -> NDArray[np.bool_]:
    """Where a cell is missing or shows a number, however it is written."""
    return parsed(cells, lambda text: None if written(text) is None else 0.0)[1]


def words_among_numbers(cells: Cells) -> dict[str, int]:
    """Words that keep a column from being one of numbers, with their counts; none if it is not mostly of numbers.

    That is so where at least four fifths of the cells are numbers, or a fifth and all others are a few words.
    """
    fine = readable(cells)
    present = np.array([bool(text) for text in cells.tolist()]) if cells.dtype == object else fine
    if fine.all():
        return {}
    words = counted(cells, fine)
    share = float(fine[present].mean())
    different = len(set(cells[fine & present].tolist()))
    few = len(words) <= MANY and share >= SOME
    return words if different > MANY and (share >= MOSTLY or few) else {}


MANY = 10  # different numbers, of which a column of numbers has more, and different words, of which it has no more
SOME, MOSTLY = 0.2, 0.8


def counted(cells: Cells, fine: NDArray[np.bool_]) -> dict[str, int]:
    """The cells that are not fine, most frequent first."""
    return dict(Counter(cells[~fine].tolist()).most_common())


def listed_words(words: dict[str, int]) -> str:
    """Words and how often they occur: "'unknown' (30), 'n.v.' (2) and 4 more"."""
    shown = ", ".join(f"{word!r} ({count})" for word, count in list(words.items())[:_NAMED])
    return shown + (f" and {len(words) - _NAMED} more" if len(words) > _NAMED else "")


def as_gaps(words: dict[str, int]) -> str:
    """The option that makes gaps of these words, as it is typed in a shell.

    >>> print(as_gaps({"unknown": 3, "(none)": 2}), as_gaps({"no, thanks": 1}))
    --missing 'unknown,(none)' --missing '"no, thanks"'
    """
    return "--missing " + shlex.quote(",".join(f'"{word}"' if "," in word else word for word in list(words)[:_NAMED]))


def refuse_text(table: Table, name: str, fine: NDArray[np.bool_], remedy: str, *, gaps: bool = True) -> NoReturn:
    """The error about what is no number in a column of numbers: one value, or how many and which.

    Args:
        gaps: whether words may still be said to be gaps; where there is no number, nothing would be left.
    """
    row = int(np.argmin(fine))
    others = "" if fine.sum() < 2 else f" as in {int(fine.sum())} other rows"
    value = str(table.columns[name][row])
    words = counted(table.columns[name], fine)
    how = how_to_write(value)
    got = repr(value) if how or sum(words.values()) < 2 else f"{sum(words.values())} words: {listed_words(words)}"
    how = how or ("correct it" + (f", pass {as_gaps(words)} if that means a gap" if gaps and fine.any() else ""))
    raise table.error(f"expected a number{others}, got {got}; {how}, or {remedy}.", row=row, column=name)
