"""Whether training has diverged: what recent steps are worth beside what earlier ones were."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

REMEDY = (
    "Standardise inputs and targets, check the data for extreme values, or raise Recipe.num_samples or lower its rates"
)


class FitError(RuntimeError):
    """A fit that could not go on, or ended far from where it began; the message says what to try.

    Attributes:
        posterior: what was reached all the same, where there is something; None otherwise.
    """

    posterior: Any = None


class Window(NamedTuple):
    """Medians over some logged steps: what the parameters of that time are worth at any weight of the KL term."""

    log_likelihood: float
    kl: float
    noise: float  # standard error of the bound's median, about

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
        """Whether this is so many nats below earlier parameters, and their noise, that only a divergence explains it.

        Earlier parameters are judged at today's weight of the KL term, so that this can be asked at every step of its
        warm-up: they could be had again, and training should have found something at least as good.
        """
        best = max(earlier, key=lambda window: window.worth(kl_weight))
        # Minibatch noise is that of the best window alone: that of a diverging one would excuse everything.
        return self.worth(kl_weight) < best.worth(kl_weight) - allowed - 10.0 * best.noise
