"""Encoding of tables as features by a schema, each row independently of the others.

Policy for what the model has not seen:

- A missing number becomes the column's median, with a second feature that says so, if some were missing in the fit. If
  none were, it stays open: the prediction averages over the values that the fit has seen there. A missing category is a
  category of its own if some were missing in the fit, else it counts as unknown.
- An unknown category sets none of its column's features, so that the prediction rests on the other columns.
- A number or date beyond those of the fit by more than a fifth of their range is used as it is.
- A missing column is an error, an extra one is ignored, and the order of columns does not matter.

Notes report all of this, with the rows; in strict mode unknown categories and unexpected gaps are errors.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from livi.tables.detection import refuse_huge
from livi.tables.numbers import Say, in_notation, listed_words, refuse_text
from livi.tables.reading import Table
from livi.tables.schema import MISSING_CATEGORY, Column, Schema
from livi.tables.unseen_values import UnseenValues, listed, places
from livi.tables.values import day, how_to_write, is_missing, labels, number, parsed


def encode(
    table: Table, schema: Schema, say: Say, *, strict: bool = False, missing_as_nan: bool = False
) -> NDArray[np.float64]:  # (n, features)
    """The table's rows as features; `say` hears of everything in them that the fit had not seen."""
    unseen = UnseenValues()
    features = encode_part(table, schema, unseen, strict=strict, missing_as_nan=missing_as_nan)
    unseen.tell(say)
    return features


def encode_part(
    table: Table, schema: Schema, unseen: UnseenValues, *, strict: bool = False, missing_as_nan: bool = False
) -> NDArray[np.float64]:  # (n, features)
    """Some rows of a table as features; what the fit had not seen is added to `unseen`.

    Args:
        missing_as_nan: encode numbers as NaN that are missing, but never were in the fit; else as the column's median.

    Raises:
        TableError: a missing column, a value that does not parse; with `strict`, an unknown category, or a value
            missing in a column where none was missing in the fit.
    """
    absent = [column.name for column in schema.columns if column.name not in table.columns]
    if absent:
        names = ", ".join(repr(name) for name in absent)
        near = difflib.get_close_matches(absent[0].lower(), {name.lower(): name for name in table.columns}, 1)
        hint = next((f" such as {name!r}" for name in table.columns if name.lower() in near), "")
        raise table.error(f"expected the columns of the fit, got none named {names}; add it, or rename a column{hint}.")
    _note_extra(table, schema, unseen)
    blocks = [
        _categories(table, column, unseen, strict)
        if column.kind == "categorical"
        else _numbers(table, column, unseen, strict, missing_as_nan)
        for column in schema.columns
    ]
    _note_outside(table, schema, blocks, unseen)
    return np.concatenate(blocks, 1)


def target_numbers(table: Table, schema: Schema) -> NDArray[np.float64]:  # (n,)
    """The targets of a regression. Raises TableError if one is missing or not a number."""
    _refuse_gaps(table, schema)
    values, fine = parsed(in_notation(table, schema.target, schema.notation, _ignore), number)
    if not fine.all():
        refuse_text(table, schema.target, fine, "leave the row out", gaps=False)
    refuse_huge(table, schema.target, values)
    return values


def target_classes(table: Table, schema: Schema) -> NDArray[np.int64]:  # (n,)
    """The targets of a classification, as indices into `schema.classes`. Raises TableError if missing or unknown."""
    _refuse_gaps(table, schema)
    order = {name: place for place, name in enumerate(schema.classes)}
    cells = in_notation(table, schema.target, schema.notation, _ignore)
    found = [order.get(name, -1) for name in labels(cells)]
    if -1 in found:
        row = found.index(-1)
        known = ", ".join(schema.classes[:5]) + (", ..." if len(schema.classes) > 5 else "")
        got = str(table.columns[schema.target][row])
        raise table.error(f"expected a class of the fit ({known}), got {got!r}.", row=row, column=schema.target)
    return np.array(found, np.int64)


def with_known_target(table: Table, schema: Schema, say: Say) -> tuple[NDArray[np.bool_], str]:  # (n,)
    """Which rows have a target to compare with, and the others in words; `say` hears of these too.

    All rows where none has one, since that is a mistake in the table, which reading its targets will name.
    """
    everything = np.ones(len(table), np.bool_), ""
    if schema.target not in table.columns:
        return everything
    missing, foreign = is_missing(table.columns[schema.target]), np.zeros(len(table), np.bool_)
    names: list[str] = []
    if schema.classes:
        names = labels(in_notation(table, schema.target, schema.notation, _ignore))
        foreign = np.array([bool(name) and name not in schema.classes for name in names], np.bool_)
    if (missing | foreign).all():
        return everything
    left_out = []
    if missing.any():
        left_out.append(f"{int(missing.sum()):,} that have no {schema.target!r}")
        say(f"{table.name}: left out: {int(missing.sum()):,} of {len(table):,} rows, which have no {schema.target!r}")
    if foreign.any():
        left_out.append(f"{int(foreign.sum()):,} of classes that the fit has not seen")
        counts = Counter(name for name, unseen in zip(names, foreign, strict=True) if unseen)
        rows = f"{int(foreign.sum()):,} of {len(table):,} rows"
        shown = listed_words(dict(counts.most_common()))
        say(f"{table.name}: left out: {rows}, of classes not seen in the fit: {shown}")
    return ~(missing | foreign), " and ".join(left_out)


