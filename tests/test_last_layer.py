"""Fits with a last layer integrated out: what they learn, draw, save and diagnose."""

import pickle
from dataclasses import replace

import pytest
import torch
from support.last_layers import QUICK, Headed, Named, Pair, Shifted, TwoHeads, data, fitted, made, network
from torch import nn

import livi
from livi.family.last_layer import ExactLastLayer
from livi.network import as_call


def test_noise_that_varies_is_learned_with_an_exact_mean():
    rng = torch.Generator().manual_seed(3)
    x = 4 * torch.rand(300, 2, generator=rng, dtype=torch.float64) - 2
    truth = 0.2 * torch.exp(0.7 * x[:, 1])
    y = torch.sin(2 * x[:, 0]) + truth * torch.randn(300, generator=rng, dtype=torch.float64)
    torch.manual_seed(0)
    posterior = fitted(
        TwoHeads().double(),
        (x, y[:, None]),
        livi.HeteroscedasticGaussian(1e-3, learned=True),
        recipe=replace(QUICK, steps=500, map_steps=0, affine_rate=2e-2, hyper_rate=3e-2),
    )
    assert isinstance(posterior.sampler, ExactLastLayer)
    assert isinstance(posterior.likelihood, livi.HeteroscedasticGaussian)
    found = posterior.predict(x, num_samples=64).aleatoric_std
    assert torch.corrcoef(torch.stack([found.log(), truth.log()]))[0, 1] > 0.95
    assert 0.7 < float((found / truth).median()) < 1.6


def test_examples_may_count_several_times():
    x, y = data()
    counts = torch.arange(20, dtype=x.dtype) % 3 + 1
    options = {"recipe": QUICK, "last_layer": "exact", "seed": 1}
    weighted = livi.plan(
        network(),
        ((x, counts), y),
        livi.Weighted(livi.Gaussian(0.2)),
        forward=livi.model.likelihoods.pass_weights,
        **options,
    )
    times = counts.long()
    rows = x.repeat_interleave(times, 0), y.repeat_interleave(times)
    repeated = livi.plan(network(), rows, livi.Gaussian(0.2), **options)
    values = [made.bound(*made.data.first(), torch.Generator().manual_seed(0)).bound for made in (weighted, repeated)]
    torch.testing.assert_close(*values)
    posterior = fitted(
        rows=((x, counts), y), likelihood=livi.Weighted(livi.Gaussian(0.2)), forward=livi.model.likelihoods.pass_weights
    )
    assert isinstance(posterior.sampler, ExactLastLayer)
    assert isinstance(posterior.likelihood, livi.Gaussian)
    assert posterior.predict(x).mean.shape == (20,)


def test_a_middle_sized_network_starts_from_its_own_weights():
    wide = nn.Sequential(nn.Linear(2, 100), nn.Tanh(), nn.Linear(100, 1))
    x, y = data(30)
    plan = livi.plan(wide, (x.float(), y.float()), livi.Gaussian(), prior=livi.Relevance.for_layout)
    assert plan.problem.integrated is not None
    assert plan.recipe.map_steps == 0
    x, y = data(3000)
    assert livi.plan(wide, (x.float(), y.float()), livi.Gaussian()).recipe.map_steps == 1000
    assert plan.bound.family.generators[0].latent_dim == 16
    scale = plan.bound.likelihood.prior.scale()
    torch.testing.assert_close(scale, torch.tensor([1.5 / 10] * 100 + [1.5]))
    assert isinstance(plan.bound.likelihood.prior.log_scale, nn.Parameter)


def test_samples_are_weights_of_the_whole_network_with_the_exact_predictive():
    x, y = data()
    still = replace(QUICK, spread=1e-6, steps=1, affine_rate=1e-9, nonlinear_rate=1e-9)
    with pytest.warns(livi.FitWarning, match="Collapsed spread"):
        posterior = fitted(noise=livi.FixedNoise(1e-6), recipe=still)
    sampler = posterior.sampler
    assert isinstance(sampler, ExactLastLayer)
    assert posterior.layout.num_params == 21
    # With the earlier weights all but fixed, predictions are those of one linear model.
    features = sampler.earlier.layout.apply(sampler.earlier.centre(), x)[None]
    conditional = sampler.likelihood.conditional(features, y)
    design = torch.cat([features[0], torch.ones(20, 1)], -1)
    solved = torch.linalg.solve_triangular(conditional.factor[0, 0], design.T, upper=False)
    prediction = posterior.predict(x, num_samples=20_000, rng=torch.Generator().manual_seed(0))
    torch.testing.assert_close(prediction.mean, (design @ conditional.mean[0]).squeeze(-1), rtol=0, atol=0.01)
    torch.testing.assert_close(prediction.epistemic_std, solved.square().sum(0).sqrt(), rtol=0.05, atol=1e-3)
    torch.testing.assert_close(posterior.predict(x, deterministic=True).mean, prediction.mean, rtol=0, atol=0.01)


