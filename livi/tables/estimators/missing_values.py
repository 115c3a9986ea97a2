"""Predictions for rows with a number missing that no row of the fit lacked: averages over its likely values.

Each network predicts with one of 16 equally likely values of the column. A prediction is an average over networks, and
so over these values too, which makes it wider as it should. A dependence of the column on others is ignored.
"""

from __future__ import annotations

import math

import numpy as np

from livi.tables.estimators.scaling import Array

NUM_VALUES = 16
MAX_DECIMALS = 300  # after the decimal point, the most that numpy can round to


def usual_values(X: Array, weights: Array, seed: int) -> Array:  # (n, p), (n,) -> (NUM_VALUES, p)
    """16 equally likely values of each column, in independent random orders, so that columns are not correlated.

    No value is a row's own number, which must not be in a file without rows: they are interpolated between two rows,
    and rounded to three digits of their range.

    >>> usual_values(np.linspace(0.0, 1.0, 32)[:, None], np.ones(32), 0).ravel()[:8]
    array([0.156, 0.719, 0.219, 0.656, 0.031, 0.281, 0.469, 0.344])
    """
    rng, levels = np.random.default_rng(seed), (np.arange(NUM_VALUES) + 0.5) / NUM_VALUES
    return np.stack([rng.permutation(_rounded(_quantiles(column, weights, levels))) for column in X.T], 1)


def _quantiles(column: Array, weights: Array, levels: Array) -> Array:  # (n,), (n,), (k,) -> (k,)
    """Weighted quantiles of a column, interpolated between rows."""
    order = np.argsort(column, kind="stable")
    counts = weights[order]
    before = np.cumsum(counts) - counts
    size = math.ldexp(1.0, math.frexp(np.abs(column).max())[1] - 1)  # slopes of huge numbers would overflow
    found: Array = np.interp(levels * before[-1], before, column[order] / size) * size
    return found


def _rounded(values: Array) -> Array:  # (k,) in ascending order
    """Values rounded to three digits of their interquartile range, or of their range if that is 0."""
    quarter = len(values) // 4
    for low, high in ((quarter, -quarter - 1), (0, -1)):
        apart = 0.5 * values[high] - 0.5 * values[low]  # half the distance, which cannot overflow
        if apart > 0.0:
            return np.round(values, min(2 - math.floor(math.log10(apart)), MAX_DECIMALS))
    return values


def filled(X: Array, usual: Array) -> Array:  # (n, p), (NUM_VALUES, p) -> (NUM_VALUES, n, p)
    """A copy of the rows for each of the values, with missing numbers replaced by it."""
    return np.where(np.isnan(X), usual[:, None], X)
