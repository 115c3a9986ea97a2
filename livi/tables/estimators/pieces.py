"""Columns cut into pieces at their quantiles, so that a network sees thresholds as trees do.

With ends t_0 < t_1 < ... < t_k in a column, input i of a value x is 0 up to t_{i-1}, 1 from t_i on, and linear between
them: the share of piece i that lies below x (Gorishniy, Rubachev and Babenko 2022, "On embeddings for numerical
features in tabular deep learning"). A linear function of these inputs is piecewise linear in x. They are standardised
and added to the column itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from livi.tables.estimators.scaling import Array, Scaling

MAX_COLUMN_PIECES = 16
MAX_PIECES = 512  # of all columns
_LOWER_ENDS, _UPPER_ENDS = slice(None, -1), slice(1, None)  # of pieces, among all ends


class Pieces(NamedTuple):
    """The ends of the pieces of all columns, in the columns' units."""

    columns: NDArray[np.intp]  # (k,), the index of each piece's column
    low: Array  # (k,)
    high: Array  # (k,)
    scaling: Scaling  # of the inputs, which are between 0 and 1

    @classmethod
    def of(cls, values: Array, weights: Array, count: int) -> Pieces | None:  # (n, p), (n,)
        """`count` pieces of each column with about equally many rows; None if no column has three values.

        >>> Pieces.of(np.array([[0.0, 1.0], [1.0, 0.0], [3.0, 1.0]]), np.ones(3), 2)[:3]
        (array([0, 0]), array([0., 1.]), array([1., 3.]))
        """
        ends = [_ends(column, weights, count) for column in values.T]
        places = [np.full(len(each) - 1, place) for place, each in enumerate(ends) if len(each) > 2]
        if not places:
            return None
        columns = np.concatenate(places)
        low, high = (
            np.concatenate([each[part] for each in ends if len(each) > 2]) for part in (_LOWER_ENDS, _UPPER_ENDS)
        )
        shares = cls(columns, low, high, Scaling(np.zeros(len(low)), np.ones(len(low)))).inputs(values)
        return cls(columns, low, high, Scaling.of(shares, weights))

    def inputs(self, values: Array) -> Array:  # (n, p) -> (n, k)
        """The standardised inputs that rows get from the pieces."""
        width = np.maximum(self.high - self.low, np.finfo(np.float64).tiny)
        return self.scaling.standardise(np.clip((values[:, self.columns] - self.low) / width, 0.0, 1.0))

    def to_facts(self) -> tuple[torch.Tensor, ...]:
        return tuple(torch.from_numpy(part) for part in (self.columns, self.low, self.high, *self.scaling))

    @classmethod
    def from_facts(cls, facts: Sequence[torch.Tensor]) -> Pieces:
        columns, low, high, *scaling = (part.numpy() for part in facts)
        return cls(columns, low, high, Scaling(*scaling))

    def fits(self, columns: int) -> bool:
        """Whether these are pieces of a table with so many columns, which a file may contradict."""
        shapes = {np.shape(part) for part in (self.columns, self.low, self.high, *self.scaling)}
        places = np.asarray(self.columns)
        return (
            len(shapes) == 1
            and places.ndim == 1
            and places.dtype.kind == "i"
            and bool(((places >= 0) & (places < columns)).all())
        )


def affordable(values: Array) -> int:
    """How many pieces each column of a table may have; below 2, columns are not cut."""
    cut = sum(len(np.unique(column)) > 2 for column in values.T)
    return min(MAX_COLUMN_PIECES, MAX_PIECES // max(1, cut))


def _ends(column: Array, weights: Array, count: int) -> Array:
    """The distinct ones among `count` + 1 weighted quantiles of a column at equal distances."""
    order = np.argsort(column, kind="stable")
    below = np.cumsum(weights[order])
    places = np.searchsorted(below, np.linspace(0.0, 1.0, count + 1) * below[-1])
    ends: Array = np.unique(column[order][np.minimum(places, len(column) - 1)])
    return ends
