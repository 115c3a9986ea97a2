"""Choice of the model of a target by trials: short fits to some of the rows, scored on others.

All trials are scored by the log density of the same held-out targets in their own units, so that a model of the
logarithm is comparable with one of the target itself. If one of the models is for counts, scores are probabilities of
counts; those of a density are its integral over half a unit on either side. Of models whose scores are not clearly
different the simplest is chosen. It is then compared with a network that outputs mean and noise and is sampled by
Markov chains, the most costly model and the best on many small tables. That one is chosen if its score is higher at
all: its chains are a twelfth as long in a trial as in a fit, and gain more from length than other models do
(`python -m benchmarks.choose_sure`).

To make all trials costs as much as a fit, and most tables need only a few. So the simplest model is tried first, and
others if its residuals or the targets suggest them (`plausible`). If constant noise is the best of these, chains begin
with a look, a trial of a fourth of the length, and continue if it has the highest score; if varying noise is the best,
which such a network learns only late, the full trial is made at once (`chosen`). These rules were chosen by
`python -m benchmarks.choose_looks`; docs/benchmarks/choices.md has the numbers. For tables of many rows, whose fits
take minutes, there is no look; if the chains lead, the other model is tried again with as many steps as theirs. Short
trials tell nothing about targets that are nearly a function of the inputs, which is learned over many steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from livi.tables.estimators.scaling import Array

FEWEST = 60  # rows that a table needs for trials
ROWS = 600  # of a trial
SHARE = 0.2  # of all rows, used where that is more than ROWS; chains then have no look, but a second trial
MOST = 2000  # rows of a trial
HELD = 0.3  # share of a trial's rows that is scored
TIME = 0.4  # share of a budget for all trials
STEPS = 100  # of a trial
SAMPLES = 8  # weight vectors per step, except for models of counts
SURE = 1.64  # standard errors by which the best must lead
SURE_OF_CHAINS = 0.0  # the same for chains, which are far shorter in a trial than in a fit
MOST_OF_ONE = 3.0  # nats that a single target may contribute to a lead
LEAST_SQUARE = 0.05  # added to squared residuals, since the logarithm of one near 0 would outweigh all others


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
SAMPLED = (Model("plain", "network"), Model("log", "network"))  # by chains
SAMPLED_STEPS = 400  # of each chain in a trial
LOOK_STEPS = 100  # of each chain in a look
CHANCE = 0.001  # p-value of residuals as uneven as these under constant noise, below which other models are tried
SKEWED = 0.5  # skewness of positive targets above which their logarithm is always tried
MOST_SAMPLED = 10_000  # rows up to which chains are tried: each of their steps takes two gradients on all rows
NOISES = tuple(dict.fromkeys(model.noise for model in (*MODELS, *SAMPLED)))
MOST_COUNTED = 50  # the largest median of whole numbers that are treated as counts


@dataclass(frozen=True)
class Trial:
    """A model that was tried, and its mean log density of the held-out targets; None if that is not finite."""

    model: Model
    log_score: float | None


def candidates(target_scale: str, noise: str, targets: Array) -> list[Model]:
    """The models that the two settings allow, simplest first; "auto" allows all that suit the targets.

    Models sampled by chains are left out unless named, since they are tried last; see `sampled_like`.

    >>> candidates("auto", "auto", np.array([0.0, 2.0, 1.0]))[1].label
    'count poisson'
    """
    possible = {"plain": True, "log": bool((targets > 0).all()), "count": look_counted(targets)}
    return [
        model
        for model in (SAMPLED if noise == "network" else MODELS)
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
    return next((other for other in SAMPLED if other.target_scale == model.target_scale), None)


def are_counts(targets: Array) -> bool:
    """True if all targets are whole numbers from 0 up."""
    return bool((targets >= 0).all() and (targets == np.round(targets)).all())


def look_counted(targets: Array) -> bool:
    """True for small counts: large whole numbers, such as prices without cents, are measured rather than counted."""
    return are_counts(targets) and bool(np.median(targets) <= MOST_COUNTED)


def trial_rows(num_rows: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices of the rows to fit to in a trial, and of those to score."""
    number = min(MOST, max(ROWS, round(SHARE * num_rows)))
    drawn = np.random.default_rng(seed).permutation(num_rows)[:number]
    held = max(1, round(HELD * len(drawn)))
    return np.sort(drawn[held:]), np.sort(drawn[:held])


def has_many(num_rows: int) -> bool:
    """True if there are enough rows for a second, longer trial."""
    return SHARE * num_rows > ROWS


