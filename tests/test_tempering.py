"""Chains from the prior: the evidence, and the shares of modes, where both are known."""

import math

import pytest
import torch
from torch import nn

import livi
from livi.family.ensemble import Ensemble
from livi.model.likelihoods import Gaussian
from livi.model.priors import FunctionPrior, Normal
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.sampling import PolishReport
from livi.sampling.chains import differentiated, run_chains
from livi.sampling.tempering import anneal

OBS_STD = 0.5


def two_modes(x):  # (C, 2), log likelihood
    """Bumps of width 0.2 at 2 and -2, the first with three times the other's height: 3/4 of the posterior."""
    bumps = torch.stack([-0.5 * ((x - at) / 0.2).square().sum(1) for at in (2.0, -2.0)])
    return (bumps + torch.tensor([math.log(3.0), 0.0])[:, None]).logsumexp(0)


def standard_normal(x):
    return -0.5 * x.square().sum(1) - 0.5 * x.shape[1] * math.log(2 * math.pi)


def evidence():
    """Of `two_modes` under N(0, 1): each bump is 2 pi 0.04 times a normal density, and their product is known."""
    each = 2 * math.pi * 0.04 * math.exp(-0.5 * 8.0 / 1.04) / (2 * math.pi * 1.04)
    return math.log(4.0 * each)


def test_modes_get_their_shares_and_the_evidence_is_found(rng):
    target = differentiated(lambda x: standard_normal(x) + two_modes(x))
    shares, log_evidences = [], []
    for _ in range(16):
        start = torch.randn(128, 2, generator=rng)
        found = anneal(target, standard_normal, start, energy_error=1e-3, rng=rng, steps=5)
        shares.append(float((found.theta.sum(1) > 0).double().mean()))
        log_evidences.append(found.log_evidence)
        assert found.gradients == 1 + 11 * found.temperatures
        assert 2 <= found.ancestors <= 128
    for values, expected in ((shares, 0.75), (torch.tensor(log_evidences).exp(), math.exp(evidence()))):
        values = torch.as_tensor(values)
        assert abs(values.mean() - expected) < 4.5 * values.std() / 16**0.5


def test_chains_from_one_mode_never_learn_of_the_other(rng):
    """Which is what the population is for."""
    target = differentiated(lambda x: standard_normal(x) + two_modes(x))
    start = -1.92 + 0.2 * torch.randn(32, 2, generator=rng)
    run = run_chains(target, start, steps=300, warm_up=100, draws=20, rng=rng, energy_error=1e-3)
    assert (run.draws.sum(2) < 0).all()


def test_a_likelihood_without_information_needs_one_temperature(rng):
    start = torch.randn(32, 3, generator=rng)
    found = anneal(
        differentiated(lambda x: standard_normal(x) + 2.0), standard_normal, start, energy_error=1e-3, rng=rng
    )
    assert found.temperatures == 1
    assert found.ancestors == 32
    assert found.log_evidence == pytest.approx(2.0)


def test_starts_of_no_likelihood_are_lost_and_the_others_go_on(rng):
    """Half of the prior is impossible: the evidence is the log of a half."""
    target = differentiated(lambda x: standard_normal(x) + torch.where(x[:, 0] > 0, 0.0, -math.inf))
    start = torch.randn(400, 2, generator=rng)
    found = anneal(target, standard_normal, start, energy_error=1e-3, rng=rng)
    assert (found.theta[:, 0] > 0).all()
    assert found.log_evidence == pytest.approx(math.log(0.5), abs=0.15)  # three standard errors of 400 draws
    assert found.ancestors < 250


def test_a_posterior_out_of_reach_is_said(rng, monkeypatch):
    monkeypatch.setattr("livi.sampling.tempering.MOST", 2)
    target = differentiated(lambda x: standard_normal(x) + two_modes(x))
    with pytest.raises(ValueError, match=r"in 2 temperatures, got to an inverse temperature of .*start=\"draws\""):
        anneal(target, standard_normal, torch.randn(64, 2, generator=rng), energy_error=1e-3, rng=rng)


def linear(prior=None):
    layout = Layout(nn.Linear(2, 1))
    return Posterior(Ensemble(layout, torch.full((4, 3), 50.0)), Gaussian(OBS_STD), prior or Normal(1.0))


def test_a_polish_from_the_prior_finds_the_posterior_whatever_the_draws_are(plane):
    """Of Bayesian linear regression, in closed form, from draws that are nowhere near."""
    x, y = plane
    columns = torch.cat([x, torch.ones(len(x), 1)], 1)
    covariance = torch.linalg.inv(torch.eye(3) + columns.T @ columns / OBS_STD**2)
    mean = covariance @ columns.T @ y / OBS_STD**2
    polished = livi.polish(linear(), (x, y), chains=64, draws=1024, steps=200, start="prior", progress=False)
    unit = (polished.sampler.theta - mean) @ torch.linalg.inv(torch.linalg.cholesky(covariance)).T
    each = unit.unflatten(0, (64, -1)).mean(1)
    assert (unit.mean(0).abs() < 4.5 * each.std(0) / 8).all()
    report = PolishReport.of(polished)
    noise = OBS_STD**2 * torch.eye(len(y))
    exact = torch.distributions.MultivariateNormal(torch.zeros(len(y)), columns @ columns.T + noise).log_prob(y)
    assert report.log_evidence == pytest.approx(float(exact), abs=1.0)
    assert report.gradients == 2 * 200 + 1 + 1 + 41 * report.temperatures
    assert f"through {report.temperatures} temperatures" in str(report)


def test_the_evidence_of_many_weights_is_not_too_high(rng):
    """Of Bayesian linear regression with 20 weights, in closed form: large steps made it 0.8 nats too high."""
    x, weights, noise = torch.randn(60, 20, generator=rng), torch.randn(20, generator=rng), 0.3
    y = x @ weights + noise * torch.randn(60, generator=rng)
    exact = torch.distributions.MultivariateNormal(torch.zeros(60), x @ x.T + noise**2 * torch.eye(60)).log_prob(y)

    def log_joint(theta):
        return standard_normal(theta) + torch.distributions.Normal(theta @ x.T, noise).log_prob(y).sum(1)

    found = [
        anneal(
            differentiated(log_joint), standard_normal, torch.randn(128, 20, generator=rng), energy_error=0.1, rng=rng
        )
        for _ in range(4)
    ]
    errors = torch.tensor([each.log_evidence for each in found]) - exact
    assert errors.mean().abs() < 0.5  # two and a half standard errors of the mean


def test_a_prior_that_cannot_be_drawn_from_is_no_start(plane):
    start = linear(FunctionPrior(standard_normal))
    with pytest.raises(NotImplementedError, match="expected a prior that can be drawn from"):
        livi.polish(start, plane, chains=2, draws=16, steps=60, start="prior", progress=False)
    with pytest.raises(ValueError, match="start: expected 'draws' or 'prior', got 'map'"):
        livi.polish(start, plane, start="map")
