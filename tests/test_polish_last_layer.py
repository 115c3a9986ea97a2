"""Polishing a posterior whose last layer is integrated out: the same model, from fewer weights."""

import math
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi
from livi.family.ensemble import Ensemble
from livi.inference import Recipe
from livi.model.likelihoods import Categorical, Gaussian, Weighted, pass_weights
from livi.model.priors import Normal, Relevance
from livi.network import apply_many
from livi.posterior.posterior import load
from livi.sampling import PolishReport
from livi.sampling.chain_target import ChainTarget
from livi.sampling.log_joint import differentiated_joint

OBS_STD = 0.5
SHORT = Recipe(steps=20, map_steps=20, map_restarts=1, num_samples=8, num_entropy_samples=2)
QUICK = {"chains": 4, "draws": 32, "steps": 60, "progress": False}
quietly = pytest.mark.filterwarnings("ignore::livi.inference.FitWarning")


def network(outputs=1):
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, outputs))


def fitted(plane, prior=None, weights=None):
    x, y = plane
    options = {"recipe": SHORT, "progress": False} | ({} if prior is None else {"prior": prior})
    if weights is None:
        return livi.fit(network(), (x, y), Gaussian(OBS_STD), **options)
    return livi.fit(network(), ((x, weights), y), Weighted(Gaussian(OBS_STD)), forward=pass_weights, **options)


def design(theta, x):
    """Hidden units and a constant of each network, (S, N, 5), and its hidden weights."""
    hidden = theta[:, :12]
    units = torch.tanh(torch.einsum("sij,nj->sni", hidden[:, :8].reshape(-1, 4, 2), x) + hidden[:, None, 8:])
    return torch.cat([units, torch.ones_like(units[..., :1])], -1), hidden


@quietly
def test_a_learned_noise_follows_the_chains_and_is_left_as_it_was(plane):
    x, y = plane
    start = livi.fit(network(), (x, y), Gaussian(3.0, learned=True), recipe=SHORT, progress=False)
    before = start.likelihood.log_std.item()
    polished = livi.polish(start, chains=8, draws=64, steps=400, progress=False)
    means = polished.predict(x, num_samples=64).mean
    residual = (means - y).square().mean().sqrt().item()
    assert 0.8 * residual < polished.likelihood.log_std.exp().item() < 1.6 * residual
    assert start.likelihood.log_std.item() == before
    assert start.sampler.likelihood.noise.log_std.item() == before


@quietly
def test_other_examples_than_those_held_are_said_to_be_unused(plane):
    x, y = plane
    posterior = fitted(plane)
    said = f"holds the {len(y)} examples .*, and the {{}} given, which are others, are not used"
    with pytest.warns(livi.FitWarning, match=said.format(5)):
        livi.polish(posterior, (x[:5], y[:5]), **QUICK)
    for others in ((x + 0.1, y), (x, y + 0.1), (x, y.flip(0))):
        with pytest.warns(livi.FitWarning, match=said.format(len(y))):
            livi.polish(posterior, others, **QUICK)


def test_the_examples_that_are_held_are_polished_without_a_word(plane):
    x, y = plane
    posterior = fitted(plane)
    shuffled = DataLoader(TensorDataset(x, y), 7, shuffle=True)
    for same in ((x, y), (x.flip(0), y.flip(0)), shuffled):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            livi.polish(posterior, same, **QUICK)
        assert not [one for one in heard if "are not used" in str(one.message)]


@quietly
@pytest.mark.parametrize("prior", [Normal(0.7), lambda layout: Relevance.for_layout(layout)])
@pytest.mark.parametrize("weighted", [False, True])
def test_chains_move_the_earlier_weights_on_the_evidence_of_their_features(plane, prior, weighted):
    """The log joint is the density of y ~ N(0, F S F^T + noise), by dense matrices, times the hidden weights' prior."""
    x, y = plane
    w = torch.linspace(0.5, 2.0, len(y)) if weighted else torch.ones(len(y))
    start = fitted(plane, prior, w if weighted else None)
    polished = livi.polish(start, **QUICK)
    theta, scale = polished.sampler.theta, polished.prior.scale().expand(17)
    columns, hidden = design(theta, x)
    noise = OBS_STD**2 / w
    covariance = (columns * scale[12:].square()) @ columns.mT + noise.diag()
    fit = torch.distributions.MultivariateNormal(torch.zeros(len(y)), covariance).log_prob(y)
    fit = fit + (0.5 * (2 * math.pi * noise).log() - 0.5 * w * math.log(2 * math.pi * OBS_STD**2)).sum()
    sampler = start.sampler
    of_scales = sampler.prior.log_prob_of_scales() + sampler.likelihood.prior.log_prob_of_scales()
    expected = Normal(scale[:12]).log_prob(hidden) + fit + of_scales
    assert PolishReport.of(polished).log_joint == pytest.approx(float(expected.mean()), rel=1e-6)


