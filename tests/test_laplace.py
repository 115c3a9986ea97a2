"""Laplace: exact where the posterior is Gaussian, in all three forms, and the evidence where it is known."""

import sys

import pytest
import torch
from torch import nn

from livi.inference import Recipe
from livi.model.likelihoods import Bernoulli, Categorical, Gaussian
from livi.model.priors import Normal
from livi.posterior.posterior import load
from livi.rivals import fit_laplace_last_layer, fit_laplace_linearised, fit_laplace_low_rank
from livi.rivals.laplace import PROBES

pytest.importorskip("laplace")

OBS_STD = 0.5
LONG = Recipe(map_steps=500, map_restarts=1, map_rate=5e-2)
TINY = Recipe(map_steps=20, map_restarts=1)
FORMS = {
    "last_layer": fit_laplace_last_layer,
    "linearised": fit_laplace_linearised,
    "low_rank": fit_laplace_low_rank,
}


@pytest.fixture
def linear():
    """Correlated columns, targets, and the exact posterior under N(0, 1)."""
    design = torch.randn(40, 3) + torch.randn(40, 1)
    targets = design @ torch.tensor([1.0, -1.0, 0.5]) + OBS_STD * torch.randn(40)
    covariance = torch.linalg.inv(torch.eye(3) + design.T @ design / OBS_STD**2)
    return design, targets, covariance @ design.T @ targets / OBS_STD**2, covariance


def no_bias():
    return nn.Linear(3, 1, bias=False)


