"""Fitting: plan, MAP start, training loop with checkpoints, progress and alarms."""

from livi.inference.begin import begin
from livi.inference.fitting import fit
from livi.inference.loop import FitError, Trainer, make_optimiser
from livi.inference.planning import plan
from livi.inference.plans import Plan
from livi.inference.recipe import Recipe
from livi.inference.start import Starts, map_weights
from livi.model.problem import FitWarning

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
