"""Settings of Markov chains, as a plan holds them: those that follow a fit, and those that start at MAP fits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from livi.sampling.chains import ENERGY_ERROR
from livi.sampling.polishing import WARM_UP


@dataclass(frozen=True)
class ChainSettings:
    """The arguments of `livi.polish`, by default those of the chains that follow a fit."""

    chains: int = 16
    draws: int = 400
    steps: int = 2000
    warm_up: float = WARM_UP
    energy_error: float = ENERGY_ERROR
    first_error: float | None = None
    weighting: Literal["equal", "stacked"] = "equal"

    def lasting(self, share: float) -> ChainSettings:
        """Chains shortened by this share, for a fit that is shortened."""
        steps = max(100, round(min(1.0, share) * self.steps))
        return replace(self, steps=steps, draws=min(self.draws, self.chains * int((1.0 - self.warm_up) * steps)))


LANGEVIN_ENSEMBLE = ChainSettings(
    chains=8, steps=5000, warm_up=0.6, energy_error=0.1, first_error=0.5, weighting="stacked"
)
"""Chains that start at MAP fits of 300 steps, and leave these places by long steps, with large errors at first.

After Sommer et al. (2025), "Microcanonical Langevin Ensembles"; what each part of it contributes is in
docs/benchmarks/small-tables.md.
"""
LANGEVIN_MAP_STEPS = 300
