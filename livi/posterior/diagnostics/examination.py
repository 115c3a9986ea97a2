"""All measurements of a diagnosis, from which the verdict is made."""

from __future__ import annotations

from dataclasses import dataclass

from livi.posterior.diagnostics.bound import BoundCheck
from livi.posterior.diagnostics.correlation import CorrelationCheck
from livi.posterior.diagnostics.entropy import DensityCheck
from livi.posterior.diagnostics.estimate import Skipped
from livi.posterior.diagnostics.log_det import LogDetCheck
from livi.posterior.diagnostics.reference import ReferenceCheck
from livi.posterior.diagnostics.shape import ShapeCheck
from livi.posterior.diagnostics.spread import LayerSpread, RankCheck


@dataclass(frozen=True)
class Facts:
    """What was examined, and with how many samples."""

    num_params: int
    num_weights: int  # of them looked at for spread, rank, correlation and shape
    num_layers: int
    num_components: int
    num_data: int
    num_examples: int
    num_samples: int
    num_distinct: int  # different weight vectors among the samples
    fit_estimator: str  # of the entropy while fitting; empty where not known
    num_fitted: int | None = None  # examples that the posterior was fitted to; None where not known


@dataclass(frozen=True)
class Examination:
    """The measurements. A part that could not be computed is `Skipped`, with the reason."""

    facts: Facts
    bound: BoundCheck
    references: ReferenceCheck
    log_det: LogDetCheck | Skipped
    density: DensityCheck | Skipped
    spread: tuple[LayerSpread, ...] | Skipped
    rank: RankCheck | Skipped
    correlation: CorrelationCheck | Skipped
    shape: ShapeCheck | Skipped

    @property
    def estimators_used(self) -> frozenset[str]:
        """The estimators that the fit or the bound used; others are only compared with them."""
        return frozenset({self.facts.fit_estimator, self.bound.estimator} - {""})
