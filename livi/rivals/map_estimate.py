"""The maximum a posteriori estimate: one network, no uncertainty about its weights."""

from __future__ import annotations

from typing import Any

from torch import nn

from livi.model.likelihoods import Likelihood
from livi.posterior.posterior import Posterior
from livi.rivals.map_start import MapFits, checked


@checked
def fit_map(
    net: nn.Module, data: Any, likelihood: Likelihood, *, steps: int | None = None, **options: Any
) -> Posterior:
    """The best of `recipe.map_restarts` MAP fits: the weights at which `livi.inference.fit` with the same seed starts.

    A learned noise is refitted for the network that is kept.

    Args:
        steps: of each MAP fit, instead of `recipe.map_steps`.
        **options: as in `fit_ensemble`.
    """
    fits = MapFits.of("fit_map", net, data, likelihood, None, steps, options)
    return fits.posterior(fits.best(), "map")
