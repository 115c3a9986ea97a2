"""Where the noise of a regression starts, how small it may become, and how far off a row may be."""

from __future__ import annotations

import numpy as np

from livi.model.data import FULL_BATCH
from livi.model.likelihoods import ContaminatedGaussian, HeteroscedasticGaussian
from livi.posterior.posterior import Posterior
from livi.tables.estimators.scaling import Array
from livi.tables.estimators.target import rounding

LEAST = 0.3
# Of a noise that varies, in standard deviations of the target. It is log-linear, and cannot fit single points; targets
# that are all but a function of the inputs must not be held to a noise that they do not have.
VARYING_FLOOR = 1e-4
NETWORK_FLOOR = 1e-3  # of the noise that a network gives


def first_noise(inputs: Array, targets: Array, weights: Array) -> float:  # (n, p), (n,), (n,)
    """The standard deviation of standardised targets around a linear function of standardised inputs, from 0.3 to 1.

    By ridge regression, and per degree of freedom that it leaves. A learned noise moves by a few per cent a step: from
    1, that of targets which nothing explains, it would still be too large at the end of a short fit, and a model whose
    noise varies would look better in a trial only because its noise falls sooner.

    Beyond a full batch of rows a MAP estimate comes first and brings the noise along, and it is 1.

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
    return float(np.clip(np.sqrt(residual @ residual / max(left, 1.0)), LEAST, 1.0))


def network_noise(targets: Array) -> HeteroscedasticGaussian:  # (n, 1)
    """Of a network that gives mean and noise."""
    return HeteroscedasticGaussian(floor=max(NETWORK_FLOOR, rounding(targets)))


def with_outliers(posterior: Posterior) -> Posterior:
    """The same networks, and answers in which one row in a thousand may be ten times as far off as the others.

    Chains leave a noise that is right for the rows that they know, and a new row may be 20 of its deviations away: one
    such row can cost half a nat of the mean log score of a hundred. Against that these answers are insured, for at most
    0.001 nats a row and standard deviations larger by 5 %. The networks are those of Gaussian noise: chains that know
    of outliers too take longer and are no better (docs/benchmarks/choices.md, "What 90 % intervals hold").
    """
    assert isinstance(posterior.likelihood, HeteroscedasticGaussian)
    posterior.likelihood = ContaminatedGaussian.like(posterior.likelihood)
    return posterior
