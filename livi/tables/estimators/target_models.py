"""Models of a regressor's target: its scale and its noise, and which of them suit the targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from livi.tables.estimators.scaling import Array

MAX_COUNT_MEDIAN = 50  # the largest median of whole numbers that are treated as counts


class Model(NamedTuple):
    """The scale of a target, and its noise on that scale."""

    target_scale: str  # "plain", "log" or "count"
    noise: str  # "constant", "varying" or "network"; for counts "poisson" or "negative-binomial"

    def __str__(self) -> str:
        return f"{_SCALES[self.target_scale]} with {_NOISES.get(self.noise, self.noise)} noise"

    @property
    def label(self) -> str:
        """The scale and the noise in two words."""
        return " ".join(self)

    @property
    def settings(self) -> dict[str, str]:
        """The parameters of the estimator that name this model."""
        return self._asdict()

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Model:
        """The model from a file; older ones have further entries, which are ignored."""
        return cls(facts["target_scale"], facts["noise"])


_SCALES = {"plain": "the target as it is", "log": "the logarithm of the target", "count": "the target as a count"}
_NOISES = {"network": "the network's own", "poisson": "Poisson", "negative-binomial": "negative binomial"}
MODELS = (  # simplest first
    Model("plain", "constant"),
    Model("log", "constant"),
    Model("count", "poisson"),
    Model("plain", "varying"),
    Model("log", "varying"),
    Model("count", "negative-binomial"),
)
CHAIN_MODELS = (Model("plain", "network"), Model("log", "network"))  # by Markov chains
NOISES = tuple(dict.fromkeys(model.noise for model in (*MODELS, *CHAIN_MODELS)))


def candidates(target_scale: str, noise: str, targets: Array) -> list[Model]:
    """The models that the two settings allow, simplest first; "auto" allows all that suit the targets.

    Models sampled by chains are left out unless named, since they are tried last; see `sampled_like`.

    >>> candidates("auto", "auto", np.array([0.0, 2.0, 1.0]))[1].label
    'count poisson'
    """
    possible = {"plain": True, "log": bool((targets > 0).all()), "count": look_counted(targets)}
    return [
        model
        for model in (CHAIN_MODELS if noise == "network" else MODELS)
        if (model.target_scale == target_scale or (target_scale == "auto" and possible[model.target_scale]))
        and noise in (model.noise, "auto")
    ]


def check_targets(target_scale: str, noise: str, targets: Array) -> None:
    """Raise ValueError if the settings do not suit each other or the targets."""
    if target_scale == "log" and not (targets > 0).all():
        raise ValueError(f"target_scale='log': expected targets above 0, got {targets.min():.8g}; pass 'plain'.")
    if target_scale == "count" and not are_counts(targets):
        raise ValueError("target_scale='count': expected counts 0, 1, 2, ..., got other numbers; pass 'plain'.")
    if not candidates(target_scale, noise, targets):
        raise ValueError(
            f"noise: expected one that suits target_scale={target_scale!r}, got {noise!r}; counts have "
            "poisson or negative-binomial noise, others constant, varying or network noise."
        )


def sampled_like(model: Model) -> Model | None:
    """The model on the same scale that is sampled by chains; None for counts.

    >>> sampled_like(Model("log", "varying")).label
    'log network'
    """
    return next((other for other in CHAIN_MODELS if other.target_scale == model.target_scale), None)


def are_counts(targets: Array) -> bool:
    """True if all targets are whole numbers from 0 up."""
    return bool((targets >= 0).all() and (targets == np.round(targets)).all())


def look_counted(targets: Array) -> bool:
    """True for small counts: large whole numbers, such as prices without cents, are measured rather than counted."""
    return are_counts(targets) and bool(np.median(targets) <= MAX_COUNT_MEDIAN)
