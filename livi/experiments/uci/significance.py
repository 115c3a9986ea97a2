"""Whether a difference between methods over splits of one data set is significant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, variance


@dataclass(frozen=True)
class Difference:
    """A mean difference over splits, its standard error, and its p-value; None for both with a single split."""

    mean: float
    standard_error: float | None
    p_value: float | None

    def __str__(self) -> str:
        if self.standard_error is None or self.p_value is None:
            return f"{self.mean:+.3f}"
        return f"{self.mean:+.3f} ± {self.standard_error:.3f}, p = {self.p_value:.2g}"


def corrected_difference(differences: Sequence[float], train_rows: int, test_rows: int) -> Difference:
    """The corrected resampled t-test of Nadeau and Bengio (2003, section 3.3).

    Splits of one data set share most of their training rows, so their results are not independent. The variance of the
    mean of J differences is therefore taken as (1 / J + test rows / training rows) times that of one, not 1 / J times.
    """
    if len(differences) < 2:
        return Difference(mean(differences), None, None)
    error = math.sqrt((1.0 / len(differences) + test_rows / train_rows) * variance(differences))
    middle = mean(differences)
    if error == 0.0:
        return Difference(middle, 0.0, 1.0 if middle == 0.0 else 0.0)
    from scipy.stats import t as student  # comes with scikit-learn; tables alone do without it

    return Difference(middle, error, float(2.0 * student.sf(abs(middle) / error, len(differences) - 1)))
