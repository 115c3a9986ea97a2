"""Settings of Markov chains, as a plan holds them: those that follow a fit, and those that start at MAP fits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class ChainSettings:
    """The arguments of `livi.polish`, by default those of the chains that follow a fit.

    Their first steps are long, with large errors, which takes them to modes that the fit does not know; their last are
    short, so that the draws that are kept have little bias. Chosen by `python -m benchmarks.choose_polish`
    (docs/benchmarks/choices.md).
    """

    chains: int = 8
    draws: int = 400
    steps: int = 4000
    warm_up: float = 0.6
    energy_error: float = 5e-3
    first_error: float | None = 0.5
    weighting: Literal["equal", "stacked"] = "equal"

    def lasting(self, share: float) -> ChainSettings:
        """Chains shortened by this share, for a fit that is shortened."""
        steps = max(100, round(min(1.0, share) * self.steps))
        return replace(self, steps=steps, draws=min(self.draws, self.chains * int((1.0 - self.warm_up) * steps)))


LANGEVIN_ENSEMBLE = ChainSettings(steps=5000, energy_error=0.1, weighting="stacked")
"""Chains that start at MAP fits of 300 steps, with steps that are long to the end.

After Sommer et al. (2025), "Microcanonical Langevin Ensembles"; what each part of it contributes is in
docs/benchmarks/small-tables.md.
"""
LANGEVIN_MAP_STEPS = 300
