"""A factor that corrects the spread of predictions by sampled networks, which is slightly too wide.

Even if each network of a chain is calibrated, their average is too wide: a linear pool of calibrated distributions
always is (Gneiting and Ranjan 2013, "Combining predictive distributions"; their remedy is a factor for the spread of
each distribution, here it also multiplies their disagreement). The right factor differs between tables. If copies of a
row share what networks cannot fit, that counts as noise, and predictions are wider than new rows need; otherwise the
full spread is needed. The held-out rows of a trial show which, but they are few, and a trial's chains are short. So the
factor is the most likely one given those rows, under a prior around the usual factor. It was chosen on training rows by
`python -m benchmarks.choose_intervals`: docs/benchmarks/choices-tables.md, "What 90 % intervals hold".
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from livi.posterior.prediction import RegressionPrediction

USUAL_SPREAD = 0.95  # factor
LOG_SPREAD_STD = 0.05  # standard deviation of its logarithm between tables
_GRID_STDS, _GRID_SIZE = 4.0, 81  # range of the factors tried, in those standard deviations, and their number


def few_rows_spread(rows: float) -> float:
    """The factor for the spread of predictions by a point estimate of the noise, after standardising by so many rows.

    The mean and the deviation by which targets are standardised are those of the rows. A new normal target is sqrt((n +
    1) / (n - 1)) times as far from that mean as the deviation says, up to Student's t: 22 % farther for 5 rows, 2 % for
    59. Chains need no such factor, since they sample the noise.

    >>> [round(few_rows_spread(rows), 3) for rows in (5, 30, 59)]
    [1.225, 1.034, 1.017]
    """
    rows = max(rows, 2.0)  # weights may add up to less
    return math.sqrt((rows + 1.0) / (rows - 1.0))


def likely_spread(
    prediction: RegressionPrediction,
    targets: Tensor | tuple[Tensor, Tensor],
    usual: float = USUAL_SPREAD,
    apart: float = LOG_SPREAD_STD,
) -> float:
    """The most likely factor for a prediction's spread, given held-out rows.

    It maximises their log density plus the log prior, under which the factor's logarithm is N(log usual, apart^2),
    within four standard deviations; `usual` if no factor gives a finite log density.

    Args:
        targets: of these rows; or lower and upper ends of intervals around them, whose probabilities are used then.

    >>> import torch
    >>> rng = torch.Generator().manual_seed(0)
    >>> given = RegressionPrediction(torch.zeros(1, 200), torch.ones(1, 200))
    >>> errors = torch.randn(200, generator=rng)
    >>> [round(likely_spread(given, width * errors), 2) for width in (0.8, 1.0, 1.2)]
    [0.86, 0.96, 1.06]
    """
    away = np.linspace(-_GRID_STDS, _GRID_STDS, _GRID_SIZE)
    factors = usual * np.exp(apart * away)
    scores = [_score(prediction.spread_by(factor), targets) for factor in factors]
    if not np.isfinite(scores).any():
        return usual
    posterior = np.where(np.isfinite(scores), scores, -math.inf) - 0.5 * away**2
    return float(factors[posterior.argmax()])


def _score(prediction: RegressionPrediction, targets: Tensor | tuple[Tensor, Tensor]) -> float:
    scores = prediction.log_mass(*targets) if isinstance(targets, tuple) else prediction.log_prob(targets)
    return float(scores.sum())
