"""SWAG: the stationary distribution of SGD where it is known, and moments that are those of the trajectory."""

import pytest
import torch
from torch import nn

from livi.inference import FitError, Recipe
from livi.model.likelihoods import Gaussian
from livi.model.priors import Normal
from livi.network import Layout
from livi.rivals import fit_swag
from livi.rivals.swag import _Moments

SHORT = Recipe(map_steps=400, map_restarts=1, map_rate=3e-2)


def linear_data(num_data=2000, obs_std=0.5):
    rng = torch.Generator().manual_seed(0)
    design = torch.randn(num_data, 3, generator=rng) * torch.tensor([0.7, 1.0, 1.4])
    return design, design @ torch.tensor([1.0, -1.0, 0.5]) + obs_std * torch.randn(num_data, generator=rng)


def test_swag_measures_the_stationary_distribution_of_sgd():
    """Of a linear model gradient noise has the Hessian as its covariance, so that A S + S A = rate / B A (Mandt et al.
    2017, eq. 13): S = rate / 2 B I, whatever the correlations of the posterior; the next order is I + rate / 2 A."""
    design, targets = linear_data()
    rate, size = 0.02, 10
    posterior = fit_swag(
        nn.Linear(3, 1, bias=False),
        (design, targets),
        Gaussian(0.5),
        prior=Normal(1.0),
        recipe=SHORT,
        rate=rate,
        batch_size=size,
        steps=4000,
        collected=1000,
        rank=1000,
    )
    exact = torch.linalg.solve(design.T @ design + 0.25 * torch.eye(3), design.T @ targets)
    theta = posterior.sample(20_000, torch.Generator().manual_seed(0))
    stationary = rate / (2 * size)
    torch.testing.assert_close(theta.mean(0), exact, rtol=0, atol=4 * (stationary / 20) ** 0.5)
    covariance = theta.T.cov() / stationary
    torch.testing.assert_close(covariance, torch.eye(3), rtol=0, atol=0.25)


def test_the_default_rate_is_that_of_the_theorem_or_half_the_stable_one():
    design, targets = linear_data(400)
    posterior = fit_swag(nn.Linear(3, 1, bias=False), (design, targets), Gaussian(0.5), recipe=SHORT, steps=400)
    plan = posterior.plan
    curvature = torch.linalg.eigvalsh(design.T @ design / 400 / 0.25)
    assert plan["batch_size"] == 50
    assert plan["rate"] == min(plan["stationary_rate"], plan["stable_rate"])
    error = (2 / 50) ** 0.5  # relative, of a variance from one batch
    assert 1.0 / plan["stable_rate"] == pytest.approx(float(curvature[-1]), rel=3 * error)
    assert plan["stationary_rate"] == pytest.approx(2 * 50 * 3 / (400 * float(curvature.sum())), rel=0.6)
    theta = posterior.sample(4000, torch.Generator().manual_seed(0))
    exact = torch.linalg.inv(design.T @ design / 0.25 + torch.eye(3))
    assert 0.2 < float(theta.T.cov().trace() / exact.trace()) < 3.0


def test_moments_are_those_of_all_weights_that_were_added(rng):
    rows = 100 + torch.randn(7, 3, generator=rng)
    moments = _Moments(rows[0], rank=4)
    for row in rows:
        moments.add(row)
    problem = type("", (), {"layout": Layout(nn.Linear(2, 1))})
    sampler = moments.sampler(problem)
    torch.testing.assert_close(sampler.mean, rows.mean(0))
    torch.testing.assert_close(2 * sampler.std**2, rows.var(0, correction=0))
    so_far = torch.stack([rows[: i + 1].mean(0) for i in range(7)])
    torch.testing.assert_close(sampler.columns * (2 * 3) ** 0.5, (rows - so_far)[-4:].T)


def test_drawn_networks_have_batch_norm_statistics_of_their_own():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 1))
    inputs = torch.randn(64, 2)
    data = (inputs, inputs.sum(1))
    recipe = Recipe(map_steps=30, map_restarts=1)
    posterior = fit_swag(net, data, Gaussian(0.5), recipe=recipe, steps=60, collected=20, rank=5)
    assert posterior.calibration is not None
    assert posterior.functions(4).buffers["1.running_mean"].shape == (4, 3)


def test_impossible_ranks_and_steps_are_refused():
    data = (torch.zeros(4, 1), torch.zeros(4))
    with pytest.raises(ValueError, match="rank: expected 2 to collected = 10, got 20"):
        fit_swag(nn.Linear(1, 1), data, Gaussian(), collected=10)
    with pytest.raises(ValueError, match="steps: expected at least 134"):
        fit_swag(nn.Linear(1, 1), data, Gaussian(), steps=100)
    with pytest.raises(TypeError, match="fit_swag: expected no generator"):
        fit_swag(nn.Linear(1, 1), data, Gaussian(), generator=1)


def test_steps_that_diverge_say_what_to_do():
    remedy = r"diverged at a rate of 50; pass a lower `rate` \(.* allows 0\.\d+\) or a larger `batch_size`"
    with pytest.raises(FitError, match=remedy):
        fit_swag(nn.Linear(3, 1), linear_data(200), Gaussian(0.5), recipe=SHORT, steps=400, rate=50.0)


def test_augmentation_goes_on_behind_the_start():
    seen = []

    def augment(inputs, rng):
        seen.append(len(inputs))
        return inputs

    fit_swag(nn.Linear(3, 1), linear_data(200), Gaussian(0.5), recipe=SHORT, steps=150, batch_size=20, augment=augment)
    assert len(seen) > 150
