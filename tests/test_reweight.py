"""Reweighting beside closed forms and quadrature: exact weights for exact posteriors, and moments of the right one."""

import json
import math
import signal
from dataclasses import replace

import pytest
import torch
from torch import nn

import livi
from livi.family.generators import MLP, Affine
from livi.family.implicit import ImplicitPosterior
from livi.family.noise import FixedNoise
from livi.inference import FitWarning, Recipe
from livi.model.likelihoods import Categorical, Gaussian
from livi.model.priors import Normal, Relevance
from livi.network import Layout, apply_many
from livi.posterior.posterior import Posterior, load
from livi.rivals import fit_ensemble
from livi.sampling import ReweightReport

OBS_STD, NOISE = 0.5, 0.02
SHORT = Recipe(steps=20, map_steps=20, map_restarts=1, num_samples=8, num_entropy_samples=2)
QUICK = {"num_samples": 64, "draws": 32, "progress": False}
quietly = pytest.mark.filterwarnings("ignore::livi.inference.FitWarning")


def gaussian(mean, covariance):
    """A generator of N(mean, covariance) with the noise taken off."""
    count = len(mean)
    generator = Affine(count, count)
    with torch.no_grad():
        generator.offset.copy_(mean)
        generator.skip.copy_(torch.linalg.cholesky(covariance - NOISE**2 * torch.eye(count)))
    return generator


def posterior_of(net, generators, noise=NOISE):
    noises = [FixedNoise(noise) for _ in generators]
    return Posterior(ImplicitPosterior(Layout(net), generators, noises), Gaussian(OBS_STD), Normal(1.0))


def closed_form(plane):
    """Mean and covariance of the weights of a line, and log p(D)."""
    x, y = plane
    design = torch.cat([x, torch.ones(len(x), 1)], 1)
    covariance = torch.linalg.inv(torch.eye(3) + design.T @ design / OBS_STD**2)
    marginal = torch.distributions.MultivariateNormal(
        torch.zeros(len(x)), design @ design.T + OBS_STD**2 * torch.eye(len(x))
    )
    return covariance @ design.T @ y / OBS_STD**2, covariance, float(marginal.log_prob(y))


def report_of(posterior, data, **options):
    return ReweightReport.of(livi.reweight(posterior, data, progress=False, **options))


class Bent(nn.Module):
    """v tanh(w x): two weights, and the same function with both signs turned."""

    def __init__(self):
        super().__init__()
        self.v, self.w = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.v * torch.tanh(self.w * x)


def bent_data():
    x = torch.linspace(-2, 2, 9)[:, None]
    return x, 1.5 * torch.tanh(x[:, 0]) + 0.1


def by_quadrature(data):
    """log p(D), and means of v^2, w^2 and v w, on a grid of weights."""
    side = torch.linspace(-6, 6, 601)
    grid = torch.cartesian_prod(side, side)
    x, y = data
    outputs = grid[:, :1] * torch.tanh(grid[:, 1:] * x[:, 0])
    joint = torch.distributions.Normal(outputs, OBS_STD).log_prob(y).sum(1) + Normal(1.0).log_prob(grid)
    shares = joint.softmax(0)[:, None]
    log_evidence = float(joint.logsumexp(0)) + 2.0 * math.log(0.02)
    return log_evidence, (shares * squares(grid)).sum(0)


def squares(theta):  # what both modes agree on
    return torch.stack([theta[:, 0].square(), theta[:, 1].square(), theta[:, 0] * theta[:, 1]], 1)


# --- where the answer is known --------------------------------------------------------------------


def test_the_exact_posterior_has_equal_weights_and_its_log_evidence(plane):
    mean, covariance, log_evidence = closed_form(plane)
    found = report_of(posterior_of(nn.Linear(2, 1), [gaussian(mean, covariance)]), plane, num_samples=300, draws=100)
    assert found.effective == pytest.approx(300.0)
    assert found.log_evidence[0] == pytest.approx(log_evidence)
    assert found.bound[0] == pytest.approx(log_evidence)
    assert found.log_evidence[1] < 1e-8
    assert (found.samples, found.draws, found.distinct) == (300, 100, 100)
    assert found.reliable
    assert found.shares == pytest.approx((1.0,))


