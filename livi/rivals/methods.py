"""Every way to a posterior by its name: what `livi.compare` and the benchmarks choose from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from livi.inference import Recipe, fit
from livi.posterior.posterior import Posterior
from livi.rivals.ensemble import fit_ensemble
from livi.rivals.full_rank import fit_full_rank
from livi.rivals.map_estimate import fit_map
from livi.rivals.mean_field import fit_mean_field

Fit = Callable[..., Posterior]  # (net, data, likelihood, *, seed, progress, **options)
Spend = Callable[[int, Recipe], dict[str, Any]]

MOST_MEMBERS = 100  # of an ensemble, as many as a prediction asks


@dataclass(frozen=True)
class Method:
    """A way to a posterior.

    Args:
        title: for tables and figures.
        fit: `fit(net, data, likelihood, *, seed, progress, **options)`, which returns a `Posterior`.
        spend: options with which it takes about so many gradients, given the problem's default recipe. One gradient is
            that of the log joint density at one weight vector, on one batch.
    """

    title: str
    fit: Fit
    spend: Spend


def steps_on_the_bound(gradients: int, recipe: Recipe) -> dict[str, Any]:
    """For what goes through `livi.fit`: MAP fits, then steps with `num_samples` weight vectors each.

    `Recipe.lasting` shortens the MAP fits along with the rest, and does not lengthen them.

    >>> steps_on_the_bound(5_000, Recipe(steps=100, num_samples=8, map_steps=50, map_restarts=4))
    {'steps': 600}
    >>> steps_on_the_bound(500, Recipe(steps=100, num_samples=8, map_steps=50, map_restarts=4))
    {'steps': 50}
    """
    start, rest = recipe.map_restarts * recipe.map_steps, recipe.num_samples * recipe.steps
    share = gradients / (start + rest)
    steps = recipe.steps * share if share < 1.0 else (gradients - start) / recipe.num_samples
    return {"steps": max(1, round(steps))}


def longer_map_fits(gradients: int, recipe: Recipe) -> dict[str, Any]:
    """The recipe's number of MAP fits, as long as the gradients last, of which the best counts."""
    restarts = max(1, min(recipe.map_restarts, gradients // max(1, recipe.map_steps)))
    return {"recipe": Recipe(map_restarts=restarts, map_steps=max(1, gradients // restarts))}


def more_members(gradients: int, recipe: Recipe) -> dict[str, Any]:
    """MAP fits of the recipe's length, as many as the gradients pay for; shorter ones rather than one alone.

    >>> more_members(12_000, Recipe(map_steps=1_000))
    {'members': 12, 'steps': 1000}
    """
    length = recipe.map_steps or Recipe.map_steps
    members = min(MOST_MEMBERS, max(2, gradients // length))
    return {"members": members, "steps": max(1, min(length, math.ceil(gradients / members)))}


METHODS: dict[str, Method] = {
    "livi": Method("LIVI", fit, steps_on_the_bound),
    "map": Method("MAP", fit_map, longer_map_fits),
    "ensemble": Method("Deep ensemble", fit_ensemble, more_members),
    "mean_field": Method("Mean field", fit_mean_field, steps_on_the_bound),
    "full_rank": Method("Full rank", fit_full_rank, steps_on_the_bound),
}


def method_named(name: str) -> Method:
    """The method of this name.

    >>> method_named("full-rank")
    Traceback (most recent call last):
    ValueError: method: expected one of livi, map, ensemble, mean_field, full_rank..., got 'full-rank'; did you mean ...
    """
    names = list(METHODS)
    if name not in names:
        near = get_close_matches(str(name), names, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else "correct the name."
        raise ValueError(f"method: expected one of {', '.join(names)}, got {name!r}; {remedy}")
    return METHODS[name]