def network():
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_exact_for_a_linear_model(form, linear):
    design, targets, mean, covariance = linear
    options = {"prior": Normal(1.0), "recipe": LONG, "tune_prior": False}
    net = nn.Sequential(nn.Identity(), no_bias()) if form == "last_layer" else no_bias()
    posterior = FORMS[form](net, (design, targets), Gaussian(OBS_STD), **options)
    theta = posterior.sample(40_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(theta.mean(0), mean, rtol=0, atol=5e-3)
    torch.testing.assert_close(theta.T.cov(), covariance, rtol=0, atol=0.03 * float(covariance.max()))
    prediction = posterior.predict(design, num_samples=6_000)
    epistemic = (design @ covariance * design).sum(1).sqrt()
    torch.testing.assert_close(prediction.epistemic_std, epistemic, rtol=0.05, atol=0)


@pytest.mark.parametrize("form", FORMS)
def test_the_tuned_precision_is_where_the_evidence_is_largest(form, linear):
    design, targets, *_ = linear
    net = nn.Sequential(nn.Identity(), no_bias()) if form == "last_layer" else no_bias()
    posterior = FORMS[form](net, (design, targets), Gaussian(OBS_STD), prior=Normal(1.0), recipe=LONG)
    theta = posterior.sampler.centre()
    values = torch.linalg.eigvalsh(design.T @ design / OBS_STD**2)
    grid = torch.linspace(-4, 4, 4001).exp()[:, None]  # of precisions, at the MAP estimate under N(0, 1)
    evidence = -0.5 * grid[:, 0] * theta.square().sum() - 0.5 * (values / grid).log1p().sum(1)
    best = float(grid[evidence.argmax()])
    assert posterior.plan["prior_precision"] == pytest.approx(best, rel=0.02)


def test_the_last_layer_given_the_features_is_bayesian_linear_regression(linear):
    design, targets, *_ = linear
    options = {"prior": Normal(1.0), "recipe": LONG, "tune_prior": False}
    posterior = fit_laplace_last_layer(network(), (design, targets), Gaussian(OBS_STD), **options)
    layout, theta = posterior.layout, posterior.sampler.centre()
    weights = layout.unflatten(theta)
    features = torch.tanh(design @ weights["0.weight"].T + weights["0.bias"])
    features = torch.cat([features, torch.ones(40, 1)], 1)
    exact = torch.linalg.inv(torch.eye(7) + features.T @ features / OBS_STD**2)
    drawn = posterior.sample(40_000, torch.Generator().manual_seed(0))
    assert torch.equal(drawn[:, :24], theta[:24].expand(40_000, 24))
    torch.testing.assert_close(drawn[:, 24:].T.cov(), exact, rtol=0, atol=0.03 * float(exact.max()))


def test_linearised_predictions_have_the_variance_of_the_jacobian(linear):
    design, targets, *_ = linear
    posterior = fit_laplace_linearised(network(), (design, targets), Gaussian(OBS_STD), recipe=TINY)
    sampler = posterior.sampler
    centre, plain = sampler.centre(), type(sampler.layout).__mro__[1](sampler.layout.module)
    jacobian = torch.func.jacrev(lambda theta: plain.apply(theta, design)[:, 0])(centre)
    covariance = sampler.sample(60_000, torch.Generator().manual_seed(0)).T.cov()
    expected = (jacobian @ covariance * jacobian).sum(1).sqrt()
    prediction = posterior.predict(design, num_samples=6_000)
    torch.testing.assert_close(prediction.epistemic_std, expected, rtol=0.05, atol=0)
    torch.testing.assert_close(posterior.predict(design, deterministic=True).mean, plain.apply(centre, design)[:, 0])


def test_the_low_rank_form_of_full_rank_has_the_whole_gauss_newton_matrix(linear):
    design, targets, *_ = linear
    options = {"prior": Normal(1.0), "recipe": TINY, "tune_prior": False}
    posterior = fit_laplace_low_rank(network(), (design, targets), Gaussian(OBS_STD), rank=100, **options)
    layout, theta = posterior.layout, posterior.sampler.centre()
    jacobian = torch.func.jacrev(lambda theta: layout.apply(theta, design)[:, 0])(theta)
    exact = torch.linalg.inv(torch.eye(31) + jacobian.T @ jacobian / OBS_STD**2)
    drawn = posterior.sample(60_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn.T.cov(), exact, rtol=0, atol=0.04)
    fewer = fit_laplace_low_rank(network(), (design, targets), Gaussian(OBS_STD), rank=3, **options)
    assert fewer.plan["rank"] == 3


def test_what_the_leading_directions_leave_has_the_average_curvature():
    design = torch.randn(200, 20) * torch.linspace(3.0, 1.0, 20)
    targets = design @ torch.randn(20) / 5 + OBS_STD * torch.randn(200)
    options = {"prior": Normal(1.0), "recipe": TINY, "tune_prior": False, "rank": 4}
    net = nn.Linear(20, 1, bias=False)
    sampler = fit_laplace_low_rank(net, (design, targets), Gaussian(OBS_STD), **options).sampler
    exact = torch.linalg.eigvalsh(design.T @ design / OBS_STD**2).flip(0)
    assert float(sampler.precision[0]) == pytest.approx(1.0 + float(exact[4:].mean()), rel=0.1)  # by 20 probes
    kept = (sampler.values + sampler.precision[0]).sort(descending=True).values
    torch.testing.assert_close(kept, 1.0 + exact[:4], rtol=1e-5, atol=0)


def test_directions_that_are_left_out_are_not_drawn_from_the_prior():
    """Half a nat for each weight is what a posterior of all curvature costs; the prior's width would cost hundreds."""
    design = torch.randn(200, 20) * torch.linspace(3.0, 1.0, 20)
    targets = design @ torch.randn(20) / 5 + OBS_STD * torch.randn(200)
    for tune_prior in (False, True):
        options = {"prior": Normal(1.0), "recipe": LONG, "tune_prior": tune_prior, "rank": 4}
        posterior = fit_laplace_low_rank(nn.Linear(20, 1, bias=False), (design, targets), Gaussian(OBS_STD), **options)
        moved = posterior.sample(4000, torch.Generator().manual_seed(0)) - posterior.sampler.centre()
        cost = 0.5 * (moved @ design.T / OBS_STD).square().sum(1).mean()
        assert float(cost) == pytest.approx(10.0, rel=0.15)
    without = fit_laplace_low_rank(
        nn.Linear(20, 1, bias=False), (design, targets), Gaussian(OBS_STD), rest=False, **options
    )
    moved = without.sample(4000, torch.Generator().manual_seed(0)) - without.sampler.centre()
    assert float(0.5 * (moved @ design.T / OBS_STD).square().sum(1).mean()) > 1000.0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("batch_size", "batches"), [(None, 1), (5, 8)])