def plausible(models: Sequence[Model], inputs: Array, targets: Array, mean: Array, std: Array) -> list[Model]:
    """The models worth a trial, given the predictions `mean` and `std` of the first one for the targets.

    Varying noise is tried if the size of residuals is correlated with an input, the square of one, or the mean; a
    logarithm if it grows with the mean, or if the targets are skewed.
    """
    away = (targets - mean) / np.maximum(std, np.finfo(float).tiny)
    if not np.isfinite(away).all():
        return list(models)  # no correlation can be computed
    sizes = np.log(away**2 + LEAST_SQUARE)
    growth, chance = correlations(mean[:, None], sizes)
    grows = bool(growth[0] > 0.0 and chance[0] < CHANCE)
    _, chances = correlations(np.column_stack([inputs, (inputs - inputs.mean(0)) ** 2, mean]), sizes)
    uneven = grows or len(chances) * chances.min() < CHANCE
    logarithm = grows or skewness(targets) > SKEWED
    return [
        model
        for model in models
        if (model.noise == models[0].noise or uneven) and (model.target_scale == models[0].target_scale or logarithm)
    ]


def correlations(columns: Array, values: Array) -> tuple[Array, Array]:  # (n, p), (n,) -> (p,), (p,)
    """The correlation of each column with the values, and its p-value; 0 and 1 for columns that do not vary.

    >>> correlations(np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]), np.array([1.0, 3.0, 2.0]))[0]
    array([0.5, 0. ])
    """
    from scipy.stats import t

    columns, values = columns - columns.mean(0), values - values.mean()
    sizes = np.sqrt((columns**2).sum(0) * (values**2).sum())
    found = np.divide(values @ columns, sizes, out=np.zeros_like(sizes), where=sizes > 0.0).clip(-1.0, 1.0)
    free = max(1, len(values) - 2)
    return found, 2.0 * t.sf(np.abs(found) * np.sqrt(free / np.maximum(1.0 - found**2, 1e-12)), free)


def skewness(values: Array) -> float:
    """The mean cube of standardised values; 0 if they do not vary."""
    away, std = values - values.mean(), values.std()
    return float(((away / std) ** 3).mean()) if std > 0.0 else 0.0


def chosen(
    models: Sequence[Model],
    score: Callable[[Model], Array],
    last: Callable[[Model], Model | None] = lambda _: None,
    look: Callable[[Model], Array] | None = None,
    longer: Callable[[Model], Array] | None = None,
    sure: float = SURE_OF_CHAINS,
    sure_of_longer: float = SURE_OF_CHAINS,
) -> tuple[Model, list[Trial]]:
    """The simplest model that is not clearly worse than the best, or the one sampled by chains; and all scores.

    Args:
        score: returns the log density of each held-out target, (n,), under a model.
        last: returns a further model to compare with the best of these, if any.
        look: a cheaper `score` for the further model. If the best has constant noise, the further model is scored only
            if its look is better; the score of a look alone is reported, but cannot win.
        longer: a more costly `score` for the model chosen otherwise, which a further model must beat too.
        sure, sure_of_longer: standard errors by which the further model must lead the model chosen otherwise.
    """
    scores = {model: score(model) for model in models}
    best = _best(scores)
    simplest = next(model for model in models if not _clearly_below(scores[model], scores[best]))
    further = last(best)
    if further is not None and look is not None and best.noise == "constant":
        scores[further] = look(further)
        further = further if _is_better(scores[further], scores[best]) else None
    if further is not None:
        scores[further] = score(further)
        leads = _clearly_below(scores[simplest], scores[further], sure)
        if leads and longer is not None:
            scores[simplest] = longer(simplest)
            leads = _clearly_below(scores[simplest], scores[further], sure_of_longer)
        simplest = further if leads else simplest
    return simplest, [Trial(model, _mean(found)) for model, found in scores.items()]


def _is_better(scores: Array, best: Array) -> bool:
    return _or_worst(_mean(scores)) > _or_worst(_mean(best))


def _best(scores: Mapping[Model, Array]) -> Model:
    return max(scores, key=lambda model: _or_worst(_mean(scores[model])))


def _clearly_below(scores: Array, best: Array, sure: float = SURE) -> bool:
    """True if the best leads by more than `sure` standard errors, where each target counts at most 3 nats.

    Otherwise a model that gives one target next to no density would never be clearly below: the lead over it would be
    huge, but so would its standard error.
    """
    lead = best - scores
    if not np.isfinite(lead).all():
        return _mean(scores) is None and _mean(best) is not None
    lead = lead.clip(-MOST_OF_ONE, MOST_OF_ONE)
    return bool(lead.mean() > sure * lead.std() / math.sqrt(len(lead)))


def _mean(scores: Array) -> float | None:
    mean = float(scores.mean())
    return mean if math.isfinite(mean) else None


def _or_worst(mean: float | None) -> float:
    return -math.inf if mean is None else mean
