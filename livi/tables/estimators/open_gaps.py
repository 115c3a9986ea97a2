"""Numbers that are not known for a row, though they were for all rows of the fit: an answer for all that they may be.

Each network is asked with another of 16 values that are as frequent in the fit as each other. An answer is an average
over networks, and so over these values too: as wide as not knowing makes it. That the column may depend on others is
left out of account.
"""

from __future__ import annotations

import numpy as np

from livi.tables.estimators.scaling import Array

VALUES = 16


def usual_values(X: Array, weights: Array, seed: int) -> Array:  # (n, p), (n,) -> (VALUES, p)
    """As frequent ones of each column, in an order of its own, so that two columns do not rise together.

    >>> usual_values(np.arange(32.0)[:, None], np.ones(32), 0).ravel().astype(int)
    array([ 4, 22,  6, 20,  0,  8, 14, 10, 28, 24, 12, 18, 26, 16,  2, 30])
    """
    rng, levels = np.random.default_rng(seed), (np.arange(VALUES) + 0.5) / VALUES
    order = np.argsort(X, axis=0, kind="stable")
    ranked = np.take_along_axis(X, order, 0)
    below = np.cumsum(weights[order], 0)
    places = [np.searchsorted(column, levels * column[-1]) for column in below.T]
    return np.stack([rng.permutation(column[at]) for column, at in zip(ranked.T, places, strict=True)], 1)


def filled(X: Array, usual: Array) -> Array:  # (n, p), (VALUES, p) -> (VALUES, n, p)
    """The rows once with each of the values in the place of what is not known."""
    return np.where(np.isnan(X), usual[:, None], X)
