"""Importance weights smoothed: the order stays, the total is one, and heavy tails are tamed."""

import math

import numpy as np
import pytest
import torch

from livi.posterior.pareto import effective, largest_shape, pareto_shape, smoothed
from livi.sampling.resampling import resampled


def zhang_stephens(exceedances):
    """The estimate of Zhang and Stephens (2009), section 3, of exceedances in ascending order, with PSIS's prior."""
    n = len(exceedances)
    count = 30 + math.isqrt(n)
    quartile = exceedances[math.floor(n / 4 + 0.5) - 1]
    thetas = 1 / exceedances[-1] + (1 - np.sqrt(count / (np.arange(1, count + 1) - 0.5))) / (3 * quartile)
    shapes = np.log1p(-thetas[:, None] * exceedances).mean(1)
    profile = n * (np.log(-thetas / shapes) - shapes - 1)
    weights = 1 / np.exp(profile - profile[:, None]).sum(1)
    shape = np.log1p(-(weights @ thetas) * exceedances).mean()
    return (n * shape + 5) / (n + 10)


@pytest.mark.parametrize("tail", [5, 6, 7, 8, 10, 14, 18, 40])
def test_the_shape_is_that_of_the_published_algorithm(tail, rng):
    raw = torch.randn(5 * tail, generator=rng, dtype=torch.float64)
    ordered = np.sort(np.exp((raw - raw.max()).numpy()))
    assert pareto_shape(raw) == pytest.approx(zhang_stephens(ordered[-tail:] - ordered[-tail - 1]), rel=1e-9)


@pytest.mark.parametrize("shape", [0.3, 0.6, 1.2])
def test_smoothed_weights_keep_their_order_and_sum_to_one(shape, rng):
    raw = -shape * torch.rand(1000, generator=rng).log()
    found = smoothed(raw)
    assert float(found.exp().sum()) == pytest.approx(1.0)
    assert (found[raw.argsort()].diff() >= 0.0).all()
    assert float(found.max() - found.min()) <= float(raw.max() - raw.min()) + 1e-9
    assert 3.0 * math.sqrt(1000) > int((found - raw).sort().values.diff().abs().gt(1e-9).sum())  # the tail alone


def test_smoothing_brings_the_mean_of_heavy_weights_nearer(rng):
    """Weights u^-k of uniform u have the mean 1 / (1 - k)."""
    shape, raw_errors, errors = 0.7, [], []
    for _ in range(200):
        raw = -shape * torch.rand(400, generator=rng).log()
        values = smoothed(raw)
        scale = raw.min() - values.min()  # of the weights that are not in the tail
        raw_errors.append(raw.exp().mean() - 1.0 / (1.0 - shape))
        errors.append((values + scale).exp().mean() - 1.0 / (1.0 - shape))
    assert torch.stack(errors).square().mean() < 0.7 * torch.stack(raw_errors).square().mean()


def test_equal_few_and_impossible_weights_are_left_as_they_are():
    assert torch.allclose(smoothed(torch.full((40,), 3.0)).exp(), torch.full((40,), 1 / 40))
    few = torch.tensor([0.0, math.log(3.0)])
    assert torch.allclose(smoothed(few).exp(), torch.tensor([0.25, 0.75]))
    assert math.isnan(pareto_shape(few))
    half = torch.cat([torch.zeros(50), torch.full((50,), -math.inf)])
    assert effective(smoothed(half)) == pytest.approx(50.0)


def test_weights_of_zero_stay_zero_where_fewer_are_not_than_a_tail_is_long(rng):
    raw = torch.full((2000,), -math.inf).double()
    raw[:100] = torch.randn(100, generator=rng).double()
    found = smoothed(raw)
    assert torch.isneginf(found[100:]).all()
    assert float(found.exp().sum()) == pytest.approx(1.0)
    assert pareto_shape(raw) == pytest.approx(pareto_shape(raw[:100]))


def test_fewer_weights_must_have_a_lighter_tail():
    assert largest_shape(10) == 0.0
    assert largest_shape(100) == pytest.approx(0.5)
    assert largest_shape(10**6) == 0.7


def test_rows_come_as_often_as_their_weights_say(rng):
    weights = torch.rand(30, generator=rng)
    weights = weights / weights.sum()
    counts = resampled(weights.log(), 200, rng).bincount(minlength=30)
    assert ((counts - 200 * weights).abs() < 1.0).all()
    assert counts.sum() == 200
