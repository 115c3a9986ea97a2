"""What to model a target by, chosen by trial: short fits to some of the rows, scored on others of them.

All trials are scored by the log density of the same held-out targets in their own units, so that a model of the
logarithm is comparable with one of the target itself; counts by the probability of the count, which a density gives to
half a unit on either side. In doubt the simpler model is taken. The best of them is then held against a network that
gives mean and noise and is sampled by Markov chains, the most costly of all models and on many small tables the best.
That one is taken where it is ahead at all of the simplest that no other clearly beats: its chains are a twelfth as long
in a trial as in a fit, and gain more by length than other models do (`python -m benchmarks.choose_sure`).

Trials cost as much as a fit where all are made, and most tables do not need most of them. So the simplest model goes
first, and others of its kind follow where its residuals or the targets speak for them (`plausible`). Where constant
noise is the best of them, chains begin with a look, a trial of a fourth of the length, and go on where it is ahead;
where noise varies, which such a network gets right only late, they are tried at once (`chosen`). Chosen by
`python -m benchmarks.choose_looks`; docs/benchmarks/choices.md has the numbers. Tables of many rows, whose fits take
minutes, are worth more care: chains are tried at once, and where they are ahead, held against the best of the others in
a trial as long as theirs. A target that is all but a function of the inputs is learned by steps, and short trials tell
nothing about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from livi.tables.estimators.scaling import Array

FEWEST = 60  # rows that are worth a trial
ROWS = 600  # of a trial, or
SHARE = 0.2  # of all rows where that is more, and then chains have no look and a second trial to pass;
MOST = 2000  # but no more than that
HELD = 0.3  # of which are scored
TIME = 0.4  # of a budget, for all trials
STEPS = 100
SAMPLES = 8  # weight vectors a step, of models but those of counts
SURE = 1.64  # standard errors by which the best must lead
SURE_OF_CHAINS = 0.0  # the same of chains, which are far shorter in a trial than in a fit
MOST_OF_ONE = 3.0  # nats that a single target may add to a lead
LEAST_SQUARE = 0.05  # added to squared residuals, so that one that is 0 by chance is not the smallest of all by far


class Model(NamedTuple):
    """The scale of a target, and its noise on that scale."""

    target_scale: str  # "plain", "log" or "count"
    noise: str  # "constant", "varying" or "network"; of counts "poisson" or "negative-binomial"

    def __str__(self) -> str:
        return f"{_SCALES[self.target_scale]} with {_NOISES.get(self.noise, self.noise)} noise"

    @property
    def label(self) -> str:
        """In few words."""
        return " ".join(self)

    @property
    def settings(self) -> dict[str, str]:
        """As parameters of the estimator."""
        return self._asdict()

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Model:
        """As it was written; of before activations were fixed, without them."""
        return cls(facts["target_scale"], facts["noise"])


_SCALES = {"plain": "the target as it is", "log": "the logarithm of the target", "count": "the target as a count"}
_NOISES = {"network": "the network's own", "poisson": "Poisson", "negative-binomial": "negative binomial"}
MODELS = (  # the simplest first
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
CHANCE = 0.001  # of residuals as uneven as these under constant noise, below which other models are tried
SKEWED = 0.5  # the skewness of positive targets from which their logarithm is tried in any case
MOST_SAMPLED = 10_000  # rows up to which chains are tried: a step of theirs takes two gradients on all rows
NOISES = tuple(dict.fromkeys(model.noise for model in (*MODELS, *SAMPLED)))
MOST_COUNTED = 50  # the largest median of whole numbers that are taken for counts


@dataclass(frozen=True)
class Trial:
    """A model that was tried, and the mean log density of the held-out targets under it; None if it is not finite."""

    model: Model
    log_score: float | None


def candidates(target_scale: str, noise: str, targets: Array) -> list[Model]:
    """The models that the two settings allow, the simplest first; "auto" allows all that the targets do.

    But for those that are sampled by chains, which are tried last; see `sampled_like`.

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
    """Raise an error where the settings and the targets do not go together."""
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
    """The model on the same scale that is sampled by chains; None of counts.

    >>> sampled_like(Model("log", "varying")).label
    'log network'
    """
    return next((other for other in SAMPLED if other.target_scale == model.target_scale), None)


