"""Checks of a posterior itself: bound, entropy, spread, correlations, shapes, and a verdict in words."""

from livi.posterior.diagnostics.bound import BoundCheck
from livi.posterior.diagnostics.correlation import CorrelationCheck
from livi.posterior.diagnostics.diagnose import diagnose
from livi.posterior.diagnostics.diagnosis import Diagnosis
from livi.posterior.diagnostics.entropy import DensityCheck, EntropyCheck
from livi.posterior.diagnostics.estimate import Estimate, Skipped
from livi.posterior.diagnostics.examination import Facts
from livi.posterior.diagnostics.finding import Finding
from livi.posterior.diagnostics.kernel import cross_validated, kernel_density
from livi.posterior.diagnostics.layers import weight_name
from livi.posterior.diagnostics.log_det import LogDetCheck, Method
from livi.posterior.diagnostics.mean_field import MeanFieldBound
from livi.posterior.diagnostics.reference import NoiseCost, PriorBound, ReferenceCheck
from livi.posterior.diagnostics.shape import ShapeCheck, WeightDensity
from livi.posterior.diagnostics.spread import LayerSpread, RankCheck
from livi.posterior.diagnostics.subject import Effort

__all__ = [
    "BoundCheck",
    "CorrelationCheck",
    "DensityCheck",
    "Diagnosis",
    "Effort",
    "EntropyCheck",
    "Estimate",
    "Facts",
    "Finding",
    "LayerSpread",
    "LogDetCheck",
    "MeanFieldBound",
    "Method",
    "NoiseCost",
    "PriorBound",
    "RankCheck",
    "ReferenceCheck",
    "ShapeCheck",
    "Skipped",
    "WeightDensity",
    "cross_validated",
    "diagnose",
    "kernel_density",
    "weight_name",
]
