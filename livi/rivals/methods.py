"""All methods by name, and how each spends a budget of gradients, for `livi.compare` and the benchmarks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any, NamedTuple

from livi.inference import Recipe, fit
from livi.posterior.posterior import Posterior
from livi.rivals.avb import fit_avb
from livi.rivals.ensemble import fit_ensemble
from livi.rivals.full_rank import fit_full_rank
from livi.rivals.ivon import fit_ivon
from livi.rivals.kivi import fit_kivi
from livi.rivals.langevin import fit_langevin
from livi.rivals.laplace import fit_laplace_last_layer, fit_laplace_linearised, fit_laplace_low_rank
from livi.rivals.map_estimate import fit_map
from livi.rivals.mc_dropout import fit_mc_dropout, with_masks
from livi.rivals.mean_field import fit_mean_field
from livi.rivals.mnf import fit_mnf
from livi.rivals.nuts import fit_nuts
from livi.rivals.sivi import fit_sivi
from livi.rivals.swag import fit_swag
from livi.sampling import LANGEVIN_ENSEMBLE, LANGEVIN_MAP_STEPS

Fit = Callable[..., Posterior]  # (net, data, likelihood, *, seed, progress, **options)

MIN_STEPS = 200  # of a method's own after the MAP fits: fewer steps give no usable posterior
MIN_DRAWS = 20  # of each chain, after as many steps of warm-up
MOST_MEMBERS = 100  # of an ensemble: a prediction uses no more by default


class Budget(NamedTuple):
    """The number of gradients that a method may take on a problem.

    Args:
        gradients: number of gradients of the log joint density, each at one weight vector and on one batch.
        recipe: the recipe that `livi.inference.fit` would use for the problem.
        batches: number of batches in an epoch. A gradient on all data, as in Markov chains, counts as this many.
    """

    gradients: int
    recipe: Recipe
    batches: int = 1


Spend = Callable[[Budget], dict[str, Any]]


@dataclass(frozen=True)
class Method:
    """A method that fits a posterior.

    Args:
        title: name in tables and figures.
        fit: function `fit(net, data, likelihood, *, seed, progress, **options)` that returns a `Posterior`.
        spend: function from a `Budget` to the options with which `fit` takes about as many gradients.
        needs: module of an optional package that the method needs, if any.
    """

    title: str
    fit: Fit
    spend: Spend
    needs: str = ""

    @property
    def installed(self) -> bool:
        return not self.needs or find_spec(self.needs) is not None


def steps_on_the_bound(budget: Budget) -> dict[str, Any]:
    """For methods trained by `livi.fit`: MAP fits, then steps with `num_samples` weight vectors each.

    With fewer steps than the recipe has, `Recipe.lasting` shortens the MAP fits in proportion; with more, they stay.

    >>> recipe = Recipe(steps=100, num_samples=8, map_steps=50, map_restarts=4)
    >>> steps_on_the_bound(Budget(5_000, recipe)), steps_on_the_bound(Budget(500, recipe))
    ({'steps': 600}, {'steps': 50})
    """
    gradients, recipe = budget.gradients, budget.recipe
    start, rest = recipe.map_restarts * recipe.map_steps, recipe.num_samples * recipe.steps
    share = gradients / (start + rest)
    steps = recipe.steps * share if share < 1.0 else (gradients - start) / recipe.num_samples
    return {"steps": max(1, round(steps))}


def steps_with_masks(budget: Budget) -> dict[str, Any]:
    """As `steps_on_the_bound`, for MC dropout, which has fewer weight vectors per step."""
    return steps_on_the_bound(budget._replace(recipe=with_masks(None).over(budget.recipe)))


def longer_map_fits(budget: Budget) -> dict[str, Any]:
    """For methods that are a MAP fit, or add little to one: the recipe's number of MAP fits, with all the gradients."""
    gradients, recipe = budget.gradients, budget.recipe
    restarts = max(1, min(recipe.map_restarts, gradients // max(1, recipe.map_steps)))
    return {"recipe": Recipe(map_restarts=restarts, map_steps=max(1, gradients // restarts))}


def map_then_steps(budget: Budget) -> dict[str, Any]:
    """For SWAG and IVON: half of the gradients for MAP fits, half for the method's own steps.

    >>> map_then_steps(Budget(10_000, Recipe(map_steps=1_000, map_restarts=4)))
    {'recipe': Recipe(..., map_steps=1250, map_restarts=4, ...), 'steps': 5000}
    """
    half = budget.gradients // 2
    return longer_map_fits(budget._replace(gradients=half)) | {"steps": max(MIN_STEPS, half)}


def chains_of_draws(budget: Budget) -> dict[str, Any]:
    """For NUTS: a quarter for a MAP fit of each chain, the rest for trajectories, counted at the maximal length.

    >>> chains_of_draws(Budget(40_000, Recipe(map_steps=1_000)))
    {'chains': 4, 'warmup': 71, 'draws': 71, 'max_tree_depth': 6, 'recipe': Recipe(..., map_steps=1000, ...)}
    """
    chains, depth = 4, 6
    steps = max(1, min(budget.recipe.map_steps or Recipe.map_steps, budget.gradients // 4 // chains))
    longest = (2**depth - 1) * budget.batches
    each = max(MIN_DRAWS, (budget.gradients - chains * steps) // (2 * chains * longest))
    lengths = {"chains": chains, "warmup": each, "draws": each, "max_tree_depth": depth}
    return lengths | {"recipe": Recipe(map_steps=steps)}


def map_then_chains(budget: Budget) -> dict[str, Any]:
    """For Langevin ensembles: up to 300 gradients for each chain's MAP fit, the rest for steps of two on all data.

    >>> map_then_chains(Budget(40_000, Recipe())), map_then_chains(Budget(40_000, Recipe(), batches=10))
    ({'chains': 8, 'map_steps': 300, 'steps': 2350}, {'chains': 8, 'map_steps': 300, 'steps': 235})
    """
    each = budget.gradients // LANGEVIN_ENSEMBLE.chains
    map_steps = max(1, min(LANGEVIN_MAP_STEPS, each // 4))
    steps = max(1, (each - map_steps) // (2 * budget.batches))
    return {"chains": LANGEVIN_ENSEMBLE.chains, "map_steps": map_steps, "steps": steps}


def more_members(budget: Budget) -> dict[str, Any]:
    """For deep ensembles: as many MAP fits of the recipe's length as the gradients allow, or two shorter ones.

    >>> more_members(Budget(12_000, Recipe(map_steps=1_000)))
    {'members': 12, 'steps': 1000}
    """
    gradients, length = budget.gradients, budget.recipe.map_steps or Recipe.map_steps
    members = min(MOST_MEMBERS, max(2, gradients // length))
    return {"members": members, "steps": max(1, min(length, math.ceil(gradients / members)))}


METHODS: dict[str, Method] = {
    "livi": Method("LIVI", fit, steps_on_the_bound),
    "map": Method("MAP", fit_map, longer_map_fits),
    "ensemble": Method("Deep ensemble", fit_ensemble, more_members),
    "langevin": Method("Langevin ensemble", fit_langevin, map_then_chains),
    "mean_field": Method("Mean field", fit_mean_field, steps_on_the_bound),
    "full_rank": Method("Full rank", fit_full_rank, steps_on_the_bound),
    "avb": Method("AVB", fit_avb, steps_on_the_bound),
    "kivi": Method("KIVI", fit_kivi, steps_on_the_bound),
    "sivi": Method("SIVI", fit_sivi, steps_on_the_bound),
    "mnf": Method("MNF", fit_mnf, steps_on_the_bound),
    "mc_dropout": Method("MC dropout", fit_mc_dropout, steps_with_masks),
    "swag": Method("SWAG", fit_swag, map_then_steps),
    "ivon": Method("IVON", fit_ivon, map_then_steps, "ivon"),
    "laplace_last_layer": Method("Laplace (last layer)", fit_laplace_last_layer, longer_map_fits, "laplace"),
    "laplace_linearised": Method("Laplace (linearised)", fit_laplace_linearised, longer_map_fits, "laplace"),
    "laplace_low_rank": Method("Laplace (low rank)", fit_laplace_low_rank, longer_map_fits, "laplace"),
    "nuts": Method("NUTS", fit_nuts, chains_of_draws, "numpyro"),
}


def method_named(name: str) -> Method:
    """The method of this name, or a ValueError that lists all names.

    >>> method_named("full-rank")
    Traceback (most recent call last):
    ValueError: method: expected one of livi, map, ensemble, langevin, mean_field..., got 'full-rank'; did you mean ...
    """
    names = list(METHODS)
    if name not in names:
        near = get_close_matches(str(name), names, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else "correct the name."
        raise ValueError(f"method: expected one of {', '.join(names)}, got {name!r}; {remedy}")
    return METHODS[name]
