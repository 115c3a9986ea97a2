"""Outliers of a column: codes such as 99999 and slips of the decimal point, far from all other numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

APART = 10.0  # least distance from the nearest other number, in ranges of the others
MOST_SHARE = 0.02  # largest share of the rows that can be outliers, if these have different values
MOST_SHARE_OF_CODE = 1.0 / 3.0  # the same if they all have one value, which is then likely a code
FEWEST_DIFFERENT = 10  # different values among the others, without which their range says little


def far_out(column: NDArray[np.float64]) -> NDArray[np.bool_]:  # (n,)
    """True for outliers: a few numbers, or a repeated one, further from all others than ten times the range of those.

    The numbers of a long tail are none, since they have neighbours; NaN and infinity are none either.

    >>> ages = np.array([*range(20, 60), 999, 999, 41])
    >>> np.flatnonzero(far_out(ages))
    array([40, 41])
    """
    there = np.isfinite(column)
    numbers = np.where(there, column, 0.0)
    if not there.any():
        return there
    kept = there.copy()
    # By distance from the median first, since the range of all others must not include outliers on the other side; then
    # on each side by itself, where a frequent code may be the only outlying value.
    for outward in (np.abs(numbers - np.median(numbers[there])), numbers, -numbers):
        kept &= outward < _first_apart(outward[kept])
    return there & ~kept


def _first_apart(numbers: NDArray[np.float64]) -> float:
    """The lowest number that is far above all those below it; infinity where there is none."""
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) <= FEWEST_DIFFERENT:
        return np.inf
    above = np.cumsum(counts[::-1])[::-1]  # rows with this value or a higher one
    few = above <= max(1.0, MOST_SHARE * len(numbers))
    few[-1] |= above[-1] <= MOST_SHARE_OF_CODE * len(numbers)
    apart = np.diff(values, prepend=values[0]) > APART * (np.concatenate([values[:1], values[:-1]]) - values[0])
    found = np.flatnonzero(few & apart & (np.arange(len(values)) >= FEWEST_DIFFERENT))
    return float(values[found[0]]) if len(found) else np.inf
