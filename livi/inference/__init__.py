"""Fitting: plan, MAP start, training loop with checkpoints, progress and alarms."""

from livi.inference.alarms import FitWarning
from livi.inference.begin import begin
from livi.inference.callbacks import Callback, Run
from livi.inference.csv_logger import CSVLogger
from livi.inference.fit import fit
from livi.inference.loop import FitError, Trainer, make_optimiser
from livi.inference.plan import Plan
from livi.inference.prepare import plan
from livi.inference.recipe import Recipe
from livi.inference.start import Starts, map_weights
from livi.inference.stopping import EarlyStopping

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
    "fit",
    "make_optimiser",
    "map_weights",
    "plan",
]
