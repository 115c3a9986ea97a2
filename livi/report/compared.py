"""`Compared`: the results of one of several methods on the same problem, and their ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Compared:
    """A method on held-out examples.

    Args:
        name: in the register, or the user's.
        scores: by the names of `livi.metrics`; none where the method failed.
        log_prob: of each held-out example, (B,).
        curve: calibration: levels and the shares of targets inside for numbers, confidence and accuracy for classes.
        seconds, prediction_seconds: of the fit, and of predicting the held-out examples.
        gradients: of the log joint density, at one weight vector and on one batch, that were taken.
        notes: warnings of the fit.
        trouble: why there is no result.
    """

    name: str
    title: str
    scores: dict[str, float] = field(default_factory=dict)
    log_prob: Numbers = field(default_factory=lambda: np.zeros(0))
    curve: tuple[Numbers, Numbers] | None = None
    seconds: float = 0.0
    prediction_seconds: float = 0.0
    gradients: int | None = None
    notes: tuple[str, ...] = ()
    trouble: str = ""

    @property
    def nll_error(self) -> float:
        """The standard error of the mean negative log likelihood, over the held-out examples."""
        return standard_error(self.log_prob)

    def behind(self, best: Compared) -> tuple[float, float]:
        """How much larger the mean negative log likelihood is than the best one's, and the standard error of that.

        The error is that of differences example by example, since both methods find much the same examples hard.
        """
        differences = best.log_prob - self.log_prob
        return float(differences.mean()), standard_error(differences)

    def as_good_as(self, best: Compared) -> bool:
        """Whether it is behind by no more than two standard errors; always, if there is only one example."""
        difference, error = self.behind(best)
        return len(self.log_prob) < 2 or difference <= 2.0 * error


def ranked(rows: Sequence[Compared]) -> list[Compared]:
    """Methods with a result by their negative log likelihood, best first; then the others."""
    return sorted(rows, key=lambda row: (bool(row.trouble), row.scores.get("nll", 0.0)))


def standard_error(values: Numbers) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
