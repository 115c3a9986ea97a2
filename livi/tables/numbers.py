"""Columns of numbers that are written as text: read by a common notation, and errors that name the words among them."""

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
from livi.tables.wording import and_more, as_argument

Say = Callable[[str], None]
_NAMED_WORDS = 3  # words named in a message
MAX_DIFFERENT_WORDS = 10  # a column of numbers has more different numbers than this, and no more different words
SOME_NUMBERS_SHARE, MOST_NUMBERS_SHARE = 0.2, 0.8  # shares of numbers among the cells


def read_numbers(table: Table, names: Sequence[str], target: str, note: Say) -> tuple[Table, dict[str, Notation]]:
    """Read columns of numbers that are written with separators, currencies, percent signs or units.

    Returns:
        The table with numbers in those columns, and the notation of each.

    Raises:
        TableError: numbers that are written in two ways, such as 5% and 7.
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
            note(_on_notation(name, notation, shown))
    return replace(table, columns=columns), notations


def _on_notation(name: str, notation: Notation, shown: Sequence[str]) -> str:
    """A note on how a column's numbers are written, with an example."""
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
    """A column of another table, read with the notation of the fit; unchanged if that is None.

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
    """True for cells that are missing or a number in any notation."""
    return parsed(cells, lambda text: None if written(text) is None else 0.0)[1]


def words_among_numbers(cells: Cells) -> dict[str, int]:
    """Words in a column of numbers, with their counts; {} if the column is not one of numbers.

    A column of numbers has more than 10 different ones, and they are at least four fifths of the cells, or a fifth with
    at most 10 different words besides.
    """
    fine = readable(cells)
    present = np.array([bool(text) for text in cells.tolist()]) if cells.dtype == object else fine
    if fine.all():
        return {}
    words = counted(cells, fine)
    share = float(fine[present].mean())
    different = len(set(cells[fine & present].tolist()))
    few = len(words) <= MAX_DIFFERENT_WORDS and share >= SOME_NUMBERS_SHARE
    return words if different > MAX_DIFFERENT_WORDS and (share >= MOST_NUMBERS_SHARE or few) else {}


def counted(cells: Cells, fine: NDArray[np.bool_]) -> dict[str, int]:
    """The counts of the cells that are not fine, most frequent first."""
    return dict(Counter(cells[~fine].tolist()).most_common())


def listed_words(words: dict[str, int]) -> str:
    """Words and how often they occur: "'unknown' (30), 'n.v.' (2) and 4 more"."""
    return and_more([f"{word!r} ({count})" for word, count in list(words.items())[:_NAMED_WORDS]], len(words))


def as_gaps(words: dict[str, int]) -> str:
    """The option that reads these words as missing values, as it is typed in a shell.

    >>> print(as_gaps({"unknown": 3, "(none)": 2}), as_gaps({"no, thanks": 1}))
    --missing 'unknown,(none)' --missing '"no, thanks"'
    """
    return "--missing " + shlex.quote(
        ",".join(f'"{word}"' if "," in word else word for word in list(words)[:_NAMED_WORDS])
    )


def refuse_text(table: Table, name: str, fine: NDArray[np.bool_], remedy: str, *, gaps: bool = True) -> NoReturn:
    """Raise TableError about cells of a column of numbers that are not numbers: one value, or how many and which.

    Args:
        gaps: suggest to read the words as missing values, if the column has numbers besides.
    """
    row = int(np.argmin(fine))
    others = "" if fine.sum() < 2 else f" as in {int(fine.sum())} other rows"
    value = str(table.columns[name][row])
    words = counted(table.columns[name], fine)
    how = how_to_write(value)
    got = repr(value) if how or sum(words.values()) < 2 else f"{sum(words.values())} words: {listed_words(words)}"
    how = how or ("correct it" + (f", pass {as_gaps(words)} if that means a gap" if gaps and fine.any() else ""))
    raise table.error(f"expected a number{others}, got {got}; {how}, or {remedy}.", row=row, column=name)
