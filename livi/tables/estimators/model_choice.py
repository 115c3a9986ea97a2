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
with a short trial, of a fourth of the length, and continue if it has the highest score; if varying noise is the best,
which such a network learns only late, the full trial is made at once (`chosen`). These rules were chosen by
`python -m benchmarks.choose_looks`; docs/benchmarks/choices-tables.md has the numbers. For tables of many rows, whose
fits take minutes, there is no short trial; if the chains lead, the other model is tried again with as many steps.
Short trials tell nothing about targets that are nearly a function of the inputs, which is learned over many steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from livi.tables.estimators.scaling import Array
from livi.tables.estimators.target_models import Model
from livi.tables.estimators.trial import Trial, TrialRows

MIN_TABLE_ROWS = 60  # rows that a table needs for trials; with fewer, point estimates of the noise are guarded
MIN_TRIAL_ROWS, MAX_TRIAL_ROWS = 600, 2000  # rows of a trial, where the table has as many
TRIAL_SHARE = 0.2  # of all rows, used in between; chains then have no short trial, but the other model a long one
SCORED_SHARE = 0.3  # of a trial's rows
BUDGET_SHARE = 0.4  # of a budget, for all trials
TRIAL_STEPS = 100
TRIAL_NUM_SAMPLES = 8  # weight vectors per step, except for models of counts
CHAIN_STEPS, SHORT_CHAIN_STEPS = 400, 100  # of each chain in a trial, and in a short trial
MIN_LEAD = 1.64  # standard errors by which the best must lead
CHAINS_MIN_LEAD = 0.0  # the same for chains, which are far shorter in a trial than in a fit
MAX_ROW_LEAD = 3.0  # nats that a single target may contribute to a lead
SQUARE_OFFSET = 0.05  # added to squared residuals, since the logarithm of one near 0 would outweigh all others
UNEVEN_P_VALUE = 0.001  # of residuals as uneven as these under constant noise, below which other models are tried
MIN_SKEWNESS = 0.5  # of positive targets, above which their logarithm is always tried
MAX_CHAIN_ROWS = 10_000  # up to which chains are tried: each of their steps takes two gradients on all rows


def model_trial_rows(num_rows: int, seed: int) -> TrialRows:
    """The rows of all trials of a regressor."""
    number = min(MAX_TRIAL_ROWS, max(MIN_TRIAL_ROWS, round(TRIAL_SHARE * num_rows)))
    return TrialRows.drawn(num_rows, seed, limit=number, scored_share=SCORED_SHARE)


def has_many(num_rows: int) -> bool:
    """True if there are enough rows for a second, longer trial."""
    return TRIAL_SHARE * num_rows > MIN_TRIAL_ROWS


def plausible(models: Sequence[Model], inputs: Array, targets: Array, mean: Array, std: Array) -> list[Model]:
    """The models worth a trial, given the predictions `mean` and `std` of the first one for the targets.

    Varying noise is tried if the size of residuals is correlated with an input, the square of one, or the mean; a
    logarithm if it grows with the mean, or if the targets are skewed.
    """
    away = (targets - mean) / np.maximum(std, np.finfo(float).tiny)
    if not np.isfinite(away).all():
        return list(models)  # no correlation can be computed
    sizes = np.log(away**2 + SQUARE_OFFSET)
    growth, chance = correlations(mean[:, None], sizes)
    grows = bool(growth[0] > 0.0 and chance[0] < UNEVEN_P_VALUE)
    _, chances = correlations(np.column_stack([inputs, (inputs - inputs.mean(0)) ** 2, mean]), sizes)
    uneven = grows or len(chances) * chances.min() < UNEVEN_P_VALUE
    logarithm = grows or skewness(targets) > MIN_SKEWNESS
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
    by_chains: Callable[[Model], Model | None] = lambda _: None,
    short_trial: Callable[[Model], Array] | None = None,
    long_trial: Callable[[Model], Array] | None = None,
) -> tuple[Model, list[Trial[Model]]]:
    """The simplest model that is not clearly worse than the best, or the one sampled by chains; and all trials.

    Args:
        models: simplest first.
        score: returns the log density of each scored target, (n,), under a model.
        by_chains: returns the model sampled by chains to compare with the best of these, if any.
        short_trial: a cheaper `score` for that model. If the best has constant noise, it is scored only if it is ahead
            in its short trial; the score of a short trial alone is reported, but cannot win.
        long_trial: a more costly `score` for the model chosen otherwise, which that model must beat too.
    """
    scores = {model: score(model) for model in models}
    best, choice = best_of(scores), simplest_of(scores)
    chains = by_chains(best)
    if chains is not None and short_trial is not None and best.noise == "constant":
        scores[chains] = short_trial(chains)
        chains = chains if is_ahead(scores[chains], scores[best]) else None
    if chains is not None:
        scores[chains] = score(chains)
        ahead = leads(scores[chains], scores[choice], CHAINS_MIN_LEAD)
        if ahead and long_trial is not None:
            scores[choice] = long_trial(choice)
            ahead = leads(scores[chains], scores[choice], CHAINS_MIN_LEAD)
        choice = chains if ahead else choice
    return choice, [Trial(model, _mean(found)) for model, found in scores.items()]


def best_of(scores: Mapping[Model, Array]) -> Model:
    """The model with the highest mean score."""
    return max(scores, key=lambda model: _or_worst(_mean(scores[model])))


def simplest_of(scores: Mapping[Model, Array]) -> Model:
    """The first of these models that the best does not clearly lead."""
    best = scores[best_of(scores)]
    return next(model for model, found in scores.items() if not leads(best, found, MIN_LEAD))


def is_ahead(scores: Array, others: Array) -> bool:
    """True if the mean of the scores is higher."""
    return _or_worst(_mean(scores)) > _or_worst(_mean(others))


def leads(scores: Array, others: Array, min_lead: float) -> bool:
    """True if the scores lead the others by more than so many standard errors; each target counts at most 3 nats.

    Otherwise a model that gives one target next to no density would never be clearly behind: the lead over it would be
    huge, but so would its standard error.
    """
    lead = scores - others
    if not np.isfinite(lead).all():
        return _mean(others) is None and _mean(scores) is not None
    lead = lead.clip(-MAX_ROW_LEAD, MAX_ROW_LEAD)
    return bool(lead.mean() > min_lead * lead.std() / math.sqrt(len(lead)))


def _mean(scores: Array) -> float | None:
    mean = float(scores.mean())
    return mean if math.isfinite(mean) else None


def _or_worst(mean: float | None) -> float:
    return -math.inf if mean is None else mean