def _ignore(_: str) -> None:
    pass


def _refuse_gaps(table: Table, schema: Schema) -> None:
    if schema.target not in table.columns:
        raise table.error(
            f"expected the target {schema.target!r} among the columns, got {listed(list(table.columns))}."
        )
    missing = is_missing(table.columns[schema.target])
    if missing.any():
        row = int(np.argmax(missing))
        raise table.error("expected a value, got none; leave the row out.", row=row, column=schema.target)


def with_medians(features: NDArray[np.float64], schema: Schema) -> NDArray[np.float64]:  # (n, features)
    """The features with medians in place of NaN, for models that cannot average over the missing values."""
    medians = [
        column.median if place == 0 else 0.0 for column in schema.columns for place in range(len(column.features))
    ]
    return np.where(np.isnan(features), np.array(medians), features)


def _numbers(
    table: Table, column: Column, unseen: UnseenValues, strict: bool, missing_as_nan: bool
) -> NDArray[np.float64]:  # (n, 1 or 2)
    cells = in_notation(table, column.name, column.notation, unseen.note)
    values, fine = parsed(cells, number if column.kind == "numeric" else day)
    if not fine.all():
        row = int(np.argmin(fine))
        expected = "a number" if column.kind == "numeric" else "a date such as 2024-02-29"
        how = how_to_write(str(cells[row])) or "correct it"
        raise table.error(
            f"expected {expected}, got {cells[row]!r}; {how} or leave it empty.", row=row, column=column.name
        )
    refuse_huge(table, column.name, values)
    missing = np.isnan(values)
    if missing.any() and not column.missing:
        what = "missing, but never in the fit"
        _refuse_unseen(table, column, missing, what, strict)
        median = f"the median {_shown(column.median, column)} stands in"
        average = "predictions average over the values that the fit has seen there"
        unseen.meet(table, column.name, missing, what, average if missing_as_nan else median)
        if missing_as_nan:
            return values[:, None]
    filled = np.where(missing, column.median, values)
    return np.stack([filled, missing.astype(np.float64)], 1) if column.missing else filled[:, None]


def _categories(
    table: Table, column: Column, unseen: UnseenValues, strict: bool
) -> NDArray[np.float64]:  # (n, categories)
    known = [*column.categories, *([MISSING_CATEGORY] if column.missing else [])]
    order = {name: place for place, name in enumerate(column.categories)}
    if column.missing:
        order[""] = len(known) - 1
    names = labels(table.columns[column.name])
    found = np.array([order.get(name, -1) for name in names], np.int64)
    new = found < 0
    if new.any():
        different = list(
            dict.fromkeys(name or MISSING_CATEGORY for name, fresh in zip(names, new, strict=True) if fresh)
        )
        _refuse_unseen(table, column, new, f"not seen in the fit: {listed(different)}", strict)
        plain = {name.casefold(): name for name in column.categories}
        alike = [f"{name!r} for {plain[name.casefold()]!r}" for name in different if name.casefold() in plain]
        consequence = "the prediction rests on the other columns" + (f" ({', '.join(alike[:3])}?)" if alike else "")
        unseen.meet(table, column.name, new, "not seen in the fit", consequence, different)
    features = np.zeros((len(table), len(known)))
    features[np.flatnonzero(~new), found[~new]] = 1.0
    return features


def _refuse_unseen(table: Table, column: Column, rows: NDArray[np.bool_], what: str, strict: bool) -> None:
    if strict:
        raise table.error(f"{places(table, rows)}: {what}; drop --strict to go on.", column=column.name)


def _note_outside(table: Table, schema: Schema, blocks: list[NDArray[np.float64]], unseen: UnseenValues) -> None:
    outside = {
        (column.name, _shown(column.reach[0], column), _shown(column.reach[1], column)): rows
        for column, block in zip(schema.columns, blocks, strict=True)
        if column.reach and (rows := (block[:, 0] < column.reach[0]) | (block[:, 0] > column.reach[1])).any()
    }
    unseen.beyond(table, outside)


def _shown(value: float, column: Column) -> str:
    return f"{value:g}" if column.kind == "numeric" else str(np.datetime64(math.floor(value), "D"))


def _note_extra(table: Table, schema: Schema, unseen: UnseenValues) -> None:
    known = {schema.target, *(facts.name for facts in schema.column_facts)}
    extra = [name for name in table.columns if name not in known]
    if extra:
        unseen.note(f"{table.name}: ignored, since the fit had no such column: {listed(extra)}")