def test_draws_of_another_gaussian_get_the_moments_of_the_posterior(plane):
    mean, covariance, log_evidence = closed_form(plane)
    shifted = gaussian(mean + 0.7 * covariance.diagonal().sqrt(), 2.0 * covariance)
    start = posterior_of(nn.Linear(2, 1), [shifted])
    reweighted = livi.reweight(start, plane, num_samples=8000, draws=8000, progress=False)
    found = ReweightReport.of(reweighted)
    unit = (reweighted.sampler.theta - mean) @ torch.linalg.inv(torch.linalg.cholesky(covariance)).T
    error = found.effective**-0.5
    assert (unit.mean(0).abs() < 4.0 * error).all()
    assert ((unit.var(0) - 1.0).abs() < 4.0 * 2.0**0.5 * error).all()
    assert abs(found.log_evidence[0] - log_evidence) < 4.0 * found.log_evidence[1]
    assert found.bound[0] < log_evidence - 0.3
    assert 1000 < found.effective < 7000
    assert found.pareto_shape < 0.5


def test_a_bent_q_gets_the_moments_of_quadrature(rng):
    """A generator that is far from affine, some of whose draws have more than one latent behind them."""
    data = bent_data()
    log_evidence, expected = by_quadrature(data)
    generator = MLP(2, 2, hidden=(8,), activation=nn.Tanh, skip=True, offset=True)
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng))
        generator.skip.copy_(torch.eye(2))
        generator.offset.zero_()
    start = posterior_of(Bent(), [generator], noise=0.3)
    reweighted = livi.reweight(start, data, num_samples=6000, draws=6000, num_importance=16, progress=False)
    found = ReweightReport.of(reweighted)
    assert found.reliable
    assert found.density_error > 0.03
    assert abs(found.log_evidence[0] - log_evidence) < 4.0 * found.log_evidence[1]
    values = squares(reweighted.sampler.theta)
    assert ((values.mean(0) - expected).abs() < 4.0 * values.std(0) / found.effective**0.5).all()


def modes():
    """Of the two functions that are one: generators around them, one much narrower than the other."""
    around = torch.tensor([1.3, 1.0])
    wide, narrow = 0.25 * torch.eye(2), 0.08 * torch.eye(2)
    return gaussian(around, wide), gaussian(-around, narrow)


def test_components_get_the_shares_of_their_modes_however_tight_they_are():
    found = report_of(posterior_of(Bent(), modes()), bent_data(), num_samples=40_000, num_importance=2)
    log_evidence, _ = by_quadrature(bent_data())
    assert found.shares == pytest.approx((0.5, 0.5), abs=0.1)
    assert found.log_evidence[0] == pytest.approx(log_evidence, abs=0.1)


def test_one_of_two_equal_modes_misses_log_two_of_the_evidence():
    log_evidence, _ = by_quadrature(bent_data())
    found = report_of(posterior_of(Bent(), modes()[:1]), bent_data(), num_samples=4000)
    assert found.log_evidence[0] == pytest.approx(log_evidence - math.log(2.0), abs=0.1)


@pytest.mark.parametrize("prior", [Normal(1.0), lambda layout: Relevance.for_layout(layout, learned=True)])
def test_an_exact_last_layer_needs_no_weight_and_gives_its_evidence(prior):
    x = torch.linspace(-2, 2, 12)[:, None]
    data = x, torch.sin(x[:, 0]) + 0.3 * torch.randn(12)
    net = nn.Sequential(nn.Linear(1, 2), nn.Tanh(), nn.Linear(2, 1))
    recipe = Recipe(steps=300, map_steps=200, map_restarts=2, num_samples=16)
    posterior = livi.fit(net, data, Gaussian(0.8), prior=prior, standardise=False, recipe=recipe, progress=False)
    reweighted = livi.reweight(posterior, num_samples=1000, draws=200, progress=False)
    found, sampler = ReweightReport.of(reweighted), posterior.sampler
    theta = sampler.prior.sample(20_000, sampler.earlier.layout.num_params, torch.Generator().manual_seed(1))
    values = sampler.likelihood.conditional(apply_many(sampler.earlier.layout, theta, x), data[1]).log_evidence
    expected = float(values.logsumexp(0)) - math.log(len(theta))
    assert found.log_evidence[0] == pytest.approx(expected, abs=0.1)
    assert reweighted.sampler.theta.shape == (200, 7)
    assert len(reweighted.sampler.theta[:, 4:].unique(dim=0)) == 200  # a last layer for each, also of the same others