def test_the_curvature_counts_as_gradients_on_all_batches_of_the_problem(form, batch_size, batches, linear):
    """A product with the Gauss-Newton matrix counts two; a curvature by layers, one for each output."""
    design, targets, *_ = linear
    options = {"recipe": TINY, "batch_size": batch_size} | ({"rank": 4} if form == "low_rank" else {})
    posterior = FORMS[form](network(), (design, targets), Gaussian(OBS_STD), **options)
    taken = posterior.plan["gradients"] - TINY.map_steps * TINY.map_restarts
    assert taken % batches == 0
    passes = taken // batches
    assert passes >= 2 * (4 + PROBES) if form == "low_rank" else passes == 1


@pytest.mark.parametrize("form", FORMS)
def test_classes_are_predicted_and_come_back_from_a_file(form, tmp_path):
    inputs = torch.randn(60, 3)
    data = (inputs, (inputs[:, 0] > 0).long())
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    posterior = FORMS[form](net, data, Categorical(), recipe=Recipe(map_steps=200, map_restarts=1))
    before = posterior.predict(inputs)
    assert (before.label == data[1]).double().mean() > 0.9
    posterior.save(tmp_path / "saved.livi")
    after = load(tmp_path / "saved.livi", net).predict(inputs)
    torch.testing.assert_close(after.logits, before.logits, rtol=0, atol=0)


def test_a_learned_noise_is_tuned_with_the_precision(linear):
    design, targets, *_ = linear
    posterior = fit_laplace_linearised(network(), (design, targets), Gaussian(), recipe=LONG)
    assert 0.3 < float(posterior.likelihood.obs_std()) < 0.8
    assert not any(parameter.requires_grad for parameter in posterior.likelihood.parameters())


def test_batch_norm_has_the_statistics_of_the_estimate():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    inputs = 2 + torch.randn(30, 3)
    data = (inputs, inputs.sum(1))
    posterior = fit_laplace_last_layer(net, data, Gaussian(OBS_STD), recipe=TINY)
    theta = posterior.sampler.centre()
    trained = posterior.layout.apply(theta, inputs, batch_statistics=True)
    torch.testing.assert_close(posterior.layout.apply(theta, inputs, buffers=posterior.buffers), trained)
    with pytest.raises(ValueError, match=r"got '1.weight' of BatchNorm1d; leave them out: exclude=\['1.weight', '1."):
        fit_laplace_linearised(net, data, Gaussian(OBS_STD), recipe=TINY)
    fit_laplace_linearised(net, data, Gaussian(OBS_STD), recipe=TINY, exclude="1.*").predict(inputs)


def test_what_laplace_torch_does_not_know_is_said():
    data = (torch.randn(8, 3), torch.zeros(8))
    with pytest.raises(TypeError, match=r"expected livi.Gaussian with one noise or livi.Categorical.*got Bernoulli"):
        fit_laplace_low_rank(network(), data, Bernoulli(), recipe=TINY)
    with pytest.raises(ValueError, match=r"expected a network with layers inside.*a lone Linear"):
        fit_laplace_last_layer(nn.Linear(3, 1), data, Gaussian(OBS_STD), recipe=TINY)
    posterior = fit_laplace_linearised(network(), data, Gaussian(OBS_STD), recipe=TINY)
    with pytest.raises(TypeError, match="frozen: expected weights of the network itself"):
        posterior.frozen(3)


def test_a_missing_package_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "laplace", None)
    data = (torch.randn(8, 3), torch.zeros(8))
    for function in FORMS.values():
        with pytest.raises(ImportError, match=r"expected laplace, got no such package; install it: pip install .livi"):
            function(network(), data, Gaussian(), recipe=TINY)


@pytest.mark.parametrize("form", FORMS)
def test_torchs_own_random_stream_and_augmentation_are_left_alone(form):
    inputs, before = torch.randn(30, 3), torch.get_rng_state()
    calls = []

    def augment(batch, rng):
        calls.append(len(batch))
        return batch

    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    before = torch.get_rng_state()
    FORMS[form](net, (inputs, inputs[:, :1]), Gaussian(OBS_STD), recipe=TINY, augment=augment)
    assert torch.equal(torch.get_rng_state(), before)
    assert calls  # the MAP fit has it; the curvature is that of the examples as they are
