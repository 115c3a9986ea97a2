"""The maximum a posteriori estimate: one network, no uncertainty about its weights."""

from __future__ import annotations

from typing import Any

from torch import nn

from livi.inference import Starts
from livi.model.likelihoods import Likelihood
from livi.posterior.posterior import Posterior
from livi.rivals.ensemble import as_posterior, map_fits


def fit_map(
    net: nn.Module, data: Any, likelihood: Likelihood, *, steps: int | None = None, **options: Any
) -> Posterior:
    """The best of `recipe.map_restarts` MAP fits: where `livi.inference.fit` with the same seed starts.

    Args:
        steps: of each MAP fit, in place of `recipe.map_steps`.
        **options: as in `livi.Problem.of`, and `recipe` and `seed`. `progress` is accepted, and there is none.
    """
    problem, recipe, starts = map_fits("fit_map", net, data, likelihood, None, steps, options)
    return as_posterior(problem, recipe, Starts(*(values[:1] for values in starts)), "map")