def test_the_bound_is_above_that_of_a_sampled_last_layer():
    recipe = replace(QUICK, steps=600, map_steps=300, num_samples=32)
    last = {}
    for mode in ("exact", "sampled"):
        history = fitted(recipe=recipe, last_layer=mode).history
        last[mode] = sum(row["bound"] for row in history[-10:]) / 10
    assert last["exact"] > last["sampled"] + 2.0


def test_noise_and_prior_scale_can_be_learned_along():
    learned = fitted(
        likelihood=livi.Gaussian(),
        prior=lambda layout: livi.Normal.for_layout(layout, per_layer=True, learned=True),
        recipe=replace(QUICK, steps=300, map_steps=200),
    )
    assert 0.03 < float(learned.likelihood.obs_std()) < 0.5
    assert float(learned.sampler.likelihood.prior.log_scale) != 0.0
    assert isinstance(learned.likelihood, livi.Gaussian)


@pytest.mark.parametrize("components", [1, 2])
def test_it_is_saved_loaded_resumed_and_diagnosed(tmp_path, components):
    posterior = fitted(components=components)
    posterior.save(tmp_path / "p.livi")
    again = livi.load(tmp_path / "p.livi", network())
    draws = [each.sample(5, torch.Generator().manual_seed(0)) for each in (posterior, again)]
    assert torch.equal(*draws)
    diagnosis = again.diagnose(*data(), num_samples=32)
    assert "verdict" in str(diagnosis).lower()
    assert again.earlier().sampler.num_components == components
    resumed = [fitted(components=components, checkpoint=tmp_path / "c.livi") for _ in range(2)]
    assert torch.equal(*(each.sample(5, torch.Generator().manual_seed(0)) for each in resumed))
    with pytest.raises(ValueError, match="last_layer was exact: 2 and is sampled"):
        fitted(components=components, checkpoint=tmp_path / "c.livi", last_layer="sampled")


def test_it_can_be_pickled_like_any_estimator():
    posterior = fitted()
    again = pickle.loads(pickle.dumps(posterior))
    assert torch.equal(*(each.sample(3, torch.Generator().manual_seed(0)) for each in (posterior, again)))


def test_several_targets_share_the_features():
    posterior = fitted(network(2), data(outputs=2), recipe=replace(QUICK, steps=200, map_steps=400))
    prediction = posterior.predict(data()[0], num_samples=50)
    assert prediction.mean.shape == (20, 2)
    torch.testing.assert_close(prediction.mean[:, 1], 2 * prediction.mean[:, 0], rtol=0.5, atol=0.4)


@pytest.mark.parametrize("kind", [tuple, dict])
def test_several_inputs_are_fitted_saved_and_diagnosed(kind, tmp_path):
    x, y = data()
    inputs = (x[:, 0], x[:, 1]) if kind is tuple else {"right": x[:, 1], "left": x[:, 0]}
    posterior = livi.fit(made(Pair), (inputs, y), livi.Gaussian(0.2), recipe=QUICK, progress=False)
    assert isinstance(posterior.sampler, ExactLastLayer)
    posterior.save(tmp_path / "p.livi")
    for again in (livi.load(tmp_path / "p.livi", Pair()), pickle.loads(pickle.dumps(posterior))):
        draws = [each.sample(5, torch.Generator().manual_seed(0)) for each in (posterior, again)]
        assert torch.equal(*draws)
        found = again.sampler.all_inputs()
        assert as_call(found)[1].keys() == as_call(inputs)[1].keys()
    assert "verdict" in str(again.diagnose(inputs, y, num_samples=16)).lower()
    one = livi.fit(made(Headed), (x, y), livi.Gaussian(0.2), recipe=QUICK, progress=False)
    torch.testing.assert_close(posterior.predict(inputs).mean, one.predict(x).mean, rtol=0.2, atol=0.2)


def test_a_forward_of_ones_own_is_integrated_over_too(tmp_path):
    def forward(net, x):
        return net(x)["mean"]

    posterior = livi.fit(made(Named), data(), livi.Gaussian(0.2), forward=forward, recipe=QUICK, progress=False)
    assert isinstance(posterior.sampler, ExactLastLayer)
    posterior.save(tmp_path / "p.livi")
    again = livi.load(tmp_path / "p.livi", Named(), forward=forward)
    assert torch.equal(*(each.sample(3, torch.Generator().manual_seed(0)) for each in (posterior, again)))


def test_a_residual_in_place_is_learned_all_the_same():
    x, _ = data(60)
    y = 3.0 * x[:, 0] + torch.tanh(x[:, 1])
    recipe = replace(QUICK, steps=300, map_steps=600, map_restarts=4)
    posterior = livi.fit(made(Shifted), (x, y), livi.Gaussian(0.1), recipe=recipe, progress=False)
    assert livi.posterior.metrics.rmse(posterior.predict(x), y) < 0.15
