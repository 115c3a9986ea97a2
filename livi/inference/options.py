"""The options that `fit` and `plan` share: their types, and errors for misspelt or misplaced names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, ParamSpec, TypedDict, TypeVar

import torch

from livi import checks
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
    """`livi.checks.options` for a function that takes a recipe, whose fields are known too.

    >>> check_options("fit", ["num_samples"], ["steps"])
    Traceback (most recent call last):
    TypeError: fit: got 'num_samples', which is a field of Recipe: pass recipe=livi.Recipe(num_samples=...).
    """
    checks.options(function, given, known, fields_of_recipe())


def fields_of_recipe(prefix: str = "") -> dict[str, str]:
    """The fields of a recipe whose names begin so, with how to pass each."""
    names = [field.name for field in fields(Recipe) if field.name.startswith(prefix)]
    return {name: f"a field of Recipe: pass recipe=livi.Recipe({name}=...)" for name in names}


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
