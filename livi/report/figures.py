"""Figures of a posterior: densities and correlations of weights, predictions, calibration, the course of a fit.

Every function returns a matplotlib Figure that nothing else holds on to; `save` writes it. matplotlib is loaded
by the first call.
"""

from livi.report.bands import Band, predictive_band, predictive_bands
from livi.report.calibration import coverage_curve, pit_histogram
from livi.report.course import learning_curve
from livi.report.style import PALETTE, save, style
from livi.report.weights import correlation_matrix, weight_densities

__all__ = [
    "PALETTE",
    "Band",
    "correlation_matrix",
    "coverage_curve",
    "learning_curve",
    "pit_histogram",
    "predictive_band",
    "predictive_bands",
    "save",
    "style",
    "weight_densities",
]
