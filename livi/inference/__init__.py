"""Fitting: plan, MAP start, training loop with checkpoints, progress and alarms."""

from livi.inference.alarms import FitWarning
from livi.inference.begin import begin
from livi.inference.fit import fit
from livi.inference.loop import FitError, Trainer, make_optimiser
from livi.inference.plan import Plan
from livi.inference.polishing import PolishReport, polish
from livi.inference.prepare import plan
from livi.inference.recipe import Recipe
from livi.inference.start import Starts, map_weights

__all__ = [
    "FitError",
    "FitWarning",
    "Plan",
    "PolishReport",
    "Recipe",
    "Starts",
    "Trainer",
    "begin",
    "fit",
    "make_optimiser",
    "map_weights",
    "plan",
    "polish",
]
