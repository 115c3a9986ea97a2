"""Weights of rows: fits in which a row of weight w counts w times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from livi.family.ensemble import Ensemble
from livi.family.implicit import ImplicitPosterior
from livi.model.likelihoods import Likelihood, Weighted, pass_weights
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.tables.estimators.scaling import Array


def fit_weighted(
    method: Callable[..., Posterior],
    net: nn.Module,
    inputs: Array,  # (n, p)
    targets: NDArray[Any],  # (n,) or (n, 1)
    weights: Array,  # (n,)
    likelihood: Likelihood,
    **options: Any,
) -> Posterior:
    """The posterior that `method`, such as `livi.fit`, finds for rows with these weights; it predicts rows without."""
    if np.all(weights == 1.0):
        return method(net, (inputs, targets), likelihood, **options)
    return unweighted(method(net, ((inputs, weights), targets), Weighted(likelihood), forward=pass_weights, **options))


def unweighted(posterior: Posterior) -> Posterior:
    """The posterior without the weights of rows: with the likelihood of a new example, over the network alone."""
    sampler, likelihood = posterior.sampler, posterior.likelihood
    if not isinstance(likelihood, Weighted):  # with an exact last layer it has no weights
        return posterior
    assert isinstance(sampler, ImplicitPosterior | Ensemble)
    layout = Layout(sampler.layout.module)
    plain = (
        Ensemble(layout, sampler.theta).requires_grad_(False)
        if isinstance(sampler, Ensemble)
        else ImplicitPosterior(layout, list(sampler.generators), list(sampler.noises))  # type: ignore[arg-type]
    )
    return Posterior(plain, likelihood.base, posterior.prior, history=posterior.history, plan=posterior.plan)


def repeated(rows: NDArray[np.intp], weights: Array) -> NDArray[np.intp]:  # (n,), (n,) -> (n,)
    """Repeat or leave out rows in proportion to their weights, rounded, keeping the number of rows.

    >>> repeated(np.array([4, 7, 9]), np.array([2.0, 1.0, 0.0]))
    array([4, 4, 7])
    """
    ends = np.cumsum(weights) * (len(rows) / weights.sum())
    return np.repeat(rows, np.diff(np.floor(ends + 0.5), prepend=0.0).astype(int))
