"""livi: an honest posterior over the weights of any PyTorch network.

A neural sampler theta = g(z) + noise, trained on an approximate evidence lower bound whose entropy comes from
locally linearising g (Uppal et al., NeurIPS 2023), so that no discriminator is needed.
"""

import importlib
from typing import TYPE_CHECKING, Any

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
from livi.noise import DiagonalNoise, FixedNoise, LayerNoise, LearnedNoise
from livi.objective import Bound, BoundTerms
from livi.posterior import ImplicitPosterior
from livi.priors import FunctionPrior, Laplace, Normal, Relevance
from livi.storage import StorageError
from livi.training import FitError, FitWarning, Recipe, fit, plan
from livi.version import __version__ as __version__

if TYPE_CHECKING:
    from livi import estimators as estimators
    from livi.estimators import LIVIClassifier as LIVIClassifier
    from livi.estimators import LIVIRegressor as LIVIRegressor

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

# Not in __all__, so that a star import works without the packages that they need.
_ON_USE = dict.fromkeys(["LIVIClassifier", "LIVIRegressor", "estimators"], "livi.estimators")


def __getattr__(name: str) -> Any:
    """What needs optional packages is imported when it is first used."""
    if name not in _ON_USE:
        raise AttributeError(f"module 'livi' has no attribute {name!r}")
    home = importlib.import_module(_ON_USE[name])
    return home if home.__name__ == f"livi.{name}" else getattr(home, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_USE})
