"""Columns that a model should not learn from, or not without a second look: row numbers, and the target in disguise.

Row numbers:
    - different whole numbers in a column whose name says so (id, index, row, nr, ...): left out;
    - 0, 1, 2, ... or 1, 2, 3, ... in another order than the rows', up to a tenth missing, in more than 31 rows (there
      are as many days in a month): left out. A rank looks the same, so that `--use` overrules it;
    - the same in the order of the rows, which may be a time, or beginning elsewhere and shuffled: a note.

Giveaways: a column with the rank correlation 0.999 with the target or more, or one value for each class.

Oddities: numbers that stand apart from all others of their column, or are written with zeros in front, names that
differ in capitals only, classes of one row.
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
from livi.tables.surprises import places
from livi.tables.values import Cells, day, labels, number, parsed
from livi.tables.wording import as_argument

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
FEW, DAYS = 10, 31
DENSE = 0.9  # of the numbers from the first to the last are there
GIVEN_AWAY = 0.999  # rank correlation
ENOUGH_ROWS = 20
_NAMED = 3


def left_out(table: Table, kinds: Mapping[str, Kind], used: Sequence[str]) -> tuple[Dropped, ...]:
    """The columns that number the rows, and why; none where no other column would be left."""
    found = []
    for name, kind in kinds.items():
        if kind == "numeric" and name not in used:
            reason = _numbering(name, table.columns[name])
            found += [Dropped(name, f"{reason}; pass --use {as_argument(name)} to keep it")] if reason else []
    return tuple(found) if len(found) < len(kinds) else ()


def _numbering(name: str, cells: Cells) -> str:
    values = _different_wholes(cells)
    if values is None:
        return ""
    size = f"{len(values)} different whole numbers in {len(values)} rows"
    if {word.lower() for word in _WORDS.findall(name)} & _NAMES:
        return f"{size}, and a name as of a row number"
    if len(values) <= DAYS or _rising(values) or values.min() not in (0.0, 1.0) or not _dense(values):
        return ""
    return f"{size}, {values.min():g} to {values.max():g} in no order, like a row number"


def numbering_notes(table: Table, schema: Schema, used: Sequence[str]) -> list[str]:
    """On the columns read that could be row numbers."""
    found = []
    for column in schema.columns:
        values = _different_wholes(table.columns[column.name]) if column.kind == "numeric" else None
        if values is None or not _dense(values) or column.name in used:
            continue
        begins = values[0] in (0.0, 1.0)
        if begins if _rising(values) else len(values) > DAYS:
            text = f"column {column.name!r} counts the rows"
            found.append(f"{text}; if it says nothing else, pass --drop {as_argument(column.name)}")
    return found


def _different_wholes(cells: Cells) -> NDArray[np.float64] | None:
    values, fine = parsed(cells, number)
    usable = bool(fine.all() and len(values) > FEW and np.isfinite(values).all())
    return values if usable and (values == np.round(values)).all() and len(np.unique(values)) == len(values) else None


def _rising(values: NDArray[np.float64]) -> bool:
    return bool((np.diff(values) > 0.0).all())


def _dense(values: NDArray[np.float64]) -> bool:
    return bool(len(values) >= DENSE * (values.max() - values.min() + 1.0))


# --- giveaways ------------------------------------------------------------------------------------


def giveaway_notes(table: Table, schema: Schema) -> list[str]:
    """On the columns that tell the target by themselves."""
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
            how = f"rank correlation {strength:.4f}" if abs(strength) > GIVEN_AWAY else ""
        if how:
            found.append(
                f"column {column.name!r} tells {schema.target!r} all by itself ({how}); if it is not known before the "
                f"target is, pass --drop {as_argument(column.name)}"
            )
    return found


def rank_correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Spearman's, of the pairs that are there; 0 where they are fewer than 20 or all equal."""
    there = np.isfinite(one) & np.isfinite(other)
    if there.sum() < ENOUGH_ROWS:
        return 0.0
    first, second = _ranks(one[there]), _ranks(other[there])
    spread = first.std() * second.std()
    return float(np.mean(first * second) / spread) if spread > 0.0 else 0.0


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average ranks, less their mean."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - 0.5 * (counts + 1)
    ranks = middle[places]
    centred: NDArray[np.float64] = ranks - ranks.mean()
    return centred


def one_to_one(names: Sequence[str], classes: Sequence[str]) -> bool:
    """Whether each name goes with one class and each class with one name, in at least 20 rows, two for each class."""
    pairs = [(name, kind) for name, kind in zip(names, classes, strict=True) if name]
    different = set(pairs)
    kinds = len({kind for _, kind in different})
    single = len(different) == len({name for name, _ in different}) == kinds
    return single and kinds == len(set(classes)) > 1 and len(pairs) >= max(ENOUGH_ROWS, 2 * kinds)


# --- oddities -------------------------------------------------------------------------------------


def oddity_notes(table: Table, schema: Schema) -> list[str]:
    """On values of the target and of the columns read that are likely mistakes."""
    found = []
    numeric = [column.name for column in schema.columns if column.kind == "numeric"]
    named = [column.name for column in schema.columns if column.kind == "categorical"]
    for name in numeric:
        found += _apart(table, name, is_target=False) + _leading_zeros(table, name)
    if schema.task == "regression":
        found += _apart(table, schema.target, is_target=True)
    for name in (*named, *([schema.target] if schema.task == "classification" else [])):
        found += _spelled_twice(table, name)
    return found + (_single_rows(table, schema.target) if schema.task == "classification" else [])


def _apart(table: Table, name: str, *, is_target: bool) -> list[str]:
    values = parsed(table.columns[name], number)[0]
    rows = far_out(values)
    if not rows.any():
        return []
    different = list(dict.fromkeys(str(table.columns[name][row]) for row in np.flatnonzero(rows)))
    shown = ", ".join(different[:_NAMED]) + (f" and {len(different) - _NAMED} more" if len(different) > _NAMED else "")
    usual = values[~rows & np.isfinite(values)]
    others = f"where all others are {usual.min():g} to {usual.max():g}"
    remedy = f"leave such {'rows out' if is_target else 'cells empty'}; if it is a mistake, correct it"
    return [f"column {name!r}, {places(table, rows)}: {shown}, {others}; if it stands for a missing value, {remedy}"]


def _leading_zeros(table: Table, name: str) -> list[str]:
    codes = [text for text in table.columns[name] if isinstance(text, str) and _CODE.fullmatch(text)]
    text = f"column {name!r}: {codes[0]} and the like are read as numbers" if codes else ""
    return [f"{text}; if they are codes, pass --categorical {as_argument(name)}"] if codes else []


def _spelled_twice(table: Table, name: str) -> list[str]:
    spellings: dict[str, set[str]] = {}
    for text in labels(table.columns[name]):
        spellings.setdefault(text.lower(), set()).add(text)
    twice = [" and ".join(map(repr, sorted(some))) for some in spellings.values() if len(some) > 1]
    what = f"column {name!r}: {', '.join(twice[:_NAMED])} differ in capitals only and count as different"
    return [f"{what}; write them alike if they are the same"] if twice else []


def _single_rows(table: Table, target: str) -> list[str]:
    counts = Counter(labels(table.columns[target]))
    single = [repr(name) for name, count in counts.items() if count == 1]
    shown = ", ".join(single[:_NAMED]) + (f" and {len(single) - _NAMED} more" if len(single) > _NAMED else "")
    text = f"{target!r} has a single row of class {shown}: too little to learn it from, and none to judge it by"
    return [text] if single else []
