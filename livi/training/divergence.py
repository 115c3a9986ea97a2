"""Whether training has diverged: what recent steps are worth beside what earlier ones were."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple


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
        # Medians: a single spike that the next step recovers from is no divergence.
        return cls(statistics.median(fits), statistics.median(gaps), statistics.stdev(bounds) / len(rows) ** 0.5)


def fell(window: Window, earlier: Sequence[Window], kl_weight: float, num_params: int) -> bool:
    """Whether a window lies so far below an earlier one that only a divergence explains it.

    Earlier parameters are judged at today's weight of the KL term, so that this can be asked at every step of its
    warm-up: they could be had again, and training should have found something at least as good. Minibatch noise is that
    of the best window alone: that of a diverging one would excuse everything.
    """
    best = max(earlier, key=lambda other: other.worth(kl_weight), default=window)
    allowed = max(20.0, 0.25 * num_params) + 10.0 * best.noise
    return window.worth(kl_weight) < best.worth(kl_weight) - allowed
