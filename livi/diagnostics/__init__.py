"""Checks of a posterior itself: bound, entropy, spread, correlations, shapes, and a verdict in words."""

from livi.diagnostics.bound import BoundCheck
from livi.diagnostics.correlation import CorrelationCheck
from livi.diagnostics.diagnose import diagnose
from livi.diagnostics.diagnosis import Diagnosis
from livi.diagnostics.entropy import DensityCheck, EntropyCheck
from livi.diagnostics.estimate import Estimate, Skipped
from livi.diagnostics.examination import Facts
from livi.diagnostics.finding import Finding
from livi.diagnostics.kernel import cross_validated, kernel_density
from livi.diagnostics.layers import weight_name
from livi.diagnostics.log_det import LogDetCheck, Method
from livi.diagnostics.mean_field import MeanFieldBound
from livi.diagnostics.reference import NoiseCost, PriorBound, ReferenceCheck
from livi.diagnostics.shape import ShapeCheck, WeightDensity
from livi.diagnostics.spread import LayerSpread, RankCheck
from livi.diagnostics.subject import Effort, Subject

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
    "Subject",
    "WeightDensity",
    "cross_validated",
    "diagnose",
    "kernel_density",
    "weight_name",
]
