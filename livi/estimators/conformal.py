"""Split conformal prediction: how far predictions were from held-out targets says how far they may be from new ones.

If held-out and new rows are exchangeable, a new row's conformity score exceeds the threshold with probability at most
alpha, whatever the model is worth (Vovk et al., 2005; Lei et al., 2018).
"""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import NDArray


def threshold(scores: NDArray[np.float64], alpha: float) -> float:
    """The ceil((n + 1)(1 - alpha))-th smallest of n scores; infinite, with a warning, where n is too small for it.

    >>> threshold(np.arange(1.0, 20.0), alpha=0.1)
    18.0
    """
    n = len(scores)
    rank = math.ceil((n + 1) * (1.0 - alpha) - 1e-9)  # 1 - alpha is not exact: 0.9 * 10 must not become 10
    if rank > n:
        warnings.warn(
            f"calibration rows: expected at least {math.ceil(1.0 / alpha - 1e-9) - 1} for alpha={alpha:g}, got {n}; "
            "everything is in the interval or set. Fit with more rows, a larger calibration_size, or ask for a "
            "larger alpha.",
            UserWarning,
            stacklevel=4,
        )
        return math.inf
    return float(np.partition(scores, rank - 1)[rank - 1])
