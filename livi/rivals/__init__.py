"""Posteriors to compare with, all returned as `livi.Posterior`, so that prediction and metrics are shared."""

from livi.family.ensemble import Ensemble
from livi.rivals.ensemble import fit_ensemble
from livi.rivals.full_rank import fit_full_rank
from livi.rivals.map_estimate import fit_map
from livi.rivals.mean_field import Constant, fit_mean_field
from livi.rivals.methods import METHODS, Method, method_named

__all__ = [
    "METHODS",
    "Constant",
    "Ensemble",
    "Method",
    "fit_ensemble",
    "fit_full_rank",
    "fit_map",
    "fit_mean_field",
    "method_named",
]
