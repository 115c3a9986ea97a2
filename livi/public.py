"""The names of the package: what `livi.<name>` and `from livi import *` give."""

from livi import inference as training
from livi.family.ensemble import Ensemble
from livi.family.entropy import Exact, Lanczos, SmallestSingularValue
from livi.family.family import Draw, Family, WeightSampler, exactly
from livi.family.generators import CMMNN, MLP, MMNN, Affine, PerLayer
from livi.family.implicit import ImplicitPosterior
from livi.family.latents import Antithetic, Independent, Orthogonal
from livi.family.noise import DiagonalNoise, FixedNoise, LayerNoise, LearnedNoise, RelativeNoise
from livi.family.objective import Bound, BoundTerms
from livi.inference import (
    Callback,
    CSVLogger,
    EarlyStopping,
    FitError,
    FitWarning,
    Recipe,
    fit,
    fit_density,
    plan,
)
from livi.inference.recordable import CaptureError
from livi.model.data import CropFlip
from livi.model.likelihoods import (
    Bernoulli,
    Categorical,
    ContaminatedGaussian,
    FunctionLikelihood,
    Gaussian,
    HeteroscedasticGaussian,
    LogNormal,
    Multilabel,
    NegativeBinomial,
    Poisson,
    StudentT,
    Weighted,
    pass_weights,
)
from livi.model.priors import FunctionPrior, Laplace, Normal, Relevance
from livi.model.problem import Problem
from livi.network import Layout, Loop, Vmap, apply_many, estimate_statistics
from livi.posterior import metrics
from livi.posterior.density import Density, load_density
from livi.posterior.pooling import pool
from livi.posterior.posterior import Posterior, load
from livi.posterior.storage import StorageError
from livi.sampling import PolishReport, ReweightReport, polish, reweight

__all__ = [
    "CMMNN",
    "MLP",
    "MMNN",
    "Affine",
    "Antithetic",
    "Bernoulli",
    "Bound",
    "BoundTerms",
    "CSVLogger",
    "Callback",
    "CaptureError",
    "Categorical",
    "ContaminatedGaussian",
    "CropFlip",
    "Density",
    "DiagonalNoise",
    "Draw",
    "EarlyStopping",
    "Ensemble",
    "Exact",
    "Family",
    "FitError",
    "FitWarning",
    "FixedNoise",
    "FunctionLikelihood",
    "FunctionPrior",
    "Gaussian",
    "HeteroscedasticGaussian",
    "ImplicitPosterior",
    "Independent",
    "Lanczos",
    "Laplace",
    "LayerNoise",
    "Layout",
    "LearnedNoise",
    "LogNormal",
    "Loop",
    "Multilabel",
    "NegativeBinomial",
    "Normal",
    "Orthogonal",
    "PerLayer",
    "Poisson",
    "PolishReport",
    "Posterior",
    "Problem",
    "Recipe",
    "RelativeNoise",
    "Relevance",
    "ReweightReport",
    "SmallestSingularValue",
    "StorageError",
    "StudentT",
    "Vmap",
    "WeightSampler",
    "Weighted",
    "apply_many",
    "estimate_statistics",
    "exactly",
    "fit",
    "fit_density",
    "load",
    "load_density",
    "metrics",
    "pass_weights",
    "plan",
    "polish",
    "pool",
    "reweight",
    "training",
]
