"""Other methods to compare livi with. Each returns a `livi.Posterior`, so that prediction and metrics are shared."""

from livi.family.ensemble import Ensemble
from livi.rivals.avb import Adversarial, fit_avb
from livi.rivals.ensemble import fit_ensemble
from livi.rivals.full_rank import fit_full_rank
from livi.rivals.ivon import fit_ivon
from livi.rivals.kivi import KernelImplicit, fit_kivi
from livi.rivals.langevin import fit_langevin
from livi.rivals.laplace import fit_laplace_last_layer, fit_laplace_linearised, fit_laplace_low_rank
from livi.rivals.map_estimate import fit_map
from livi.rivals.mc_dropout import DropoutWeights, fit_mc_dropout
from livi.rivals.mean_field import Constant, fit_mean_field
from livi.rivals.methods import METHODS, Method, method_named
from livi.rivals.mnf import MultiplicativeFlow, fit_mnf
from livi.rivals.nuts import NutsReport, fit_nuts
from livi.rivals.sivi import SemiImplicit, fit_sivi
from livi.rivals.swag import fit_swag

__all__ = [
    "METHODS",
    "Adversarial",
    "Constant",
    "DropoutWeights",
    "Ensemble",
    "KernelImplicit",
    "Method",
    "MultiplicativeFlow",
    "NutsReport",
    "SemiImplicit",
    "fit_avb",
    "fit_ensemble",
    "fit_full_rank",
    "fit_ivon",
    "fit_kivi",
    "fit_langevin",
    "fit_laplace_last_layer",
    "fit_laplace_linearised",
    "fit_laplace_low_rank",
    "fit_map",
    "fit_mc_dropout",
    "fit_mean_field",
    "fit_mnf",
    "fit_nuts",
    "fit_sivi",
    "fit_swag",
    "method_named",
]
