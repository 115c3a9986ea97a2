"""livi: an honest posterior over the weights of any PyTorch network.

A neural sampler theta = g(z) + noise, trained on an approximate evidence lower bound whose entropy comes from
locally linearising g (Uppal et al., NeurIPS 2023), so that no discriminator is needed.
"""

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
)
from livi.noise import DiagonalNoise, FixedNoise, LayerNoise, LearnedNoise
from livi.objective import Bound, BoundTerms
from livi.posterior import ImplicitPosterior
from livi.priors import FunctionPrior, Laplace, Normal
from livi.storage import StorageError
from livi.training import FitError, FitWarning, Recipe, fit, plan

__version__ = "0.1.0"

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
    "SmallestSingularValue",
    "StorageError",
    "Vmap",
    "apply_many",
    "estimate_statistics",
    "fit",
    "load",
    "metrics",
    "plan",
    "training",
]
