"""What to model a target by, chosen by trial: short fits to some of the rows, scored on others of them.

All trials are scored by the log density of the same held-out targets in their own units, so that a model of the
logarithm is comparable with one of the target itself. In doubt the simpler model is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from livi.tables.estimators.scaling import Array

FEWEST = 60  # rows that are worth a trial
MOST = 600  # rows of a trial
HELD = 0.3  # of which are scored
STEPS = 100
SURE = 1.64  # standard errors by which the best must lead


class Model(NamedTuple):
    """The scale of a target, and its noise on that scale."""

    target_scale: str  # "plain" or "log"
    noise: str  # "constant", "varying" or "network"

    def __str__(self) -> str:
        scale = "the target as it is" if self.target_scale == "plain" else "the logarithm of the target"
        noise = "a noise that the network gives" if self.noise == "network" else f"{self.noise} noise"
        return f"{scale} with {noise}"


@dataclass(frozen=True)
class Trial:
    """A model that was tried, and the mean log density of the held-out targets under it; None if it is not finite."""

    model: Model
    log_score: float | None


def candidates(target_scale: str, noise: str, targets: Array) -> list[Model]:
    """The models that the two settings allow, the simplest first; "auto" allows all that the targets do."""
    positive = bool((targets > 0).all())
    scales = (("plain", "log") if positive else ("plain",)) if target_scale == "auto" else (target_scale,)
    noises = ("constant", "varying") if noise == "auto" else (noise,)
    return [Model(scale, one) for one in noises for scale in scales]


def trial_rows(num_rows: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places of the rows to fit to in a trial, and of those to score."""
    drawn = np.random.default_rng(seed).permutation(num_rows)[:MOST]
    held = max(1, round(HELD * len(drawn)))
    return np.sort(drawn[held:]), np.sort(drawn[:held])


def chosen(models: Sequence[Model], score: Callable[[Model], Array]) -> tuple[Model, list[Trial]]:
    """The model with the best score, and all scores; a simpler one where the best does not clearly lead.

    Args:
        score: the log density of each held-out target, (n,), under a model.
    """
    scores = {model: score(model) for model in models}
    best = max(models, key=lambda model: _or_worst(_mean(scores[model])))
    simplest = next(model for model in models if not _clearly_below(scores[model], scores[best]))
    return simplest, [Trial(model, _mean(scores[model])) for model in models]


def _clearly_below(scores: Array, best: Array) -> bool:
    lead = best - scores
    if not np.isfinite(lead).all():
        return _mean(scores) is None and _mean(best) is not None
    return bool(lead.mean() > SURE * lead.std() / math.sqrt(len(lead)))


def _mean(scores: Array) -> float | None:
    mean = float(scores.mean())
    return mean if math.isfinite(mean) else None


def _or_worst(mean: float | None) -> float:
    return -math.inf if mean is None else mean
