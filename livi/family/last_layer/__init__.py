"""A linear last layer under Gaussian noise, integrated out exactly instead of sampled.

Given the weights before it, the last layer of a regression network is a conjugate linear model: the evidence of its
features and the posterior of its own weights are known in closed form. An implicit posterior then has only the earlier
weights to learn, on a bound that is higher by all that was lost on the last layer, and

    q(theta) = q(earlier) p(last | earlier, D)

is still a distribution over all weights, sampled in two steps, of the same model. The price: every step needs all of
the data at once.
"""

from livi.family.last_layer.evidence import Conditional
from livi.family.last_layer.likelihood import LinearGaussian, check_columns
from livi.family.last_layer.network import NotExactError, earlier_layout, find_last
from livi.family.last_layer.problem import integrate_last_layer
from livi.family.last_layer.sampler import ExactLastLayer

__all__ = [
    "Conditional",
    "ExactLastLayer",
    "LinearGaussian",
    "NotExactError",
    "check_columns",
    "earlier_layout",
    "find_last",
    "integrate_last_layer",
]
