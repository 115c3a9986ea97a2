"""livi: an honest posterior over the weights of any PyTorch network.

A neural sampler theta = g(z) + noise, trained on an approximate evidence lower bound whose entropy comes from
locally linearising g (Uppal et al., NeurIPS 2023), so that no discriminator is needed.
"""

from livi.entropy import Exact, Lanczos, SmallestSingularValue
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
    "SmallestSingularValue",
    "Vmap",
    "apply_many",
    "estimate_statistics",
]
