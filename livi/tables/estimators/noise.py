"""The noise of a regression: its initial value, its lower limit, and outliers."""

from __future__ import annotations

import numpy as np

from livi.model.data import FULL_BATCH
from livi.model.likelihoods import ContaminatedGaussian, HeteroscedasticGaussian
from livi.posterior.posterior import Posterior
from livi.tables.estimators.scaling import Array
from livi.tables.estimators.target import rounding

MIN_FIRST_NOISE = 0.3  # in standard deviations of the target
NOISE_SPREAD = 1.0  # of the logarithm of a constant noise around its initial value, a priori, for few rows
# Smallest varying noise, in standard deviations of the target. It may be this small, since a log-linear noise cannot
# vanish at single points, and targets may be nearly a function of the inputs.
VARYING_FLOOR = 1e-4
NETWORK_FLOOR = 1e-3  # the same for the noise that a network outputs, which could vanish at single points


def first_noise(inputs: Array, targets: Array, weights: Array) -> float:  # (n, p), (n,), (n,)
    """The standard deviation of standardised targets around a linear function of standardised inputs, from 0.3 to 1.

    It is that of ridge regression, per remaining degree of freedom. A learned noise changes by a few per cent per step:
    from 1, the noise if inputs explain nothing, it would still be too large at the end of a short fit, and a model with
    varying noise would win a trial only because its noise falls faster.

    For more rows than a full batch it is 1, since the MAP fit that comes first learns the noise too.

    >>> x = np.linspace(-1.7, 1.7, 50)[:, None]
    >>> first_noise(x, x[:, 0], np.ones(50)), round(first_noise(x, np.sign(np.sin(50 * x[:, 0])), np.ones(50)), 1)
    (0.3, 1.0)
    """
    if len(targets) > FULL_BATCH:
        return 1.0
    root = np.sqrt(weights)[:, None]
    design, known = np.hstack([np.ones((len(inputs), 1)), inputs]) * root, targets * root[:, 0]
    gram = design.T @ design
    hat = np.linalg.solve(gram + np.eye(len(gram)), np.column_stack([design.T @ known, gram]))
    left = weights.sum() - np.trace(hat[:, 1:])
    residual = known - design @ hat[:, 0]
    return float(np.clip(np.sqrt(residual @ residual / max(left, 1.0)), MIN_FIRST_NOISE, 1.0))


def network_noise(targets: Array) -> HeteroscedasticGaussian:  # (n, 1)
    """The likelihood for a network that outputs mean and noise."""
    return HeteroscedasticGaussian(floor=max(NETWORK_FLOOR, rounding(targets)))


def with_outliers(posterior: Posterior) -> Posterior:
    """Let one row in a thousand be ten times as far off as the others in the posterior's predictions.

    The noise that chains learn suits the training rows, and a new row may be 20 standard deviations away: one such row
    can cost half a nat of the mean log score of a hundred. Outliers prevent that, for at most 0.001 nats per row and
    standard deviations larger by 5 %. The networks are sampled under Gaussian noise: chains with outliers in their
    likelihood take longer and predict no better (docs/benchmarks/choices-tables.md, "What 90 % intervals hold").
    """
    assert isinstance(posterior.likelihood, HeteroscedasticGaussian)
    posterior.likelihood = ContaminatedGaussian.like(posterior.likelihood)
    return posterior
