"""Markov chains and importance weights: posteriors made of another posterior's draws."""

from livi.sampling.polish_report import PolishReport
from livi.sampling.polishing import polish
from livi.sampling.reweight_report import ReweightReport
from livi.sampling.reweighting import reweight
from livi.sampling.settings import LANGEVIN_ENSEMBLE, LANGEVIN_MAP_STEPS, ChainSettings

__all__ = [
    "LANGEVIN_ENSEMBLE",
    "LANGEVIN_MAP_STEPS",
    "ChainSettings",
    "PolishReport",
    "ReweightReport",
    "polish",
    "reweight",
]
