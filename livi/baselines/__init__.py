"""Posteriors to compare with, all returned as `livi.fitted.Posterior`, so that prediction and metrics are shared."""

from livi.baselines.ensemble import fit_ensemble
from livi.baselines.full_rank import fit_full_rank
from livi.baselines.map_estimate import fit_map
from livi.baselines.mean_field import Constant, fit_mean_field
from livi.prediction import Ensemble

__all__ = [
    "Constant",
    "Ensemble",
    "fit_ensemble",
    "fit_full_rank",
    "fit_map",
    "fit_mean_field",
]
