"""Suspicious columns and values: row numbers, columns that give the target away, and likely mistakes.

Row numbers:
    - different whole numbers in a column whose name says so (id, index, row, nr, ...): left out;
    - 0, 1, 2, ... or 1, 2, 3, ..., not in the order of the rows and up to a tenth missing, in more than 31 rows (so
      that they are not days of a month): left out. A rank looks the same, so `--use` keeps the column;
    - the same numbers in the order of the rows, which may be a time, or shuffled and from another number: a note.

Giveaways: a column whose rank correlation with the target exceeds 0.999, or that has one value for each class.

Oddities: numbers far from all others of their column, numbers with leading zeros, names that differ only in upper and
lower case, and classes of one row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from livi.outliers import far_out
from livi.tables.reading import Table
from livi.tables.schema import Dropped, Kind, Schema
from livi.tables.unseen_values import places
from livi.tables.values import Cells, day, labels, number, parsed
from livi.tables.wording import and_more, as_argument

_NAMES = frozenset(
    (
        "id",
        "ids",
        "idx",
        "index",
        "row",
        "rows",
        "rownum",
        "rowid",
        "nr",
        "no",
        "num",
        "number",
        "key",
        "record",
        "#",
        "uid",
    )
)
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|#")
_CODE = re.compile(r"0\d+")
MAX_UNNUMBERED_ROWS = 10  # up to which a column cannot be row numbers
MAX_UNSHUFFLED_ROWS = 31  # up to which it cannot be shuffled row numbers, since it may be days of a month
MIN_DENSITY = 0.9  # least share of the numbers from the first to the last that must be there
GIVEAWAY_CORRELATION = 0.999  # rank correlation
MIN_GIVEAWAY_ROWS = 20
_NAMED_VALUES = 3  # values named in a message


def left_out(table: Table, kinds: Mapping[str, Kind], used: Sequence[str]) -> tuple[Dropped, ...]:
    """The columns that number the rows, with the reason; none if no other column would be left."""
    found = []
    for name, kind in kinds.items():
        if kind == "numeric" and name not in used:
            reason = _numbering(name, table.columns[name])
            found += [Dropped(name, f"{reason}; pass --use {as_argument(name)} to keep it")] if reason else []
    return tuple(found) if len(found) < len(kinds) else ()


def _numbering(name: str, cells: Cells) -> str:
    """Why a column is taken for row numbers; "" if it is not."""
    values = _distinct_integers(cells)
    if values is None:
        return ""
    size = f"{len(values)} different whole numbers in {len(values)} rows"
    if {word.lower() for word in _WORDS.findall(name)} & _NAMES:
        return f"{size}, and a name as of a row number"
    if len(values) <= MAX_UNSHUFFLED_ROWS or _rising(values) or values.min() not in (0.0, 1.0) or not _dense(values):
        return ""
    return f"{size}, {values.min():g} to {values.max():g} in no order, like a row number"


def numbering_notes(table: Table, schema: Schema, used: Sequence[str]) -> list[str]:
    """Notes on columns that the model reads, but that could be row numbers."""
    found = []
    for column in schema.columns:
        values = _distinct_integers(table.columns[column.name]) if column.kind == "numeric" else None
        if values is None or not _dense(values) or column.name in used:
            continue
        begins = values[0] in (0.0, 1.0)
        if begins if _rising(values) else len(values) > MAX_UNSHUFFLED_ROWS:
            text = f"column {column.name!r} counts the rows"
            found.append(f"{text}; if it says nothing else, pass --drop {as_argument(column.name)}")
    return found


def _distinct_integers(cells: Cells) -> NDArray[np.float64] | None:
    """The numbers of a column of more than 10 different whole numbers without gaps; None for other columns."""
    values, fine = parsed(cells, number)
    usable = bool(fine.all() and len(values) > MAX_UNNUMBERED_ROWS and np.isfinite(values).all())
    return values if usable and (values == np.round(values)).all() and len(np.unique(values)) == len(values) else None


def _rising(values: NDArray[np.float64]) -> bool:
    return bool((np.diff(values) > 0.0).all())


def _dense(values: NDArray[np.float64]) -> bool:
    return bool(len(values) >= MIN_DENSITY * (values.max() - values.min() + 1.0))


# --- giveaways ------------------------------------------------------------------------------------


def giveaway_notes(table: Table, schema: Schema) -> list[str]:
    """Notes on columns that determine the target by themselves."""
    found = []
    for column in schema.columns:
        cells, target = table.columns[column.name], table.columns[schema.target]
        if schema.task == "classification":
            how = "one value for each class" if one_to_one(labels(cells), labels(target)) else ""
        elif column.kind == "categorical":
            how = ""
        else:
            values, _ = parsed(cells, number if column.kind == "numeric" else day)
            strength = rank_correlation(values, parsed(target, number)[0])
            how = f"rank correlation {strength:.4f}" if abs(strength) > GIVEAWAY_CORRELATION else ""
        if how:
            found.append(
                f"column {column.name!r} tells {schema.target!r} all by itself ({how}); if it is not known before the "
                f"target is, pass --drop {as_argument(column.name)}"
            )
    return found


def rank_correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Spearman's rank correlation of the finite pairs; 0 if they are fewer than 20, or constant."""
    there = np.isfinite(one) & np.isfinite(other)
    if there.sum() < MIN_GIVEAWAY_ROWS:
        return 0.0
    first, second = _ranks(one[there]), _ranks(other[there])
    spread = first.std() * second.std()
    return float(np.mean(first * second) / spread) if spread > 0.0 else 0.0


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks, averaged over ties, minus their mean."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - 0.5 * (counts + 1)
    ranks = middle[places]
    centred: NDArray[np.float64] = ranks - ranks.mean()
    return centred