# --- what comes back ------------------------------------------------------------------------------


@quietly
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_an_ordinary_posterior_with_a_report(plane, path, dtype):
    x, y = (part.to(dtype) for part in plane)

    def network():
        return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).to(dtype)

    start = livi.fit(network(), (x, y), Gaussian(), components=2, recipe=SHORT, progress=False)
    reweighted = livi.reweight(start, **QUICK)
    json.dumps(reweighted.plan, allow_nan=False)
    reweighted.save(path)
    loaded = load(path, network())
    found = ReweightReport.of(reweighted)
    assert ReweightReport.of(loaded) == found
    assert torch.equal(loaded.predict(x).mean, reweighted.predict(x).mean)
    assert reweighted.sampler.theta.dtype == dtype
    reweighted.diagnose(x, y)
    assert sum(found.shares) == pytest.approx(1.0)
    text = str(found)
    assert "32 draws, " in text
    assert "components    2, worth" in text
    livi.polish(reweighted, (x, y), chains=4, draws=32, steps=40, progress=False)


@quietly
def test_what_so_few_draws_cannot_tell_is_saved_too(plane, path):
    mean, covariance, _ = closed_form(plane)
    start = posterior_of(nn.Linear(2, 1), [gaussian(mean, 1.5 * covariance)])
    livi.reweight(start, plane, num_samples=8, draws=8, num_importance=1, progress=False).save(path)
    found = ReweightReport.of(load(path, nn.Linear(2, 1)))
    assert math.isnan(found.pareto_shape)
    assert math.isnan(found.density_error)
    assert math.isfinite(found.log_evidence[0])


@quietly
def test_batch_norm_is_by_all_examples_and_each_draw_has_its_own_statistics(plane):
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    start = livi.fit(net, plane, Gaussian(OBS_STD), last_layer="sampled", recipe=SHORT, progress=False)
    reweighted = livi.reweight(start, plane, **QUICK)
    assert reweighted.buffers["1.running_mean"].shape == (32, 4)
    assert torch.isfinite(reweighted.predict(plane[0]).mean).all()


def test_the_seed_decides_every_draw(plane):
    mean, covariance, _ = closed_form(plane)
    start = posterior_of(nn.Linear(2, 1), [gaussian(mean, 1.5 * covariance)])
    first, again, other = (livi.reweight(start, plane, seed=seed, **QUICK).sampler.theta for seed in (1, 1, 2))
    assert first.equal(again)
    assert not first.equal(other)


def test_networks_in_blocks_give_what_all_at_once_gives(plane, monkeypatch):
    mean, covariance, _ = closed_form(plane)
    start = posterior_of(nn.Linear(2, 1), [gaussian(mean, 1.5 * covariance)])
    whole = livi.reweight(start, plane, **QUICK)
    monkeypatch.setattr("livi.sampling.reweighting.BLOCK", 100.0)
    assert torch.allclose(livi.reweight(start, plane, **QUICK).sampler.theta, whole.sampler.theta)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_keeps_the_draws_that_were_made(plane, monkeypatch):
    mean, covariance, log_evidence = closed_form(plane)
    start = posterior_of(nn.Linear(2, 1), [gaussian(mean, covariance)])
    before = ImplicitPosterior.log_prob_of

    def pressed(self, draw, **options):
        signal.raise_signal(signal.SIGINT)
        return before(self, draw, **options)

    monkeypatch.setattr(ImplicitPosterior, "log_prob_of", pressed)
    with pytest.warns(FitWarning, match="interrupted: weighing the 250 of 2,000 draws"):
        found = report_of(start, plane)
    assert found.log_evidence[0] == pytest.approx(log_evidence)


