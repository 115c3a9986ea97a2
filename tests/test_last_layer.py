"""A last layer integrated out: its evidence and posterior against brute force, and everything built on them."""

import math
import pickle
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal

import livi
from livi.family.last_layer import Conditional, ExactLastLayer, LinearGaussian
from livi.inference import Recipe

QUICK = Recipe(steps=60, map_steps=60, map_restarts=2, num_samples=8, num_entropy_samples=2)


def network(outputs=1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


def data(count=20, outputs=None):
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(count, 2, generator=rng, dtype=torch.float64)
    y = torch.sin(2 * x[:, 0]) + 0.1 * torch.randn(count, generator=rng, dtype=torch.float64)
    return x, y if outputs is None else torch.stack([(k + 1) * y for k in range(outputs)], 1)


def fitted(net=None, rows=None, likelihood=None, **options):
    options = {"recipe": QUICK, "progress": False, "last_layer": "exact"} | options
    return livi.fit(net or network(), rows or data(), likelihood or livi.Gaussian(0.2), **options)


def features_of(rows=20, width=4, samples=3):
    return torch.randn(samples, rows, width, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


# --- the evidence and the posterior of the last layer ---------------------------------------------


@pytest.mark.parametrize("outputs", [None, 3])
def test_the_evidence_is_that_of_the_joint_gaussian(outputs):
    features, (_, y) = features_of(), data(outputs=outputs)
    likelihood = LinearGaussian(livi.Gaussian(0.3), scale=0.7).double()
    design = torch.cat([features, torch.ones(3, 20, 1)], -1)
    covariance = 0.7**2 * design @ design.mT + 0.3**2 * torch.eye(20, dtype=torch.float64)
    columns = y.reshape(20, -1).T
    expected = sum(
        MultivariateNormal(torch.zeros(20, dtype=y.dtype), covariance).log_prob(column) for column in columns
    )
    shares = likelihood.log_prob(features, y)
    assert shares.shape == (3, 20)
    torch.testing.assert_close(shares.sum(1), expected)


def test_the_posterior_is_that_of_ridge_regression():
    features, (_, y) = features_of(), data()
    likelihood = LinearGaussian(livi.Gaussian(0.3), scale=0.7).double()
    conditional = likelihood.conditional(features, y)
    design = torch.cat([features, torch.ones(3, 20, 1)], -1)
    precision = design.mT @ design / 0.3**2 + torch.eye(5, dtype=y.dtype) / 0.7**2
    mean = torch.linalg.solve(precision, design.mT @ y[:, None] / 0.3**2)
    torch.testing.assert_close(conditional.mean, mean)
    many = conditional.mean[:1].repeat(20_000, 1, 1), conditional.factor[:1].repeat(20_000, 1, 1, 1)
    draws = likelihood.draw(Conditional(*many, *conditional[2:]), torch.Generator().manual_seed(0))
    covariance = draws.squeeze(-1).T.cov()
    torch.testing.assert_close(
        covariance, torch.linalg.inv(precision[0]), rtol=0.1, atol=0.05 * covariance.max().item()
    )


def test_gradients_reach_features_noise_and_scale():
    features, (_, y) = features_of(rows=6, width=2, samples=2), data(6)
    likelihood = LinearGaussian(livi.Gaussian(0.5, learned=True), scale=0.8, learn_scale=True).double()
    names = [name for name, _ in likelihood.named_parameters()]
    assert names == ["log_scale", "noise.log_std"]

    def total(features, log_scale, log_std):
        parts = {"log_scale": log_scale, "noise.log_std": log_std}
        return torch.func.functional_call(
            _LogProb(likelihood), {f"inner.{k}": v for k, v in parts.items()}, (features, y)
        )

    inputs = (features.requires_grad_(), *(p.detach().clone().requires_grad_() for p in likelihood.parameters()))
    assert torch.autograd.gradcheck(total, inputs)


class _LogProb(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, features, targets):
        return self.inner.log_prob(features, targets)


def varying(count=20):
    """A likelihood, features with a raw scale behind them, and the noise that they mean."""
    likelihood = LinearGaussian(livi.HeteroscedasticGaussian(0.1, learned=True), scale=0.7).double()
    outputs = features_of(count, width=5)
    return likelihood, outputs, likelihood.noise.std(outputs[..., -1])


def test_the_noise_may_vary():
    (likelihood, outputs, std), (_, y) = varying(), data()
    design = torch.cat([outputs[..., :-1], torch.ones(3, 20, 1)], -1)
    covariance = 0.7**2 * design @ design.mT + torch.diag_embed(std.square())
    expected = MultivariateNormal(torch.zeros(20, dtype=y.dtype), covariance).log_prob(y)
    torch.testing.assert_close(likelihood.log_prob(outputs, y).sum(1), expected)
    with pytest.raises(ValueError, match="expected one for each example whose noise varies, got 2"):
        likelihood.log_prob(outputs, torch.stack([y, y], 1))


@pytest.mark.parametrize("noise", [livi.Gaussian(0.3), livi.HeteroscedasticGaussian(0.1)])
def test_a_row_that_counts_twice_is_two_rows(noise):
    counts = torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0])
    times = counts.long()
    features, (_, y) = features_of(5), data(5)
    once = LinearGaussian(noise, counts=counts).double()
    repeated = LinearGaussian(noise).double()
    again = features.repeat_interleave(times, 1), y.repeat_interleave(times)
    torch.testing.assert_close(once.log_prob(features, y).sum(1), repeated.log_prob(*again).sum(1))
    torch.testing.assert_close(once.conditional(features, y).mean, repeated.conditional(*again).mean)