def are_counts(targets: Array) -> bool:
    """Whole numbers from 0 up."""
    return bool((targets >= 0).all() and (targets == np.round(targets)).all())


def look_counted(targets: Array) -> bool:
    """Counts that are small: large ones, such as prices without cents, are measured rather than counted."""
    return are_counts(targets) and bool(np.median(targets) <= MOST_COUNTED)


def trial_rows(num_rows: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places of the rows to fit to in a trial, and of those to score."""
    number = min(MOST, max(ROWS, round(SHARE * num_rows)))
    drawn = np.random.default_rng(seed).permutation(num_rows)[:number]
    held = max(1, round(HELD * len(drawn)))
    return np.sort(drawn[held:]), np.sort(drawn[:held])


def repeated(rows: NDArray[np.intp], weights: Array) -> NDArray[np.intp]:  # (n,), (n,) -> (n,)
    """As many rows, each as often as it counts, as nearly as whole numbers allow.

    >>> repeated(np.array([4, 7, 9]), np.array([2.0, 1.0, 0.0]))
    array([4, 4, 7])
    """
    ends = np.cumsum(weights) * (len(rows) / weights.sum())
    return np.repeat(rows, np.diff(np.floor(ends + 0.5), prepend=0.0).astype(int))


def has_many(num_rows: int) -> bool:
    """Rows that are worth a second trial."""
    return SHARE * num_rows > ROWS


def plausible(models: Sequence[Model], inputs: Array, targets: Array, mean: Array, std: Array) -> list[Model]:
    """The first of these models, which predicts mean and std of the targets, and those worth a trial beside it.

    A noise that varies is where the sizes of its residuals go with an input, the square of one, or the mean; a
    logarithm where they grow with the mean, or where the targets are skewed.
    """
    away = (targets - mean) / np.maximum(std, np.finfo(float).tiny)
    if not np.isfinite(away).all():
        return list(models)  # nothing can be told
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
    """Of each column with the values, and the chance of one as large between numbers that have nothing in common.

    Columns that do not vary have none, with a chance of 1.

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
    """The mean cube of values in standard deviations from their mean; 0 where they do not vary."""
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
    """The model with the best score, and all scores; a simpler one where the best does not clearly lead.

    Args:
        score: the log density of each held-out target, (n,), under a model.
        last: of the best of these models, another to hold against it.
        look: a cheaper `score` of that one, which comes first where the best has constant noise: it is scored then only
            if its look is ahead. What was only looked at is among the scores, but not chosen.
        longer: a more costly `score` of the best, which that one must lead too.
        sure, sure_of_longer: standard errors by which it must lead the model that is chosen otherwise.
    """
    scores = {model: score(model) for model in models}
    best = _best(scores)
    simplest = next(model for model in models if not _clearly_below(scores[model], scores[best]))
    other = last(best)
    if other is not None and look is not None and best.noise == "constant":
        scores[other] = look(other)
        other = other if _ahead(scores[other], scores[best]) else None
    if other is not None:
        scores[other] = score(other)
        leads = _clearly_below(scores[simplest], scores[other], sure)
        if leads and longer is not None:
            scores[simplest] = longer(simplest)
            leads = _clearly_below(scores[simplest], scores[other], sure_of_longer)
        simplest = other if leads else simplest
    return simplest, [Trial(model, _mean(found)) for model, found in scores.items()]


def _ahead(scores: Array, best: Array) -> bool:
    return _or_worst(_mean(scores)) > _or_worst(_mean(best))


def _best(scores: Mapping[Model, Array]) -> Model:
    return max(scores, key=lambda model: _or_worst(_mean(scores[model])))


def _clearly_below(scores: Array, best: Array, sure: float = SURE) -> bool:
    """Whether the lead of the best is more than chance, by a test that no single target decides.

    A model that all but rules out one of the targets would else have a lead against it so uncertain, for being huge,
    that it is never clear.
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
