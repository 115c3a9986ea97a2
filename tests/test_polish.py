"""Polishing end to end: exact where the posterior is known, from any kind of posterior, and honest about its chains."""

import json

import pytest
import torch
from torch import nn

import livi
from livi.family.ensemble import Ensemble
from livi.inference import FitWarning, Recipe
from livi.model.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian, Likelihood
from livi.model.priors import Laplace, Normal
from livi.network import Layout, apply_many
from livi.posterior.posterior import Posterior, load
from livi.rivals import fit_ensemble
from livi.sampling import PolishReport

OBS_STD = 0.5
SHORT = Recipe(steps=20, map_steps=20, map_restarts=1, num_samples=8, num_entropy_samples=2)
QUICK = {"chains": 4, "draws": 32, "steps": 60, "progress": False}
quietly = pytest.mark.filterwarnings("ignore::livi.inference.FitWarning")


def network(outputs=1):
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, outputs))


def around(net, likelihood, prior=None, spread=0.1, count=16):
    """A posterior of networks near the given one."""
    layout = Layout(net)
    theta = layout.flatten() + spread * torch.randn(
        count, layout.num_params, generator=torch.Generator().manual_seed(3)
    )
    return Posterior(Ensemble(layout, theta), likelihood, prior or Normal(1.0))


def fitted(net, data, likelihood, **options):
    return livi.fit(net, data, likelihood, recipe=SHORT, progress=False, **options)


# --- where the posterior is known -----------------------------------------------------------------


def test_bayesian_linear_regression_gets_its_closed_form(plane):
    x, y = plane
    design = torch.cat([x, torch.ones(len(x), 1)], 1)
    covariance = torch.linalg.inv(torch.eye(3) + design.T @ design / OBS_STD**2)
    mean = covariance @ design.T @ y / OBS_STD**2
    start = around(nn.Linear(2, 1), Gaussian(OBS_STD), spread=0.5, count=40)
    polished = livi.polish(start, (x, y), chains=40, draws=4000, steps=1000, progress=False)
    unit = (polished.sampler.theta - mean) @ torch.linalg.inv(torch.linalg.cholesky(covariance)).T
    each = unit.unflatten(0, (40, -1))  # chain by chain
    error = each.mean(1).std(0) / 40**0.5
    assert (unit.mean(0).abs() < 4.5 * error).all()
    assert (unit.var(0) - 1.03).abs().max() < 0.08  # the step size inflates variances by a few per cent
    report = PolishReport.of(polished)
    assert report.rhat[1] < 1.05
    assert report.effective[1] > 400


@quietly
@pytest.mark.parametrize("first", [2.0, 0.2])
def test_a_learned_noise_follows_the_chains_to_the_highest_evidence(plane, first):
    x, y = plane
    design = torch.cat([x, torch.ones(len(x), 1)], 1).double()
    noises = torch.linspace(0.05, 2.0, 400, dtype=torch.float64)
    covariances = design @ design.T + noises.square()[:, None, None] * torch.eye(len(x), dtype=torch.float64)
    evidence = torch.distributions.MultivariateNormal(torch.zeros(len(x)).double(), covariances).log_prob(y.double())
    start = around(nn.Linear(2, 1), Gaussian(first, learned=True), spread=0.5, count=16)
    polished = livi.polish(start, (x, y), chains=16, draws=160, steps=1000, progress=False)
    assert polished.likelihood.log_std.exp().item() == pytest.approx(noises[evidence.argmax()].item(), rel=0.07)
    assert start.likelihood.log_std.exp().item() == pytest.approx(first)  # what was polished stays as it is
    given = livi.polish(around(nn.Linear(2, 1), Gaussian(first)), (x, y), **QUICK)
    assert given.likelihood.log_std.exp().item() == pytest.approx(first)


# --- every kind of posterior, likelihood and data -------------------------------------------------


