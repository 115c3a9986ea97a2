"""Deep ensembles: MAP estimates from different starts, taken as equally likely samples."""

from __future__ import annotations

from typing import Any

from torch import nn

from livi import checks
from livi.model.likelihoods import Likelihood
from livi.posterior import Posterior
from livi.rivals.map_start import MapFits


def fit_ensemble(
    net: nn.Module, data: Any, likelihood: Likelihood, *, members: int = 5, steps: int | None = None, **options: Any
) -> Posterior:
    """`members` MAP estimates trained side by side, none selected; the first starts at the network's own weights.

    All share one likelihood: an observation noise that is learned is the best for all members together.

    Args:
        steps: of each MAP fit, in place of `recipe.map_steps`.
        **options: as in `livi.Problem.of`, and `recipe`, `seed`, `autocast`, `capture`. `progress` is accepted, and
            there is none; of `last_layer` only "sampled", which all layers are.
    """
    checks.positive_int("members", members)
    fits = MapFits.of("fit_ensemble", net, data, likelihood, members, steps, options)
    return fits.posterior(fits.starts(), "ensemble")
