"""Entropy of q(theta) = E_z N(theta; g(z), D) by linearising g: one estimator a file, nats with every constant."""

from livi.family.entropy.estimate import (
    Capturable,
    Divisible,
    EntropyEstimate,
    EntropyEstimator,
    EntropyReport,
    Valueless,
)
from livi.family.entropy.exact import Exact
from livi.family.entropy.importance import DensityEstimate, importance_log_density
from livi.family.entropy.lanczos import Lanczos
from livi.family.entropy.oriented import Oriented, reversed_orientation
from livi.family.entropy.smallest import SmallestSingularValue

__all__ = [
    "Capturable",
    "DensityEstimate",
    "Divisible",
    "EntropyEstimate",
    "EntropyEstimator",
    "EntropyReport",
    "Exact",
    "Lanczos",
    "Oriented",
    "SmallestSingularValue",
    "Valueless",
    "importance_log_density",
    "reversed_orientation",
]
