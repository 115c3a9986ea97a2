"""The options that `fit` and `plan` share: their types, and errors for misspelt or misplaced names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, ParamSpec, TypedDict, TypeVar

import torch

from livi.family.entropy import EntropyEstimator
from livi.family.family import Family
from livi.family.generators import Generator
from livi.family.latents import Latents
from livi.family.noise import Noise
from livi.inference.recipe import Recipe
from livi.model.data import Augment, Unpack
from livi.model.priors import Prior
from livi.model.problem import Choice
from livi.network.parameters import Forward
from livi.posterior.posterior import Posterior

P = ParamSpec("P")
T = TypeVar("T")


class PlanOptions(TypedDict, total=False):
    """The options of a fit besides network, data, likelihood and seed; `livi.plan` explains them."""

    include: str | Sequence[str]
    exclude: str | Sequence[str]
    forward: Forward | None
    unpack: Unpack | None
    num_data: int | None
    batch_size: int | None
    augment: Augment | None
    family: Choice[Family]
    generator: Choice[Generator]
    noise: Choice[Noise]
    prior: Choice[Prior]
    entropy: EntropyEstimator | None
    latents: Latents | None
    recipe: Recipe | None
    steps: int | None
    budget: float | str | None
    start: str | Posterior
    components: int | None
    polish: bool | None
    autocast: torch.dtype | None
    capture: bool | None
    last_layer: str
    device: torch.device | str | None
    standardise: bool | str


def check_options(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise a TypeError about the first unknown name, which suggests the nearest one or says where it belongs.

    >>> check_options("fit", ["num_samples"], ["steps"])
    Traceback (most recent call last):
    TypeError: fit: got 'num_samples', which is a field of Recipe: pass recipe=livi.Recipe(num_samples=...).
    """
    options = list(known)
    recipe = [field.name for field in fields(Recipe) if field.name not in options]
    for name in given:
        if name in options:
            continue
        if name in recipe:
            raise TypeError(f"{function}: got {name!r}, which is a field of Recipe: pass {_of_recipe(name)}.")
        near = get_close_matches(name, [*options, *recipe], n=1)
        if not near:
            raise TypeError(f"{function}: expected options among {', '.join(options)}, got {name!r}; correct the name.")
        where = f" It is a field of Recipe: pass {_of_recipe(near[0])}." if near[0] in recipe else ""
        raise TypeError(f"{function}: got {name!r}; did you mean {near[0]!r}?{where}")


def checked(like: Callable[..., Any] | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function with `check_options` on the names of its keyword arguments.

    Args:
        like: the function whose options **options stand for; `help` and editors then see them in the signature.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)
        if like is not None:
            signature = _with_options_of(inspect.signature(like), signature)

        positional = [one.name for one in signature.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            check_options(function.__name__, kwargs, signature.parameters)
            if len(args) > len(positional):
                raise TypeError(
                    f"{function.__name__}: expected {', '.join(positional)}, and the rest by name, got {len(args)} "
                    "arguments without a name; inputs and targets are one: (X, y)."
                )
            return function(*args, **kwargs)

        vars(call)["__signature__"] = signature
        return call

    return decorate


def _with_options_of(like: inspect.Signature, signature: inspect.Signature) -> inspect.Signature:
    """The signature with the other one's keyword arguments in place of **options."""
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    named = {one.name for one in own}
    more = [one for one in like.parameters.values() if one.kind is one.KEYWORD_ONLY and one.name not in named]
    return signature.replace(parameters=[*own, *more])


def _of_recipe(name: str) -> str:
    return f"recipe=livi.Recipe({name}=...)"


def joined_options(*options: Mapping[str, Any]) -> dict[str, Any]:
    """Options from several sources merged, later ones winning; recipes are merged by the fields that each names.

    >>> found = joined_options({"seed": 1, "recipe": Recipe(steps=5)}, {"seed": 2, "recipe": Recipe(map_steps=3)})
    >>> found["seed"], sorted(found["recipe"].named)
    (2, ['map_steps', 'steps'])
    """
    found = {name: value for each in options for name, value in each.items()}
    recipes = [each["recipe"] for each in options if each.get("recipe") is not None]
    if recipes:
        found["recipe"] = functools.reduce(lambda before, later: later.joined(before), recipes)
    return found
