"""Coverage of parts of the rows, where intervals may fail though they hold on average: by prediction and by group.

A part is judged like the whole (`livi.tables.evaluation`), but within bounds that widen with the number of parts: all
parts of a calibrated model lie within them 95 times in 100.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from livi.tables.calibration import MISFITS, binomial_band, judged
from livi.tables.content import Coverage, Part, PartKind, RegressionRows
from livi.tables.schema import MISSING_CATEGORY

LEVEL = 0.9
FIFTHS = 5
MIN_DIVIDED_ROWS = 100  # that are divided into fifths
MIN_GROUP_ROWS = 30
MAX_GROUPS = 12  # of one column
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
    """The part that is furthest outside its bounds; None if all are within theirs."""
    outside = [part for part in parts if part.coverage.judgement in MISFITS]
    return max(outside, key=lambda part: _beyond(part.coverage), default=None)


def _beyond(coverage: Coverage) -> float:
    return max(coverage.low - coverage.share, coverage.share - coverage.high)


def _fifths(rows: RegressionRows, unit: str) -> list[tuple[PartKind, str, Mask]]:
    """Fifths of the rows by predicted mean, ties in the order of the rows."""
    if len(rows) < MIN_DIVIDED_ROWS:
        return []
    rank = np.empty(len(rows), np.int64)
    rank[np.argsort(rows.mean, kind="stable")] = np.arange(len(rows))
    fifth = rank * FIFTHS // len(rows)
    return [
        ("size", f"the fifth with the {name} predictions of {unit}", fifth == place)
        for place, name in enumerate(_NAMES)
    ]


def _groups(groups: Mapping[str, Sequence[str]], rows: int) -> list[tuple[PartKind, str, Mask]]:
    found: list[tuple[PartKind, str, Mask]] = []
    for column, values in groups.items():
        cells = np.array(values, dtype=object).astype(str)
        names, counts = np.unique(cells, return_counts=True)
        frequent = [name for name, count in zip(names, counts, strict=True) if count >= MIN_GROUP_ROWS]
        if 1 < len(frequent) <= MAX_GROUPS:
            found += [("group", f"rows with {column} = {name or MISSING_CATEGORY}", cells == name) for name in frequent]
    return [group for group in found if group[2].sum() < rows]  # one that has all rows is no part of them


def _covered(rows: RegressionRows, kind: PartKind, name: str, mask: Mask, parts: int) -> Part:
    place = int(np.argmin(np.abs(rows.levels - LEVEL)))
    lower, upper = rows.lower[place][mask], rows.upper[place][mask]
    count, share = int(mask.sum()), float(rows.inside[place][mask].mean())
    band = binomial_band(count, LEVEL, parts)
    coverage = Coverage(LEVEL, share, *band, float((upper - lower).mean()), judged(share, band))
    return Part(kind, name, count, coverage)
