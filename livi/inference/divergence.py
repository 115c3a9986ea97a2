"""Whether training has diverged: recent steps compared with earlier ones."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

REMEDY = (
    "Standardise inputs and targets, check the data for extreme values, or raise Recipe.num_samples or lower its rates"
)


class FitError(RuntimeError):
    """A fit that could not go on, or ended far below where it began; the message says what to try.

    Attributes:
        posterior: the posterior that was reached nevertheless, or None.
    """

    posterior: Any = None


class Window(NamedTuple):
    """Medians over some logged steps, from which their bound at any weight of the KL term can be computed."""

    log_likelihood: float
    kl: float
    noise: float  # approximate standard error of the bound's median

    def worth(self, kl_weight: float) -> float:
        return self.log_likelihood - kl_weight * self.kl

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, float]]) -> Window:
        fits = [row["log_likelihood"] for row in rows]
        gaps = [-row["log_prior"] - row["entropy"] for row in rows]
        bounds = [fit - gap for fit, gap in zip(fits, gaps, strict=True)]
        # Medians, also of the noise: a single spike that the next step recovers from is no divergence, and the first
        # steps of one must not make those after it look like noise. 1.48 and 1.25 are those of normal noise.
        middle = statistics.median(bounds)
        spread = 1.48 * statistics.median(abs(value - middle) for value in bounds)
        return cls(statistics.median(fits), statistics.median(gaps), 1.25 * spread / len(rows) ** 0.5)

    def far_below(self, earlier: Sequence[Window], kl_weight: float, allowed: float) -> bool:
        """Whether this window is more than `allowed` nats and ten standard errors below the best earlier one.

        Earlier windows are judged at the present weight of the KL term, so that the comparison holds during its
        warm-up: training could have kept the earlier parameters, and should have found something at least as good.
        """
        best = max(earlier, key=lambda window: window.worth(kl_weight))
        # The noise is that of the best window alone: a diverging window's own noise would excuse any fall.
        return self.worth(kl_weight) < best.worth(kl_weight) - allowed - 10.0 * best.noise