# --- what cannot be relied on, or not be done -----------------------------------------------------


def test_weights_that_cannot_be_relied_on_are_said_with_a_remedy(plane):
    mean, covariance, _ = closed_form(plane)
    narrow = posterior_of(nn.Linear(2, 1), [gaussian(mean + 1.0, 0.25 * covariance)])
    with pytest.warns(FitWarning, match=r"cannot be relied on: they leave .* draws of 2,000.*use livi\.polish"):
        found = report_of(narrow, plane)
    assert not found.reliable
    assert "not reliable: they leave" in str(found)
    heavy = replace(found, pareto_shape=0.9, effective=100.0)
    assert heavy.trouble() == "the largest have a Pareto shape of 0.90, where the mean of 2,000 is of use up to 0.70"
    assert replace(heavy, effective=1990.0).reliable  # all but equal weights
    assert "30 draws are too few" in replace(heavy, samples=30, pareto_shape=math.nan).trouble()


@quietly
def test_other_examples_and_temperatures_are_said(plane):
    x, y = plane
    net, sampled = nn.Linear(2, 1), {"last_layer": "sampled", "progress": False}
    start = livi.fit(net, (x, y), Gaussian(OBS_STD), recipe=SHORT, **sampled)
    with pytest.warns(FitWarning, match="reweight: expected the 20 examples .* got 10; the weights are of these alone"):
        livi.reweight(start, (x[:10], y[:10]), **QUICK)
    cold = livi.fit(net, (x, y), Gaussian(OBS_STD), recipe=Recipe(temperature=0.5).over(SHORT), **sampled)
    with pytest.warns(FitWarning, match="one of temperature 0.5 costs effective draws"):
        reweighted = livi.reweight(cold, (x, y), **QUICK)
    assert reweighted.temperature == 1.0


def test_what_is_missing_is_said(plane):
    mean, covariance, _ = closed_form(plane)
    start = posterior_of(nn.Linear(2, 1), [gaussian(mean, covariance)])
    with pytest.raises(ValueError, match="data: expected the examples"):
        livi.reweight(start)
    with pytest.raises(ValueError, match="with a prior, got none"):
        livi.reweight(Posterior(start.sampler, start.likelihood), plane)
    with pytest.raises(TypeError, match=r"expected what livi\.fit returns, got ImplicitPosterior"):
        livi.reweight(start.sampler, plane)
    with pytest.raises(ValueError, match="not reweighted"):
        ReweightReport.of(start)
    with pytest.raises(ValueError, match="draws that the data allow, got none of 64"):
        livi.reweight(start, (plane[0], plane[1] + 1e200), **QUICK)


@quietly
def test_posteriors_without_a_density_are_refused_with_a_remedy(plane, monkeypatch):
    members = fit_ensemble(nn.Linear(2, 1), plane, Gaussian(OBS_STD), members=2, steps=5)
    with pytest.raises(TypeError, match=r"by a generator.*got Ensemble; reweight a fit .*polish=False.*livi\.polish"):
        livi.reweight(members, plane)
    x, y = plane
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    options = {"last_layer": "conditional", "recipe": SHORT, "progress": False}
    with pytest.raises(TypeError, match=r"got one given the others by a bound; fit with last_layer=.sampled."):
        livi.reweight(livi.fit(net, (x, (y > 0).long()), Categorical(), **options))
    mean, covariance, _ = closed_form(plane)
    start = posterior_of(nn.Linear(2, 1), [gaussian(mean, covariance)])
    monkeypatch.setattr("livi.sampling.reweighting.MAX_ENTRIES", 8)
    with pytest.raises(ValueError, match=r"256 latents, and 8 latents times weights.*got 3 x 3; use livi\.polish"):
        livi.reweight(start, plane)
