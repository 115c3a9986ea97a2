"""Posteriors to compare with, all returned as `livi.Posterior`, so that prediction and metrics are shared."""

from livi.family.ensemble import Ensemble
from livi.rivals.avb import Adversarial, fit_avb
from livi.rivals.ensemble import fit_ensemble
from livi.rivals.full_rank import fit_full_rank
from livi.rivals.kivi import KernelImplicit, fit_kivi
from livi.rivals.map_estimate import fit_map
from livi.rivals.mean_field import Constant, fit_mean_field
from livi.rivals.methods import METHODS, Method, method_named
from livi.rivals.mnf import MultiplicativeFlow, fit_mnf
from livi.rivals.sivi import SemiImplicit, fit_sivi

__all__ = [
    "METHODS",
    "Adversarial",
    "Constant",
    "Ensemble",
    "KernelImplicit",
    "Method",
    "MultiplicativeFlow",
    "SemiImplicit",
    "fit_avb",
    "fit_ensemble",
    "fit_full_rank",
    "fit_kivi",
    "fit_map",
    "fit_mean_field",
    "fit_mnf",
    "fit_sivi",
    "method_named",
]
