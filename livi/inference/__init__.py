"""Fitting: plan, MAP start, training loop with checkpoints, progress and alarms."""

from livi.inference.begin import begin
from livi.inference.callbacks import Callback, Run
from livi.inference.csv_logger import CSVLogger
from livi.inference.density import fit_density
from livi.inference.divergence import FitError
from livi.inference.fitting import fit
from livi.inference.loop import Trainer
from livi.inference.map_fits import Starts, best_map_weights, map_weights
from livi.inference.optimiser import make_optimiser
from livi.inference.planning import plan
from livi.inference.plans import Plan
from livi.inference.recipe import Recipe
from livi.inference.stopping import EarlyStopping
from livi.model.warning import FitWarning

__all__ = [
    "CSVLogger",
    "Callback",
    "EarlyStopping",
    "FitError",
    "FitWarning",
    "Plan",
    "Recipe",
    "Run",
    "Starts",
    "Trainer",
    "begin",
    "best_map_weights",
    "fit",
    "fit_density",
    "make_optimiser",
    "map_weights",
    "plan",
]
