"""Likelihoods: log p(y | network output) for each example, and what a network output predicts.

Shapes: outputs (S, B, ...) for S weight samples and B examples, targets (B, ...), log-probabilities (S, B). Axes
behind B are one example's event (several targets, pixels, tokens) and are summed, at a cost linear in their number.
"""

from livi.model.likelihoods.base import (
    ClassificationLikelihood,
    Likelihood,
    RegressionLikelihood,
    aligned,
    single,
)
from livi.model.likelihoods.contaminated import ContaminatedGaussian
from livi.model.likelihoods.continuous import LogNormal, StudentT
from livi.model.likelihoods.counts import NegativeBinomial, Poisson
from livi.model.likelihoods.forms import Logits, LogNormals, Normals
from livi.model.likelihoods.gaussian import Gaussian, GuardedGaussian, HeteroscedasticGaussian
from livi.model.likelihoods.labels import Bernoulli, Categorical, Multilabel
from livi.model.likelihoods.others import FunctionLikelihood, Weighted, pass_weights

__all__ = [
    "Bernoulli",
    "Categorical",
    "ClassificationLikelihood",
    "ContaminatedGaussian",
    "FunctionLikelihood",
    "Gaussian",
    "GuardedGaussian",
    "HeteroscedasticGaussian",
    "Likelihood",
    "LogNormal",
    "LogNormals",
    "Logits",
    "Multilabel",
    "NegativeBinomial",
    "Normals",
    "Poisson",
    "RegressionLikelihood",
    "StudentT",
    "Weighted",
    "aligned",
    "pass_weights",
    "single",
]
