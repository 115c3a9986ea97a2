"""Fitting: plan, MAP start, training loop with checkpoints, progress and alarms."""

from livi.training.alarms import FitWarning
from livi.training.begin import begin
from livi.training.fit import fit
from livi.training.loop import FitError, Trainer, make_optimiser
from livi.training.plan import Plan
from livi.training.prepare import plan
from livi.training.recipe import Recipe
from livi.training.start import Starts, map_weights

__all__ = [
    "FitError",
    "FitWarning",
    "Plan",
    "Recipe",
    "Starts",
    "Trainer",
    "begin",
    "fit",
    "make_optimiser",
    "map_weights",
    "plan",
]
