"""Full-rank Gaussian variational inference: a Gaussian with all correlations between weights, by `livi.fit`."""

from __future__ import annotations

from typing import Any

from torch import nn

from livi.family.generators import Affine
from livi.family.noise import FixedNoise
from livi.inference import fit
from livi.model.likelihoods import Likelihood
from livi.posterior.posterior import Posterior
from livi.rivals.options import refuse


def fit_full_rank(net: nn.Module, data: Any, likelihood: Likelihood, **options: Any) -> Posterior:
    """q(theta) = N(b, W W^T + sigma^2 I) with a full m x m matrix W: livi's posterior with an affine generator.

    The entropy is exact. Memory is 4 m^2 numbers, counting gradient and Adam's moments, so that m can be at most a few
    thousand.

    Args:
        **options: as in `livi.inference.fit`, except for the generator. By default, sigma is fixed at 0.01.
    """
    refuse("fit_full_rank", options, "generator")
    options.setdefault("last_layer", "sampled")
    options.setdefault("noise", lambda _: FixedNoise(0.01))
    return fit(net, data, likelihood, generator=Affine.for_layout, **options)
