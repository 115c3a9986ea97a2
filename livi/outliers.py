"""Numbers that stand apart from all others of their column: codes such as 99999, slips of the decimal point."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

APART = 10.0  # distance from the nearest other number, in ranges of the others
FEW = 0.02  # largest share of the rows, if the numbers apart are several different ones
CODED = 1.0 / 3.0  # largest share of the rows, if they are all the same number
DIFFERENT = 10  # different values that the others have at least, so that their range means something


def far_out(column: NDArray[np.float64]) -> NDArray[np.bool_]:  # (n,)
    """Which numbers are further from all others than ten times the range of those: a few, or one repeated code.

    Numbers of a long tail are not, since they have neighbours.

    >>> ages = np.array([*range(20, 60), 999, 999, 41])
    >>> np.flatnonzero(far_out(ages))
    array([40, 41])
    """
    there = np.isfinite(column)
    numbers = np.where(there, column, 0.0)
    if not there.any():
        return there
    kept = there.copy()
    # On both sides at once, for those on one may hide those on the other; then by itself on each, where codes may be.
    for outward in (np.abs(numbers - np.median(numbers[there])), numbers, -numbers):
        kept &= outward < _first_apart(outward[kept])
    return there & ~kept


def _first_apart(numbers: NDArray[np.float64]) -> float:
    """The lowest that stands apart from those below it; infinity where none does."""
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) <= DIFFERENT:
        return np.inf
    above = np.cumsum(counts[::-1])[::-1]  # rows with this value or a higher one
    few = above <= max(1.0, FEW * len(numbers))
    few[-1] |= above[-1] <= CODED * len(numbers)
    apart = np.diff(values, prepend=values[0]) > APART * (np.concatenate([values[:1], values[:-1]]) - values[0])
    found = np.flatnonzero(few & apart & (np.arange(len(values)) >= DIFFERENT))
    return float(values[found[0]]) if len(found) else np.inf
