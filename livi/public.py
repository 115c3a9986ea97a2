"""The names of the package: what `livi.<name>` and `from livi import *` give."""

from livi import metrics, training
from livi.entropy import Exact, Lanczos, SmallestSingularValue
from livi.fitted import Posterior, load
from livi.generators import CMMNN, MLP, MMNN, Affine, PerLayer
from livi.latents import Antithetic, Independent, Orthogonal
from livi.layout import Layout, Loop, Vmap, apply_many, estimate_statistics
from livi.likelihoods import (
    Bernoulli,
    Categorical,
    FunctionLikelihood,
    Gaussian,
    HeteroscedasticGaussian,
    Multilabel,
    Weighted,
)
from livi.noise import DiagonalNoise, FixedNoise, LayerNoise, LearnedNoise, RelativeNoise
from livi.objective import Bound, BoundTerms
from livi.posterior import ImplicitPosterior
from livi.priors import FunctionPrior, Laplace, Normal, Relevance
from livi.storage import StorageError
from livi.training import FitError, FitWarning, Recipe, fit, plan

__all__ = [
    "CMMNN",
    "MLP",
    "MMNN",
    "Affine",
    "Antithetic",
    "Bernoulli",
    "Bound",
    "BoundTerms",
    "Categorical",
    "DiagonalNoise",
    "Exact",
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
    "Loop",
    "Multilabel",
    "Normal",
    "Orthogonal",
    "PerLayer",
    "Posterior",
    "Recipe",
    "RelativeNoise",
    "Relevance",
    "SmallestSingularValue",
    "StorageError",
    "Vmap",
    "Weighted",
    "apply_many",
    "estimate_statistics",
    "fit",
    "load",
    "metrics",
    "plan",
    "training",
]