@quietly
@pytest.mark.parametrize("likelihood", [Gaussian(OBS_STD), Gaussian(), HeteroscedasticGaussian()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_fit_of_numbers_is_polished(plane, likelihood, dtype):
    x, y = (part.to(dtype) for part in plane)
    net = network(2 if isinstance(likelihood, HeteroscedasticGaussian) else 1).to(dtype)
    start = fitted(net, (x, y), likelihood)
    polished = livi.polish(start, (x, y), **QUICK)
    assert isinstance(polished.sampler, Ensemble)
    assert polished.sampler.theta.shape[0] >= 24  # a chain may be left out after so short a fit
    assert polished.sampler.theta.dtype == dtype
    assert torch.isfinite(polished.predict(x).mean).all()
    assert (polished.likelihood is start.likelihood) == (not list(likelihood.parameters()))  # else with its own noise


@quietly
def test_a_fit_of_classes_is_polished(plane):
    x, y = plane
    labels = (y > 0).long()
    polished = livi.polish(fitted(network(2), (x, labels), Categorical(), components=2), (x, labels), **QUICK)
    assert polished.predict(x).probabilities.shape == (20, 2)


@quietly
def test_cold_chains_start_at_the_members_of_an_ensemble(plane):
    start = fit_ensemble(network(), plane, Gaussian(OBS_STD), members=3, steps=20)
    polished = livi.polish(start, plane, **QUICK)
    assert polished.sampler.num_members == 32
    assert polished.plan["method"] == "ensemble"


@quietly
def test_batches_are_gathered_and_give_what_tensors_give(plane):
    x, y = plane
    start = around(network(), Gaussian(OBS_STD))
    batches = [(x[:7], y[:7]), (x[7:], y[7:])]
    together, apart = livi.polish(start, (x, y), **QUICK), livi.polish(start, batches, **QUICK)
    assert torch.allclose(together.sampler.theta, apart.sampler.theta)


@quietly
def test_examples_in_blocks_give_what_all_at_once_gives(plane, monkeypatch):
    start = around(network(), Gaussian(OBS_STD))
    whole = livi.polish(start, plane, **QUICK)
    monkeypatch.setattr("livi.sampling.log_joint.BLOCK", 1000.0)
    assert torch.allclose(livi.polish(start, plane, **QUICK).sampler.theta, whole.sampler.theta, atol=1e-8)


@quietly
def test_every_draw_gets_batch_norm_statistics_of_its_own(plane):
    x, y = plane
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    polished = livi.polish(around(net, Gaussian(OBS_STD), spread=0.3), (x, y), **QUICK)
    assert polished.buffers["1.running_mean"].shape == (32, 4)
    at_batch = apply_many(polished.layout, polished.sampler.theta, x, batch_statistics=True).mean(0)
    own = polished.predict(x, num_samples=32).mean
    assert torch.allclose(own.flatten(), at_batch.flatten(), atol=0.1)  # the running variance is the unbiased one


# --- what comes back ------------------------------------------------------------------------------


@quietly
def test_a_polished_posterior_is_saved_with_its_report(plane, path):
    polished = livi.polish(around(network(), Gaussian(OBS_STD)), plane, **QUICK)
    json.dumps(polished.plan)
    polished.save(path)
    loaded = load(path, network())
    assert PolishReport.of(loaded) == PolishReport.of(polished)
    assert torch.equal(loaded.predict(plane[0]).mean, polished.predict(plane[0]).mean)
    polished.diagnose(*plane)
    text = str(PolishReport.of(polished))
    assert "32 draws of 4 microcanonical Langevin chains, 60 steps each" in text


@quietly
def test_the_seed_decides_every_draw(plane):
    start = around(network(), Gaussian(OBS_STD))
    first, again, other = (livi.polish(start, plane, seed=seed, **QUICK).sampler.theta for seed in (1, 1, 2))
    assert first.equal(again)
    assert not first.equal(other)


def test_chains_that_disagree_are_said(plane):
    """Two networks of which each says something else, and steps too few to meet."""
    layout = Layout(network())
    theta = 2.0 * torch.randn(2, layout.num_params, generator=torch.Generator().manual_seed(0))
    start = Posterior(Ensemble(layout, theta), Gaussian(3.0), Normal(3.0))
    with pytest.warns(FitWarning, match="Chains disagree about predictions: R-hat is"):
        livi.polish(start, plane, chains=4, draws=32, steps=12, progress=False)


def test_a_chain_that_is_left_out_is_said(plane):
    start = around(network(), Gaussian(OBS_STD), count=6)
    start.sampler.theta[3] = float("nan")
    with pytest.warns(FitWarning, match="Left out 1 of 6 chains: chain . started where"):
        polished = livi.polish(start, plane, chains=6, draws=60, steps=400, progress=False)
    assert polished.sampler.num_members == 50
    assert torch.isfinite(polished.sampler.theta).all()


@pytest.mark.filterwarnings("ignore:Chains disagree")
def test_steps_that_turn_out_too_long_are_said(plane, monkeypatch):
    monkeypatch.setattr("livi.sampling.polishing.LARGE_ERROR", 1e-6)
    with pytest.warns(FitWarning, match="Steps too long for where the chains went"):
        livi.polish(around(network(), Gaussian(OBS_STD)), plane, **(QUICK | {"steps": 400}))


# --- what cannot be polished ----------------------------------------------------------------------


class _Wordy(Likelihood):
    def log_prob(self, outputs, targets):
        return -(outputs[..., 0] - targets).square()


@quietly
def test_any_likelihood_and_prior_will_do(plane):
    polished = livi.polish(around(network(), _Wordy(), Laplace(1.0)), plane, **QUICK)
    assert polished.sampler.num_members == 32


def test_what_is_missing_is_said(plane):
    start = around(network(), Gaussian(OBS_STD))
    with pytest.raises(ValueError, match="data: expected the examples"):
        livi.polish(start)
    with pytest.raises(ValueError, match="with a prior, got none"):
        livi.polish(Posterior(start.sampler, start.likelihood), plane)
    with pytest.raises(TypeError, match=r"expected what livi\.fit returns, got Ensemble"):
        livi.polish(start.sampler, plane)
    with pytest.raises(ValueError, match="at least 128, 8 for each of 16 chains, got 3"):
        livi.polish(start, plane, draws=3)
    with pytest.raises(ValueError, match="not polished"):
        PolishReport.of(start)


def test_data_that_are_too_large_or_change_are_refused(plane, monkeypatch):
    start = around(network(), Gaussian(OBS_STD))
    monkeypatch.setattr("livi.sampling.chain_target.MEMORY", 100)
    with pytest.raises(ValueError, match="every step uses all of them, got 0 MB"):
        livi.polish(start, plane, **QUICK)
    monkeypatch.undo()

    class Augmented:
        def __len__(self):
            return 2

        def __iter__(self):
            x, y = plane
            yield from ((x + torch.rand(()), y), (x, y))

    with pytest.raises(ValueError, match=r"the same examples at every epoch.*use the posterior as it is"):
        livi.polish(start, Augmented(), **QUICK)


@pytest.mark.parametrize("factor", [30.0, 1000.0])
def test_a_chain_that_is_lost_has_no_say_in_the_noise(factor):
    torch.manual_seed(0)
    x = torch.linspace(-2, 2, 40)[:, None]
    y = 2.0 * torch.sin(2.0 * x[:, 0]) + 0.1 * torch.randn(40)
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    options = {"members": 4, "steps": 800, "standardise": False, "prior": Normal(2.0)}
    members = fit_ensemble(net, (x, y), Gaussian(0.1, learned=True), **options)
    theta = members.sampler.theta.clone()
    theta[0] *= factor
    start = Posterior(Ensemble(members.layout, theta), members.likelihood, members.prior)
    with pytest.warns(FitWarning, match="Left out 1 of 4 chains"):
        polished = livi.polish(start, (x, y), chains=4, draws=32, steps=400, progress=False)
    assert 0.05 < float(polished.likelihood.obs_std()) < 0.2
