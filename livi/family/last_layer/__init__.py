"""A linear last layer, integrated out instead of sampled: exactly under Gaussian noise, by a bound for labels.

Given the weights before it, the last layer of a regression network is a conjugate linear model: the evidence of its
features and the posterior of its own weights are known in closed form. An implicit posterior then has only the earlier
weights to learn, on a bound that is higher by all that was lost on the last layer, and

    q(theta) = q(earlier) p(last | earlier, D)

is still a distribution over all weights, sampled in two steps, of the same model. For classes and labels the best
Gaussian given the features, q(last | earlier), stands in for p, with a lower bound in place of the evidence
(`logits.py`). The price: every step needs all of the data at once.
"""

from livi.family.last_layer.evidence import Conditional
from livi.family.last_layer.gaussian import LinearGaussian
from livi.family.last_layer.labels import LinearLogits
from livi.family.last_layer.marginal import Marginal, check_columns
from livi.family.last_layer.network import NotExactError, earlier_layout, find_last
from livi.family.last_layer.problem import LIMIT, evidence_multiplications, integrate_last_layer
from livi.family.last_layer.sampler import ExactLastLayer

__all__ = [
    "LIMIT",
    "Conditional",
    "ExactLastLayer",
    "LinearGaussian",
    "LinearLogits",
    "Marginal",
    "NotExactError",
    "check_columns",
    "earlier_layout",
    "evidence_multiplications",
    "find_last",
    "integrate_last_layer",
]
