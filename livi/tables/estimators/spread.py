"""By how much the answers of sampled networks are too wide.

Each network of a chain may be right about its own noise, and their average is too wide all the same: a pool of
distributions that are each calibrated is always too wide (Gneiting and Ranjan 2013, "Combining predictive
distributions"; their remedy is a factor for the spread of each, here it is one for their disagreement too). By how much
is each table's own. Where copies of a row share what networks miss of it, that is taken for noise, and answers are
wider than new rows need; elsewhere they need all of it. Rows that a trial has held out know, but they are few, and a
trial's chains are short. So the factor is the most likely one given those rows under what is usual, chosen by `python
-m benchmarks.choose_intervals` on training rows (docs/benchmarks/choices.md, "What 90 % intervals hold").
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from livi.posterior.prediction import RegressionPrediction

USUAL = 0.95  # factor
APART = 0.05  # by which its logarithm differs from table to table
_REACH, _STEPS = 4.0, 81  # of the factors that are tried, in those deviations


def likely_spread(
    prediction: RegressionPrediction,
    targets: Tensor | tuple[Tensor, Tensor],
    usual: float = USUAL,
    apart: float = APART,
) -> float:
    """The factor of a prediction's spread that is the most likely one, given rows that it has not seen.

    By their log density, and a prior under which its logarithm is N(log usual, apart^2), within four deviations; what
    is usual where the rows are beyond all measure.

    Args:
        targets: of these rows; or the lower and upper ends of cells that hold them, whose probabilities count then.

    >>> import torch
    >>> rng = torch.Generator().manual_seed(0)
    >>> given = RegressionPrediction(torch.zeros(1, 200), torch.ones(1, 200))
    >>> errors = torch.randn(200, generator=rng)
    >>> [round(likely_spread(given, width * errors), 2) for width in (0.8, 1.0, 1.2)]
    [0.86, 0.96, 1.06]
    """
    away = np.linspace(-_REACH, _REACH, _STEPS)
    factors = usual * np.exp(apart * away)
    scores = [_score(prediction.spread_by(factor), targets) for factor in factors]
    if not np.isfinite(scores).any():
        return usual
    posterior = np.where(np.isfinite(scores), scores, -math.inf) - 0.5 * away**2
    return float(factors[posterior.argmax()])


def _score(prediction: RegressionPrediction, targets: Tensor | tuple[Tensor, Tensor]) -> float:
    scores = prediction.log_mass(*targets) if isinstance(targets, tuple) else prediction.log_prob(targets)
    return float(scores.sum())
