"""Standardisation: columns of mean 0 and standard deviation 1 for the network, and back.

Inputs beyond five standard deviations are drawn in, to 5 + log(1 + distance beyond), which keeps their order. Otherwise
a row at 40 of them, perhaps a typing error, would dominate the gradients of a fit, and predictions for a new row that
far out would be meaningless extrapolation. Outliers such as a code 99999 (`livi.outliers`) are left out of a column's
mean and standard deviation: in units of theirs all other numbers would be nearly equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from livi.outliers import far_out

Array = NDArray[np.float64]
INPUT_REACH = 5.0  # standard deviations


class Scaling(NamedTuple):
    """values = shift + scale * standardised, for each column."""

    shift: Array  # (p,), or () for a single column without an axis of columns
    scale: Array  # the same shape, positive

    @classmethod
    def of(cls, values: Array, weights: Array) -> Scaling:  # (n, ...), (n,)
        """Weighted means and standard deviations; a constant column keeps its units, with scale 1.

        >>> Scaling.of(np.array([[1.0, 5.0], [3.0, 5.0]]), np.ones(2))
        Scaling(shift=array([2., 5.]), scale=array([1., 1.]))
        """
        size = np.maximum(np.abs(values).max(0), np.finfo(np.float64).tiny)  # squares of huge values would overflow
        unit = values / size
        mean = np.average(unit, axis=0, weights=weights)
        std = np.sqrt(np.average(np.square(unit - mean), axis=0, weights=weights))
        constant = std <= 10 * np.finfo(np.float64).eps  # equal values, up to rounding
        return cls(mean * size, np.where(constant, 1.0, std * size))

    @classmethod
    def of_inputs(cls, values: Array, weights: Array) -> Scaling:  # (n, p), (n,)
        """The scaling of columns without their outliers.

        >>> ages = np.array([[*range(20, 60), 999]]).T
        >>> Scaling.of_inputs(ages, np.ones(41)).shift, Scaling.of(ages, np.ones(41)).shift.round(1)
        (array([39.5]), array([62.9]))
        """
        found = cls.of(values, weights)
        for place, column in enumerate(values.T):
            usual = ~far_out(column)
            if not usual.all() and weights[usual].sum() > 0.0:
                found.shift[place], found.scale[place] = cls.of(column[usual], weights[usual])
        return found

    def standardise(self, values: Array) -> Array:
        return (values - self.shift) / self.scale

    def inputs(self, values: Array, reach: float = INPUT_REACH) -> Array:
        """Standardised values, drawn in beyond `reach` standard deviations.

        >>> Scaling(np.zeros(1), np.ones(1)).inputs(np.array([[-2.0], [5.0], [40.0]])).round(2).ravel()
        array([-2.  ,  5.  ,  8.58])
        """
        units = self.standardise(values)
        beyond = np.maximum(np.abs(units) - reach, 0.0)
        return np.where(beyond > 0.0, np.sign(units) * (reach + np.log1p(beyond)), units)