def one_to_one(names: Sequence[str], classes: Sequence[str]) -> bool:
    """Whether every name occurs with one class and every class with one name, in 20 rows and two per class at least."""
    pairs = [(name, kind) for name, kind in zip(names, classes, strict=True) if name]
    different = set(pairs)
    kinds = len({kind for _, kind in different})
    single = len(different) == len({name for name, _ in different}) == kinds
    return single and kinds == len(set(classes)) > 1 and len(pairs) >= max(MIN_GIVEAWAY_ROWS, 2 * kinds)


# --- oddities -------------------------------------------------------------------------------------


def oddity_notes(table: Table, schema: Schema) -> list[str]:
    """Notes on likely mistakes in the target and in the columns that the model reads."""
    found = []
    numeric = [column.name for column in schema.columns if column.kind == "numeric"]
    named = [column.name for column in schema.columns if column.kind == "categorical"]
    for name in numeric:
        found += _outlying(table, name, is_target=False) + _leading_zeros(table, name)
    if schema.task == "regression":
        found += _outlying(table, schema.target, is_target=True)
    for name in (*named, *([schema.target] if schema.task == "classification" else [])):
        found += _differ_in_case(table, name)
    return found + (_single_rows(table, schema.target) if schema.task == "classification" else [])


def _outlying(table: Table, name: str, *, is_target: bool) -> list[str]:
    values = parsed(table.columns[name], number)[0]
    rows = far_out(values)
    if not rows.any():
        return []
    different = list(dict.fromkeys(str(table.columns[name][row]) for row in np.flatnonzero(rows)))
    shown = and_more(different[:_NAMED_VALUES], len(different))
    usual = values[~rows & np.isfinite(values)]
    others = f"where all others are {usual.min():g} to {usual.max():g}"
    remedy = f"leave such {'rows out' if is_target else 'cells empty'}"
    if table.columns[name].dtype == object and len(different) <= _NAMED_VALUES:  # as `--missing` compares them
        remedy = f"pass --missing={','.join(different)}"
    missing = f"if it stands for a missing value, {remedy}; if it is a mistake, correct it"
    return [f"column {name!r}, {places(table, rows)}: {shown}, {others}; {missing}"]


def _leading_zeros(table: Table, name: str) -> list[str]:
    codes = [text for text in table.columns[name] if isinstance(text, str) and _CODE.fullmatch(text)]
    text = f"column {name!r}: {codes[0]} and the like are read as numbers" if codes else ""
    return [f"{text}; if they are codes, pass --categorical {as_argument(name)}"] if codes else []


def _differ_in_case(table: Table, name: str) -> list[str]:
    spellings: dict[str, set[str]] = {}
    for text in labels(table.columns[name]):
        spellings.setdefault(text.lower(), set()).add(text)
    twice = [" and ".join(map(repr, sorted(some))) for some in spellings.values() if len(some) > 1]
    what = f"column {name!r}: {', '.join(twice[:_NAMED_VALUES])} differ in capitals only and count as different"
    return [f"{what}; write them alike if they are the same"] if twice else []


def _single_rows(table: Table, target: str) -> list[str]:
    counts = Counter(labels(table.columns[target]))
    single = [repr(name) for name, count in counts.items() if count == 1]
    shown = and_more(single[:_NAMED_VALUES], len(single))
    text = f"{target!r} has a single row of class {shown}: too little to learn it from, and none to judge it by"
    return [text] if single else []