@quietly
def test_the_last_layer_of_every_draw_is_an_exact_one_given_the_others(plane):
    x, y = plane
    polished = livi.polish(fitted(plane, Normal(1.0)), chains=8, draws=800, steps=200, progress=False)
    theta = polished.sampler.theta
    columns, _ = design(theta, x)
    precision = torch.eye(5) + columns.mT @ columns / OBS_STD**2
    mean = torch.linalg.solve(precision, columns.mT @ y / OBS_STD**2)
    unit = (torch.linalg.cholesky(precision).mT @ (theta[:, 12:] - mean)[..., None])[..., 0]
    assert (unit.mean(0).abs() < 4.5 / 800**0.5).all()
    assert ((unit.square().mean(0) - 1.0).abs() < 4.5 * (2 / 800) ** 0.5).all()


@quietly
def test_a_polished_one_is_an_ordinary_posterior(plane, path):
    polished = livi.polish(fitted(plane), **QUICK)
    assert isinstance(polished.sampler, Ensemble)
    polished.save(path)
    loaded = load(path, network())
    assert torch.equal(loaded.predict(plane[0]).mean, polished.predict(plane[0]).mean)
    assert PolishReport.of(loaded) == PolishReport.of(polished)
    polished.diagnose(*plane)


@quietly
def test_chains_in_blocks_give_what_all_at_once_gives(plane, monkeypatch):
    start = fitted(plane)
    whole = livi.polish(start, **QUICK)
    monkeypatch.setattr("livi.sampling.log_joint.BLOCK", 400.0)  # of 20 examples and 12 multiplications: one chain
    assert torch.allclose(livi.polish(start, **QUICK).sampler.theta, whole.sampler.theta, atol=1e-8)


@quietly
def test_where_the_last_layer_has_only_a_bound_all_weights_are_moved(plane):
    x, y = plane
    labels = (y > 0).long()
    options = {"last_layer": "conditional", "recipe": SHORT, "progress": False}
    start = livi.fit(network(2), (x, labels), Categorical(), **options)
    target = ChainTarget.of(start, None, None)
    assert target.exact is None
    assert target.moved.layout.num_params == 22
    value, _ = differentiated_joint(target.moved, 3)(start.sample(3))
    assert torch.isfinite(value).all()


@quietly
def test_a_posterior_that_was_saved_is_polished_as_before(plane, path):
    start = livi.fit(network(), plane, Gaussian(3.0, learned=True), recipe=SHORT, progress=False)
    start.save(path)
    loaded = load(path, network())
    assert loaded.likelihood is loaded.sampler.likelihood.observed
    here, there = (livi.polish(one, **QUICK) for one in (start, loaded))
    assert here.likelihood.log_std.item() == there.likelihood.log_std.item() != start.likelihood.log_std.item()
    torch.testing.assert_close(here.predict(plane[0]).total_std, there.predict(plane[0]).total_std, rtol=0, atol=0)


@quietly
def test_the_evidence_of_chains_from_the_prior_is_given_the_scales_of_the_last_layer():
    torch.manual_seed(0)
    x = torch.linspace(-2, 2, 12)[:, None]
    data = x, torch.sin(x[:, 0]) + 0.3 * torch.randn(12)
    net = nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 1))
    options = {"prior": lambda layout: Relevance.for_layout(layout, learned=True), "standardise": False}
    posterior = livi.fit(net, data, Gaussian(0.8), steps=200, progress=False, **options)
    cooled = livi.polish(posterior, data, chains=256, draws=2048, steps=30, start="prior", progress=False)
    sampler = posterior.sampler
    assert abs(float(sampler.likelihood.prior.log_prob_of_scales())) > 0.15
    theta = sampler.prior.sample(20_000, sampler.earlier.layout.num_params, torch.Generator().manual_seed(1))
    values = sampler.likelihood.conditional(apply_many(sampler.earlier.layout, theta, x), data[1]).log_evidence
    expected = float(values.logsumexp(0)) - math.log(len(theta))
    assert PolishReport.of(cooled).log_evidence == pytest.approx(expected, abs=0.12)
