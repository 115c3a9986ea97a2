"""Numbers that are not known for a row, though they were for all rows of the fit: an answer for all that they may be.

Each network is asked with another of 16 values that are as frequent in the fit as each other. An answer is an average
over networks, and so over these values too: as wide as not knowing makes it. That the column may depend on others is
left out of account.
"""

from __future__ import annotations

import math

import numpy as np

from livi.tables.estimators.scaling import Array

VALUES = 16
MOST_DIGITS = 300  # behind the point, of more numpy has none


def usual_values(X: Array, weights: Array, seed: int) -> Array:  # (n, p), (n,) -> (VALUES, p)
    """As frequent ones of each column, in an order of its own, so that two columns do not rise together.

    They are no rows' own numbers, which a file without rows would else hold: they lie between two rows, and have three
    digits of how far they are apart.

    >>> usual_values(np.linspace(0.0, 1.0, 32)[:, None], np.ones(32), 0).ravel()[:8]
    array([0.156, 0.719, 0.219, 0.656, 0.031, 0.281, 0.469, 0.344])
    """
    rng, levels = np.random.default_rng(seed), (np.arange(VALUES) + 0.5) / VALUES
    return np.stack([rng.permutation(_rounded(_quantiles(column, weights, levels))) for column in X.T], 1)


def _quantiles(column: Array, weights: Array, levels: Array) -> Array:  # (n,), (n,), (k,) -> (k,)
    """Of which a row of weight w has w; in between where they fall between two rows."""
    order = np.argsort(column, kind="stable")
    counts = weights[order]
    before = np.cumsum(counts) - counts
    size = math.ldexp(1.0, math.frexp(np.abs(column).max())[1] - 1)  # slopes of huge numbers would overflow
    found: Array = np.interp(levels * before[-1], before, column[order] / size) * size
    return found


def _rounded(values: Array) -> Array:  # (k,) in ascending order
    """To three digits of the distance between the quarters; as they are where that is none."""
    quarter = len(values) // 4
    for low, high in ((quarter, -quarter - 1), (0, -1)):
        apart = 0.5 * values[high] - 0.5 * values[low]  # half of it, which cannot overflow
        if apart > 0.0:
            return np.round(values, min(2 - math.floor(math.log10(apart)), MOST_DIGITS))
    return values


def filled(X: Array, usual: Array) -> Array:  # (n, p), (VALUES, p) -> (VALUES, n, p)
    """The rows once with each of the values in the place of what is not known."""
    return np.where(np.isnan(X), usual[:, None], X)
