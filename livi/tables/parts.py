"""Coverage of parts of the rows, by size of the prediction and by group: intervals may hold on average and fail there.

A part is judged as the whole is (`livi.tables.evaluation`), within wider bounds the more parts there are: all parts of
a calibrated model lie within them 95 times in 100.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from livi.tables.content import Coverage, Part, RegressionRows
from livi.tables.schema import MISSING_CATEGORY

LEVEL = 0.9
FIFTHS = 5
FEWEST = 100  # rows to be divided into fifths
SMALLEST = 30  # rows of a group
MOST_GROUPS = 12  # of one column
SMALL = 0.01  # difference of shares that is of no consequence
_NAMES = ("lowest", "second lowest", "middle", "second highest", "highest")

Mask = NDArray[np.bool_]


def parts_of(rows: RegressionRows, groups: Mapping[str, Sequence[str]], unit: str) -> tuple[Part, ...]:
    """Coverage of the 90 % intervals in fifths of the predictions, and in groups by the values of columns.

    Args:
        groups: values of categorical columns, one a row.
        unit: the target's name.
    """
    if LEVEL not in rows.levels:
        return ()
    masks = [*_fifths(rows, unit), *_groups(groups, len(rows))]
    return tuple(_covered(rows, kind, name, mask, len(masks)) for kind, name, mask in masks)


def worst(parts: Sequence[Part]) -> Part | None:
    """The part that is furthest from its bounds; None where all keep to them."""
    astray = [part for part in parts if part.coverage.judgement in ("overconfident", "underconfident")]
    return max(astray, key=lambda part: _beyond(part.coverage), default=None)


def _beyond(coverage: Coverage) -> float:
    return max(coverage.low - coverage.share, coverage.share - coverage.high)


def _fifths(rows: RegressionRows, unit: str) -> list[tuple[str, str, Mask]]:
    """By predicted mean, ties in the order of the rows."""
    if len(rows) < FEWEST:
        return []
    rank = np.empty(len(rows), np.int64)
    rank[np.argsort(rows.mean, kind="stable")] = np.arange(len(rows))
    fifth = rank * FIFTHS // len(rows)
    return [
        ("size", f"the fifth with the {name} predictions of {unit}", fifth == place)
        for place, name in enumerate(_NAMES)
    ]


def _groups(groups: Mapping[str, Sequence[str]], rows: int) -> list[tuple[str, str, Mask]]:
    found = []
    for column, values in groups.items():
        names, counts = np.unique(np.array(values, dtype=object).astype(str), return_counts=True)
        frequent = [name for name, count in zip(names, counts, strict=True) if count >= SMALLEST]
        if 1 < len(frequent) <= MOST_GROUPS:
            cells = np.array(values, dtype=object).astype(str)
            found += [("group", f"rows with {column} = {name or MISSING_CATEGORY}", cells == name) for name in frequent]
    return [one for one in found if one[2].sum() < rows]


def _covered(rows: RegressionRows, kind: str, name: str, mask: Mask, parts: int) -> Part:
    from scipy.stats import binom

    place = int(np.argmin(np.abs(rows.levels - LEVEL)))
    lower, upper = rows.lower[place][mask], rows.upper[place][mask]
    count, share = int(mask.sum()), float(rows.inside[place][mask].mean())
    tail = 0.025 / parts
    low, high = (float(end) for end in binom.ppf([tail, 1.0 - tail], count, LEVEL) / count)
    low, high = min(low, LEVEL - SMALL), max(high, LEVEL + SMALL)
    judgement = "overconfident" if share < low else "underconfident" if share > high else "calibrated"
    coverage = Coverage(LEVEL, share, low, high, float((upper - lower).mean()), judgement)  # type: ignore[arg-type]
    return Part(kind, name, count, coverage)  # type: ignore[arg-type]