@pytest.mark.parametrize("counts", [None, torch.tensor([1.0, 0.5, 2.0, 1.0, 1.5, 1.0])])
def test_gradients_reach_a_varying_noise(counts):
    likelihood = LinearGaussian(livi.HeteroscedasticGaussian(0.1), counts=counts).double()
    outputs, (_, y) = features_of(rows=6, width=3, samples=2).requires_grad_(), data(6)
    assert torch.autograd.gradcheck(lambda given: likelihood.log_prob(given, y), (outputs,))


def test_blocks_of_samples_change_nothing(monkeypatch):
    (likelihood, outputs, _), (_, y) = varying(), data()
    found = []
    for block in (400_000, 1):
        monkeypatch.setattr("livi.family.last_layer.evidence._CPU_BLOCK", block)
        leaf = outputs.clone().requires_grad_()
        likelihood.zero_grad()
        values = likelihood.log_prob(leaf, y)
        (values.sum(1) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
        solved = likelihood.conditional(outputs, y)
        found.append((values, leaf.grad, likelihood.noise.log_level.grad.clone(), *solved))
    torch.testing.assert_close(*found)


def test_part_of_the_data_is_refused():
    with pytest.raises(ValueError, match="all examples at once"):
        LinearGaussian(livi.Gaussian(0.3)).log_prob(torch.zeros(1, 4, 3), torch.zeros(5))


# --- fits -----------------------------------------------------------------------------------------


class Headed(nn.Module):
    """The last layer is not the last one defined, and activations are functions."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 1)
        self.body = nn.ModuleDict({"first": nn.Linear(2, 3)})

    def forward(self, x):
        return self.head(torch.relu(self.body["first"](x)))


class Scaled(Headed):
    def forward(self, x):
        return 2.0 * super().forward(x)


class TwoHeads(Headed):
    """A mean, and beside it a raw scale that does not depend on it."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(2, 1)

    def forward(self, x):
        return torch.cat([super().forward(x), self.scale(x)], 1)


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
    assert livi.plan(wide, (x.float(), y.float()), livi.Gaussian()).recipe.map_steps == 1500
    assert plan.bound.posterior.generators[0].latent_dim == 16
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


def test_it_is_the_default_where_it_is_possible_and_said_in_the_plan():
    assert "6 of the last layer integrated out" in str(livi.plan(network(), data(), livi.Gaussian(), recipe=QUICK))
    rows = data(20_001)
    assert livi.plan(network(), rows, livi.Gaussian(), recipe=QUICK).problem.integrated is None
    assert livi.plan(network(), rows, livi.Gaussian(), recipe=QUICK, last_layer="exact").problem.integrated is not None
    assert (
        livi.plan(network(2), (rows[0], (rows[1] > 0).long()), livi.Categorical(), recipe=QUICK).problem.integrated
        is None
    )
    sampled = livi.plan(network(), data(), livi.Gaussian(), recipe=QUICK, last_layer="sampled")
    assert sampled.problem.integrated is None
    assert sampled.layout.num_params == 21


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"likelihood": livi.Categorical()}, "the likelihood is Categorical, not Gaussian"),
        ({"net": Scaled().double()}, "the output is not that of an nn.Linear: something comes after 'head'"),
        ({"batch_size": 10}, "every step needs all examples, and batches of 10 were asked for"),
        ({"generator": livi.MLP(4, 21, hidden=(4,)).double()}, "the generator is of 21 weights, and 15 come before"),
        ({"noise": livi.DiagonalNoise(21).double()}, "the noise is of 21 weights, and 15 come before"),
        ({"prior": livi.Laplace(1.0)}, "the prior is Laplace"),
        ({"last_layer": "integrated"}, "expected one of 'sampled', 'exact', 'exact if possible', got 'integrated'"),
    ],
)
def test_what_it_needs_is_said_where_it_is_missing(options, message):
    if "likelihood" in options:
        options = options | {"net": network(2), "rows": (data()[0], (data()[1] > 0).long())}
    with pytest.raises(ValueError, match=message):
        fitted(**options)
    if "last_layer" not in options:
        posterior = fitted(**options, last_layer="exact if possible")
        assert isinstance(posterior.sampler, livi.ImplicitPosterior)
        assert message in posterior.plan["last_layer_reason"]


def test_a_wide_layer_and_many_rows_get_fewer_samples():
    wide = nn.Sequential(nn.Linear(2, 100), nn.Tanh(), nn.Linear(100, 1))
    x, y = data(1000)
    plan = livi.plan(wide, (x.float(), y.float()), livi.Gaussian())
    assert plan.recipe.num_samples == 4
    wider = nn.Sequential(nn.Linear(2, 250), nn.Tanh(), nn.Linear(250, 1))  # too dear to be chosen by itself
    assert livi.plan(wider, (x.float(), y.float()), livi.Gaussian(), recipe=QUICK).problem.integrated is None
    assert math.isfinite(plan.seconds_per_step)
