"""Resuming a fit from a checkpoint: by its own recipe, perhaps lengthened, on the same data and network."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from torch import nn

from livi.inference.planning import plan
from livi.inference.plans import Plan
from livi.inference.recipe import Recipe
from livi.model.likelihoods import Likelihood
from livi.sampling import ChainSettings

MAY_DIFFER = {  # facts of a plan that need not be the same when its fit is resumed
    "seconds_per_step",
    "seconds_per_map_step",
    "memory_bytes",
    "strategy",
    "device",
    "recipe",
    "last_layer_reason",
    "inputs",
}


class OtherSeedError(ValueError):
    """A checkpoint is of a fit with another seed."""


def plan_again(
    resumed: dict[str, Any], net: nn.Module, data: Any, likelihood: Likelihood, *, seed: int, **options: Any
) -> Plan:
    """The plan of a checkpoint's fit, by its own recipe, which may be lengthened; an error names what differs."""
    before = resumed["facts"]
    if resumed["state"]["seed"] != seed:
        raise OtherSeedError(f"checkpoint: expected seed {resumed['state']['seed']} as before, got {seed}.")
    kept = Recipe(**before["recipe"] | {"betas": tuple(before["recipe"]["betas"])})
    asked, steps = (options.pop("recipe", None) or Recipe()).over(kept), options.pop("steps", None)
    options.pop("budget", None)  # the fit's length is known by now
    asked = asked if steps is None else replace(asked, steps=steps, map_steps=kept.map_steps)  # the start is over
    # The user may pass the recipe of the first run, which does not know that the fit was lengthened since.
    asked = replace(asked, lengthened_from=kept.lengthened_from)
    chained = before.get("chains")  # passing a recipe, as below, would switch off the rule that adds chains
    if options.setdefault("polish", chained is not None) not in (None, chained is not None):
        raise ValueError(f"checkpoint: expected polish={chained is not None} as before, got {options['polish']}.")
    options["polish"] = chained is not None
    if options.get("components") is None and options.get("family") is None:  # likewise the rule for mixtures
        options["components"] = before.get("components")
    prepared = plan(net, data, likelihood, seed=seed, recipe=asked, **options)
    prepared = replace(prepared, chains=None if chained is None else ChainSettings(**chained))
    for name, value in asdict(prepared.recipe).items():
        if value != getattr(kept, name) and not (name == "steps" and value > kept.steps):
            raise ValueError(
                f"checkpoint: expected the same recipe as before, or more steps, but {name} was {getattr(kept, name)} "
                f"and is {value}; pass the same arguments, or another checkpoint file."
            )
    now = prepared.summary()
    for name in sorted((now.keys() & before.keys()) - MAY_DIFFER, key=lambda name: (name != "num_data", name)):
        if before.get(name) != now[name]:
            raise ValueError(
                f"checkpoint: expected the same fit as before, but {_difference(name, before.get(name), now[name])}; "
                "pass the same arguments, or another checkpoint file. What was left open is chosen by the version of "
                "livi: a fit that an earlier one began, go on with that."
            )
    return replace(prepared, recipe=kept.lengthened(prepared.recipe.steps))


FINGERPRINTS = {
    "first_batch": "the data's first batch holds other examples",
    "first_weights": "the network to start from has other weights",
    "example_weights": "the examples have other weights",
    "buffers": "the network's buffers hold other numbers (a network that is made anew may have others)",
    "fixed_weights": "the weights that stay fixed are others (a network that is made anew is another one)",
}


def _difference(name: str, before: Any, now: Any) -> str:
    """In words, what the innermost differing part was and is."""
    if name in FINGERPRINTS:
        return FINGERPRINTS[name]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        before, now = dict(enumerate(before)), dict(enumerate(now))
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*now, *(key for key in before if key not in now)]:
            if before.get(key) != now.get(key):
                return _difference(f"{name}.{key}", before.get(key), now.get(key))
    return f"{name} was {before} and is {now}"
