"""Split conformal prediction: thresholds of conformity scores from held-out rows.

If held-out and new rows are exchangeable, a new row's conformity score exceeds the threshold with probability at most
alpha, however good or bad the model is (Vovk et al., 2005; Lei et al., 2018).
"""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import NDArray


def rank(rows: int, alpha: float) -> int:
    """The rank of the threshold among the scores of n rows, ceil((n + 1)(1 - alpha)); above n there is no threshold.

    >>> rank(19, 0.1), rank(9, 0.1), rank(8, 0.1)
    (18, 9, 9)
    """
    return max(1, math.ceil((rows + 1) * (1.0 - alpha) - 1e-9))  # minus rounding errors, so that 0.9 * 10 gives 9


def threshold(scores: NDArray[np.float64], alpha: float) -> float:
    """The score of that rank; infinite, with a warning, if there are too few scores.

    >>> threshold(np.arange(1.0, 20.0), alpha=0.1)
    18.0
    """
    n, place = len(scores), rank(len(scores), alpha)
    if place > n:
        warnings.warn(
            f"calibration rows: expected at least {math.ceil(1.0 / alpha - 1e-9) - 1} for alpha={alpha:g}, got {n}; "
            "everything is in the interval or set. Fit with more rows, a larger calibration_size, or ask for a "
            "larger alpha.",
            UserWarning,
            stacklevel=3,  # where predict_interval or predict_set was called
        )
        return math.inf
    return float(np.partition(scores, place - 1)[place - 1])
