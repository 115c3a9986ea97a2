"""Full-rank Gaussian variational inference: every correlation between weights, through the same fit."""

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
    """q(theta) = N(b, W W^T + sigma^2 I) with a full m x m matrix W: what the implicit posterior is without its branch.

    The entropy of an affine generator is exact. Memory: 4 m^2 numbers with Adam's: for at most a few thousand weights.

    Args:
        **options: as in `livi.inference.fit`, except for the generator. The noise sigma is fixed at 0.01 if not given.
    """
    refuse("fit_full_rank", options, "generator")
    options.setdefault("last_layer", "sampled")
    options.setdefault("noise", lambda _: FixedNoise(0.01))
    return fit(net, data, likelihood, generator=Affine.for_layout, **options)
