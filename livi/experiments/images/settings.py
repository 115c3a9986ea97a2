"""Settings of a method as part of its name, so that every result says how it was made: `livi@prior=0.5@noise=0.1`.

prior=S        N(0, S^2) for all weights, in place of the method's own prior
decay=W        weight decay of the networks that are trained by SGD: those that fits start from, map and ensembles
noise=R        of livi: the noise relative to the size of each tensor
rate=R         of livi: the learning rate of the generator, its offset included
offset=R       of livi: the learning rate of the offset (and of a skip) alone, which moves the network that a fit
               started from
temperature=T  of livi: the temperature of the posterior, in place of 1; see `livi.Recipe`
samples=S      of livi: weight vectors for each step and component
draws=D        of all but plain networks: number of networks in a prediction, in place of the problem's number (for
               a pool at least one of each posterior)
epochs=E       of the networks that are trained by SGD, in place of the problem's
fit=E          of livi and mean field: epochs on the bound, in place of the method's own; compare
               `livi@epochs=50@fit=10` with networks of 60 epochs
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from livi.family.noise import RelativeNoise
from livi.inference import Recipe
from livi.model.priors import Normal


@dataclass(frozen=True)
class Settings:
    """The settings of a method; None for those that are left to it."""

    prior: float | None = None
    decay: float | None = None
    noise: float | None = None
    rate: float | None = None
    offset: float | None = None
    temperature: float | None = None
    samples: float | None = None
    draws: float | None = None
    epochs: float | None = None
    fit: float | None = None

    @property
    def given(self) -> tuple[str, ...]:
        return tuple(each.name for each in fields(self) if getattr(self, each.name) is not None)

    def options(self) -> dict[str, Any]:
        """The settings as options of `livi.fit` and its rivals."""
        found: dict[str, Any] = {}
        if self.prior is not None:
            found["prior"] = Normal(self.prior)
        if self.noise is not None:
            share = self.noise
            found["noise"] = lambda layout: RelativeNoise.for_layout(layout, share)
        recipe: dict[str, Any] = {} if self.rate is None else {"affine_rate": self.rate, "nonlinear_rate": self.rate}
        recipe |= {} if self.offset is None else {"affine_rate": self.offset}
        recipe |= {} if self.temperature is None else {"temperature": self.temperature}
        recipe |= {} if self.samples is None else {"num_samples": int(self.samples)}
        if recipe:
            found["recipe"] = Recipe(**recipe)
        return found


def split_name(name: str) -> tuple[str, Settings]:
    """Split a name into the method and its settings.

    >>> method, settings = split_name("ensemble-5@prior=0.5@epochs=50")
    >>> method, settings.given, settings.epochs
    ('ensemble-5', ('prior', 'epochs'), 50.0)

    Raises:
        ValueError: a setting is unknown, or no positive number, or a count is no whole number.
    """
    method, *parts = name.split("@")
    found: dict[str, float] = {}
    for part in parts:
        setting, _, text = part.partition("=")
        allowed = [each.name for each in fields(Settings)]
        if setting not in allowed or setting in found:
            raise ValueError(f"methods: expected each of the settings {', '.join(allowed)} once at most, got {name!r}.")
        found[setting] = _positive(name, text)
    for setting in ("epochs", "samples", "draws"):
        if not found.get(setting, 1.0).is_integer():
            raise ValueError(f"methods: expected a whole number of {setting}, got {name!r}.")
    return method, Settings(**found)


def check_settings(name: str, *, trained: bool) -> None:
    """Raise for settings that do not apply to a method.

    Args:
        trained: whether fits start from networks trained by SGD, so that map and ensembles are such networks.
    """
    method, settings = split_name(name)
    fitted = not (trained and method.startswith(("map", "ensemble")))
    allowed = [*(["prior"] if fitted else []), *(["decay", "epochs"] if trained else [])]
    allowed += ["noise", "rate", "offset", "temperature", "samples"] if method.startswith("livi") else []
    allowed += [] if method.startswith(("map", "ensemble")) else ["draws"]
    allowed += ["fit"] if method.startswith(("livi", "mean_field")) else []
    for setting in settings.given:
        if setting not in allowed:
            raise ValueError(
                f"methods: expected {method} with no settings but {', '.join(allowed)} here, got {name!r}."
            )


def _positive(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 < value < math.inf:
        raise ValueError(f"methods: expected positive numbers for settings, as in livi@prior=0.5, got {name!r}.")
    return value
