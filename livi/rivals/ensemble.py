"""Deep ensembles: MAP estimates from different initialisations, as equally likely draws of the weights."""

from __future__ import annotations

from typing import Any

from torch import nn

from livi import checks
from livi.model.likelihoods import Likelihood
from livi.posterior import Posterior
from livi.rivals.map_start import MapFits, checked


@checked
def fit_ensemble(
    net: nn.Module, data: Any, likelihood: Likelihood, *, members: int = 5, steps: int | None = None, **options: Any
) -> Posterior:
    """A deep ensemble of `members` MAP estimates, all kept; the first starts at the network's own weights.

    Members are trained side by side and share one likelihood: a learned observation noise is the best one for all
    members together.

    Args:
        steps: of each MAP fit, instead of `recipe.map_steps`.
        **options: as in `livi.Problem.of`, and `recipe`, `seed`, `autocast`, `capture`. `progress` is accepted and has
            no effect; `last_layer` may only be "sampled".
    """
    checks.positive_int("members", members)
    fits = MapFits.of("fit_ensemble", net, data, likelihood, members, steps, options)
    return fits.posterior(fits.starts(), "ensemble")
