"""The kinds of columns and the task, guessed from the cells by rules that options can overrule.

Columns:
    - numeric if every value that is not missing is a number, none of them infinite;
    - a date if every value is an ISO date; the model sees days since 1970;
    - otherwise categorical, True and False included. With more than 50 categories, or more than half as many as rows,
      it is dropped with a note, since it looks like an identifier or free text; if the user asked for it, that is an
      error. If four fifths of such a column are numbers, or a fifth and the rest are a few words, the words are likely
      mistakes or gaps: an error counts and names them.
    - A column with one value in all rows, or none at all, is dropped with a note.

Task:
    - classification if the target is not numeric, or holds at most 10 different whole numbers, in at least 5 rows each
      on average;
    - otherwise regression.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from livi.tables.content import Task
from livi.tables.numbers import MAX_DIFFERENT_WORDS, MOST_NUMBERS_SHARE, Say, readable, refuse_text, words_among_numbers
from livi.tables.reading import Table
from livi.tables.schema import Column, Dropped, Kind, Schema
from livi.tables.values import DATE_ADVICE, Cells, day, how_to_write, is_missing, labels, number, parsed
from livi.tables.wording import as_argument

MAX_CATEGORIES = 50
MAX_CLASSES = 100
MAX_CLASS_NUMBERS = MAX_DIFFERENT_WORDS  # different numbers that may be classes
MIN_CLASS_ROWS = 5  # that each of them must have on average
MAX_NUMBER = 1e100  # whose square is still a number
REACH_MARGIN = 0.2  # of the range of a column, by which values may lie beyond it without a note


def column_kinds(table: Table, names: Sequence[str], categorical: Sequence[str] = ()) -> dict[str, Kind]:
    """The kind of each named column, by all rows of the table.

    Raises:
        TableError: an infinite or huge number, or words in a column of numbers, with the row.
    """
    return {name: "categorical" if name in categorical else _kind(table, name) for name in names}


def _kind(table: Table, name: str) -> Kind:
    cells = table.columns[name]
    values, fine = parsed(cells, number)
    if fine.all():
        refuse_huge(table, name, values)
        return "numeric"
    if parsed(cells, day)[1].all():
        return "date"
    if len(set(labels(cells))) > _most_categories(len(table)) and words_among_numbers(cells):
        remedy = f"pass --categorical {as_argument(name)} if these are names, or --drop {as_argument(name)}"
        refuse_text(table, name, readable(cells), remedy)
    return "categorical"


def refuse_huge(table: Table, name: str, values: NDArray[np.float64]) -> None:
    """Raise TableError for the first number of a column that is infinite, or too large to compute with."""
    huge = np.abs(values) > MAX_NUMBER
    if huge.any():
        row = int(np.argmax(huge))
        got = table.columns[name][row]
        raise table.error(
            f"expected a number below {MAX_NUMBER:g}, got {got}; correct it or leave it empty.", row=row, column=name
        )


def _most_categories(rows: int) -> int:
    return min(MAX_CATEGORIES, max(2, rows // 2))


def learn_schema(
    table: Table, target: str, task: Task, kinds: dict[str, Kind], categorical: Sequence[str] = ()
) -> Schema:
    """The schema of a table: medians, categories and missing values of columns, and columns that are of no use.

    Args:
        kinds: of the columns to read, from `column_kinds`.
        categorical: columns that the user asked for as such: too many categories are an error, not a reason to drop it.

    Raises:
        TableError: no column is left, or one of `categorical` has too many categories.
    """
    columns: list[Column] = []
    dropped: list[Dropped] = []
    for name, kind in kinds.items():
        column = _column_facts(name, kind, table.columns[name])
        reason = _useless(column, table)
        if reason and name in categorical and len(column.categories) > 1:
            raise table.error(f"expected at most {_most_categories(len(table))} categories, got {reason}.", column=name)
        if reason:
            dropped.append(Dropped(name, reason))
        else:
            columns.append(column)
    if not columns:
        why = "; ".join(f"{column.name!r}: {column.reason}" for column in dropped) or "the target is the only one"
        raise table.error(f"expected a column to predict {target!r} from, got none ({why}).")
    classes = class_names(table.columns[target]) if task == "classification" else ()
    return Schema(target, task, tuple(columns), classes, tuple(dropped))


def _column_facts(name: str, kind: Kind, cells: Cells) -> Column:
    missing = is_missing(cells)
    if kind == "categorical":
        counts = Counter(value for value in labels(cells) if value)
        ordered = tuple(sorted(counts, key=lambda value: (-counts[value], value)))
        return Column(name, kind, int(missing.sum()), categories=ordered)
    values, _ = parsed(cells, number if kind == "numeric" else day)
    if missing.all():
        return Column(name, kind, int(missing.sum()))
    median = float(np.quantile(values[~missing], 0.5, method="lower"))
    return Column(name, kind, int(missing.sum()), median, reach=reach(values[~missing]))


def reach(values: NDArray[np.float64]) -> tuple[float, float]:
    """The range of these values, wider by a fifth of its width at both ends and rounded outwards.

    Values beyond it are unlike those of the fit. Rounding keeps the smallest and the largest value out of model files,
    though those of whole numbers in a narrow range can be worked out.

    >>> reach(np.array([21.3, 60.0, 198.6]))
    (-20.0, 240.0)
    """
    low, high = float(values.min()), float(values.max())
    width = max(high - low or abs(high) or 1.0, 1e-300)
    grid = 10.0 ** math.floor(math.log10(width) - 1.0)  # 1 to 10 % of the width
    return math.floor((low - REACH_MARGIN * width) / grid) * grid, math.ceil(
        (high + REACH_MARGIN * width) / grid
    ) * grid


def _useless(column: Column, table: Table) -> str:
    """Why a column is of no use to the model; "" if it may be of use."""
    if column.missing == len(table):
        return "no values"
    if column.kind == "categorical":
        if len(column.categories) == 1 and not column.missing:
            return f"the same value in all rows, {column.categories[0]!r}"
        if len(column.categories) > _most_categories(len(table)):
            how = how_to_write(column.categories[0])
            why = f"such as {column.categories[0]!r}; {how}" if how else "like a name or an identifier"
            return f"{len(column.categories)} different values in {len(table)} rows, {why}"
        return ""
    values, _ = parsed(table.columns[column.name], number if column.kind == "numeric" else day)
    present = values[~np.isnan(values)]
    return "" if column.missing or (present != present[0]).any() else f"the same value in all rows, {present[0]:g}"


# --- the target -----------------------------------------------------------------------------------


def choose_task(table: Table, target: str, wanted: Task | None, say: Say) -> Task:
    """Regression or classification, from a target without missing values; `say` hears if numbers become classes.

    Raises:
        TableError: the target suits neither task, or not the wanted one; with the row where one is to blame.
    """
    cells = table.columns[target]
    values, fine = parsed(cells, number)
    different = len(set(labels(cells)))
    mostly = bool(fine.mean() >= MOST_NUMBERS_SHARE and len(np.unique(values[fine])) > MAX_CLASS_NUMBERS)
    words = words_among_numbers(cells)
    if not fine.all() and (wanted == "regression" or (wanted is None and (mostly or words))):
        blamed = fine if readable(cells).all() else readable(cells)
        refuse_text(table, target, blamed, "leave it empty to drop the row, or pass --task classification")
    if different < 2:
        raise table.error(
            f"expected a target that varies, got {str(cells[0])!r} in all rows; choose another --target.", column=target
        )
    few = different <= MAX_CLASS_NUMBERS and len(table) >= MIN_CLASS_ROWS * different
    task: Task = wanted or ("classification" if not fine.all() or (few and _whole(values)) else "regression")
    if task == "regression":
        refuse_huge(table, target, values)
    elif different > MAX_CLASSES or different > max(2, len(table) // 2):
        how = how_to_write(str(cells[0])) or "choose another target, or --task regression if they are numbers"
        if how == DATE_ADVICE or (not fine.all() and parsed(cells, day)[1].all()):
            how = "dates cannot be predicted; write the days since some date as a number"
        raise table.error(
            f"expected at most {min(MAX_CLASSES, max(2, len(table) // 2))} classes for {len(table)} rows, got "
            f"{different}, {str(cells[0])!r} among them; {how}.",
            column=target,
        )
    elif wanted is None and fine.all():
        say(
            f"{target!r} has {different} different whole numbers, taken as classes; pass --task regression to "
            "predict a quantity."
        )
    return task


def _whole(values: NDArray[np.float64]) -> bool:
    return bool((np.isfinite(values) & (values == np.round(values))).all())


def class_names(cells: Cells) -> tuple[str, ...]:
    """The classes of a target, sorted by value if all are numbers, else by name."""
    names = sorted(set(labels(cells)))
    values = [number(name) for name in names]
    if all(value is not None for value in values):
        names.sort(key=lambda name: (float(name), name))
    return tuple(names)
