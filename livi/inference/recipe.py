"""`Recipe`: the numbers of a fit (steps, rates, samples, start), and the schedules that they define."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from livi import checks

LOG_EVERY = 10  # steps from one row of history to the next
VALUE_EVERY = 50  # the same for an entropy whose value costs more than its gradient; rows in between repeat the last


@dataclass(frozen=True)
class Recipe:
    """Hyper-parameters of a fit. As an option of `fit`, a recipe decides what it names; `livi.plan` chooses the rest.

    >>> Recipe(steps=100).over(Recipe(steps=4000, num_samples=16)).num_samples
    16

    Args:
        steps: optimiser steps on the bound.
        map_steps, map_restarts: the start is the best of so many short maximum a posteriori fits (0 steps: the
            module's own weights).
        affine_rate, nonlinear_rate, hyper_rate: Adam's learning rates for offsets and skips, for the generators'
            nonlinear part, and for noises, observation noise and prior scale.
        warm_up: share of the steps over which the learning rate rises; it then falls to zero by a cosine.
        kl_warm_up: share of the steps over which the weight of the KL term rises from 0 to `temperature`.
        temperature: T, the final weight of the KL term: the fit is of the posterior with the likelihood to the power
            of 1 / T. 1 is Bayes' rule; below 1 the posterior is "cold", surer than the data say. Augmented images
            may want that, since all versions of an example count as one.
        spread: standard deviation of the weights around their start.
        relative_spread: `spread` is a share of the root mean square of each parameter's start.
        num_samples, num_entropy_samples: weight vectors per component and step for the likelihood, and for the entropy.
        entropy_every: k. The entropy is part of every k-th step, with the weight k: its gradient costs much and varies
            slowly, and on average the steps are the same.
        clip_factor: clip a step's gradient at so many times the running average of its norm. None, the default, does
            not: clipping shortens the likelihood's rare large gradients but not the entropy's steady ones, and so
            favours spread.
        averaging: decay of an exponential moving average of the parameters that replaces them at the end, or None.
        lengthened_from: the number of steps that the warm-ups are shares of, where the fit was lengthened later.
    """

    steps: int = 4000
    map_steps: int = 5000
    map_restarts: int = 8
    map_rate: float = 1e-2
    affine_rate: float = 5e-3
    nonlinear_rate: float = 2e-3
    hyper_rate: float = 1e-2
    betas: tuple[float, float] = (0.9, 0.99)
    warm_up: float = 0.05
    kl_warm_up: float = 0.3
    temperature: float = 1.0
    spread: float = 0.05
    relative_spread: bool = False
    num_samples: int = 64
    num_entropy_samples: int = 4
    entropy_every: int = 1
    clip_factor: float | None = None
    averaging: float | None = None
    lengthened_from: int | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        names = [field.name for field in fields(cls)]
        checks.options(cls.__name__, kwargs, names)
        object.__setattr__(self, "_named", frozenset([*names[: len(args)], *kwargs]))
        return self

    def __post_init__(self) -> None:
        for name in ("steps", "map_restarts", "num_samples", "num_entropy_samples", "entropy_every"):
            checks.positive_int(name, getattr(self, name))
        for name in ("map_rate", "affine_rate", "nonlinear_rate", "hyper_rate", "spread", "temperature"):
            checks.positive_float(name, getattr(self, name))
        for name in ("warm_up", "kl_warm_up"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name}: expected a share between 0 and 1, got {getattr(self, name)}.")
        if self.averaging is not None and not 0.0 <= self.averaging < 1.0:
            raise ValueError(f"averaging: expected a decay from 0 to below 1, got {self.averaging}.")
        both = {"num_samples", "num_entropy_samples"} <= self.named
        if both and self.num_entropy_samples > self.num_samples:
            raise ValueError(
                f"num_entropy_samples: expected at most num_samples={self.num_samples}, got {self.num_entropy_samples}."
            )

    @property
    def named(self) -> frozenset[str]:
        """Names of the fields that were given when this recipe was made (all, if made by `dataclasses.replace`)."""
        found: frozenset[str] = self._named  # type: ignore[attr-defined]
        return found

    def over(self, other: Recipe) -> Recipe:
        """The other recipe, with the fields that this one names replaced."""
        values = {name: getattr(self, name) for name in self.named}
        if "num_samples" in values and "num_entropy_samples" not in values:
            values["num_entropy_samples"] = min(other.num_entropy_samples, values["num_samples"])
        if "num_entropy_samples" in values and "num_samples" not in values:
            values["num_samples"] = max(other.num_samples, values["num_entropy_samples"])
        return replace(other, **values)

    def joined(self, other: Recipe) -> Recipe:
        """A recipe that names what either of them names; this one's value where both do.

        >>> Recipe(steps=100).joined(Recipe(steps=200, map_rate=1e-3)).named == {"steps", "map_rate"}
        True
        """
        return Recipe(**{name: getattr(one, name) for one in (other, self) for name in one.named})

    def lengthened(self, steps: int) -> Recipe:
        """A longer fit, whose warm-ups take as many steps as before."""
        return self if steps == self.steps else replace(self, steps=steps, lengthened_from=self._first_steps)

    def lasting(self, steps: int) -> Recipe:
        """The same with so many steps; where these are fewer, `map_steps` falls in proportion."""
        shorter = math.ceil(self.map_steps * min(1.0, checks.positive_int("steps", steps) / self.steps))
        return replace(self, steps=steps, map_steps=shorter)

    def rate_factor(self, step: int) -> float:
        """Learning rate at a step as a share of its peak: a linear rise, then a cosine to zero."""
        rise = self.warm_up * self._first_steps
        if step < rise:
            return (step + 1) / (rise + 1)
        return cosine((step - rise) / max(1.0, self.steps - rise))

    def kl_weight(self, step: int) -> float:
        """Weight of the KL term at a step."""
        rise = self.kl_warm_up * self._first_steps
        return self.temperature * (1.0 if step >= rise else (step + 1) / (rise + 1))

    def entropy_weight(self, step: int) -> float:
        """Weight of the entropy at a step: 0 where it is left out, else `entropy_every`; 1 on average."""
        return 0.0 if (step + 1) % self.entropy_every else float(self.entropy_every)

    @property
    def _first_steps(self) -> int:
        return self.steps if self.lengthened_from is None else self.lengthened_from


# Otherwise `inspect` would show the signature of `__new__`, which names no fields.
_CALL = inspect.signature(Recipe.__init__)
Recipe.__signature__ = _CALL.replace(parameters=list(_CALL.parameters.values())[1:])  # type: ignore[attr-defined]


def cosine(share: float) -> float:
    """Falls from 1 to 0 as the share of a run that is done rises from 0 to 1."""
    return 0.5 * (1.0 + math.cos(math.pi * share))
