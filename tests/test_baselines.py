"""Baselines: exact where the posterior is Gaussian, members in equal shares, and the same start as the fit's."""

import math

import pytest
import torch
from torch import nn

from livi.experiments.toy import evidence_bound
from livi.family.entropy import Exact, Lanczos, SmallestSingularValue
from livi.family.implicit import ImplicitPosterior
from livi.family.noise import DiagonalNoise
from livi.inference import Recipe, plan
from livi.inference.begin import begin
from livi.model.likelihoods import Gaussian
from livi.model.priors import Normal
from livi.network import Layout, apply_many
from livi.posterior.posterior import Posterior, load
from livi.rivals import METHODS, Constant, Ensemble, fit_ensemble, fit_full_rank, fit_map, fit_mean_field, method_named
from livi.rivals.methods import Budget

OBS_STD = 0.5
RECIPE = Recipe(steps=800, map_steps=300, map_restarts=2, num_samples=16, affine_rate=2e-2, hyper_rate=5e-2)
TINY = Recipe(steps=3, map_steps=4, map_restarts=3, num_samples=4, num_entropy_samples=2)
BASELINES = {
    "map": fit_map,
    "ensemble": fit_ensemble,
    "mean_field": fit_mean_field,
    "full_rank": fit_full_rank,
}


def linear(num_features):
    return nn.Linear(num_features, 1, bias=False)


def conjugate(design):
    """Targets of a linear model, and the posterior N(mean, covariance) and log evidence under the prior N(0, I)."""
    num_data, num_features = design.shape
    rng = torch.Generator().manual_seed(1)
    targets = design @ torch.randn(num_features, generator=rng) + OBS_STD * torch.randn(num_data, generator=rng)
    covariance = torch.linalg.inv(torch.eye(num_features) + design.T @ design / OBS_STD**2)
    mean = covariance @ design.T @ targets / OBS_STD**2
    marginal = torch.distributions.MultivariateNormal(
        torch.zeros(num_data), design @ design.T + OBS_STD**2 * torch.eye(num_data)
    )
    return targets, mean, covariance, float(marginal.log_prob(targets))


def within(estimate, value, slack):
    return abs(estimate.value - value) < 5 * estimate.standard_error + slack


# --- Gaussian posteriors --------------------------------------------------------------------------


def test_mean_field_starts_as_wide_as_livi_does():
    """A tenth of each tensor's size in a large network, and a fixed width in a small one."""
    torch.manual_seed(0)
    brief = Recipe(steps=1, map_steps=0, hyper_rate=1e-9)
    for net, wide in ((nn.Sequential(nn.Linear(60, 90), nn.ReLU(), nn.Linear(90, 1)), True), (linear(3), False)):
        data = (torch.randn(20, net[0].in_features if wide else 3), torch.randn(20))
        posterior = fit_mean_field(net, data, Gaussian(OBS_STD), recipe=brief, progress=False)
        std, first = posterior.sampler.noises[0].std(), next(net.parameters())
        expected = 0.1 * first.square().mean().sqrt() if wide else torch.tensor(default_spread(net, data))
        torch.testing.assert_close(std[: first.numel()], expected.expand(first.numel()), rtol=1e-4, atol=0)


def default_spread(net, data):
    return plan(net, data, Gaussian(OBS_STD), last_layer="sampled").recipe.spread


def test_mean_field_reaches_the_closed_form_of_a_diagonal_posterior():
    design = torch.linalg.qr(torch.randn(20, 3))[0] * torch.tensor([1.0, 2.0, 5.0])  # orthogonal columns
    targets, mean, covariance, evidence = conjugate(design)
    posterior = fit_mean_field(
        linear(3), (design, targets), Gaussian(OBS_STD), prior=Normal(1.0), recipe=RECIPE, progress=False
    )
    assert isinstance(posterior.sampler, ImplicitPosterior)
    torch.testing.assert_close(posterior.sampler.generators[0].offset, mean, rtol=0, atol=0.02)
    torch.testing.assert_close(posterior.sampler.noises[0].std(), covariance.diagonal().sqrt(), rtol=0.05, atol=0)
    bound = evidence_bound(posterior, design, targets, torch.Generator().manual_seed(0))
    assert within(bound, evidence, 0.02)
    assert bound.value < evidence + 5 * bound.standard_error


def test_full_rank_reaches_the_log_evidence_of_a_correlated_posterior():
    design = torch.randn(20, 3) + torch.randn(20, 1)  # correlated columns
    targets, mean, covariance, evidence = conjugate(design)
    data = (design, targets)
    options = {"prior": Normal(1.0), "recipe": RECIPE, "progress": False}
    posterior = fit_full_rank(linear(3), data, Gaussian(OBS_STD), noise=None, **options)
    theta = posterior.sample(20_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(theta.mean(0), mean, rtol=0, atol=0.02)
    torch.testing.assert_close(theta.T.cov(), covariance, rtol=0, atol=0.005)
    rng = torch.Generator().manual_seed(0)
    full = evidence_bound(posterior, *data, rng)
    assert within(full, evidence, 0.02)
    diagonal = evidence_bound(fit_mean_field(linear(3), data, Gaussian(OBS_STD), **options), *data, rng)
    # The best factorised Gaussian has the posterior's mean and the inverse diagonal of its precision as variances.
    gap = 0.5 * (torch.linalg.inv(covariance).diagonal().log().sum() + covariance.logdet())
    assert within(diagonal, evidence - float(gap), 0.03)


@pytest.mark.parametrize("estimator", [Exact(), Exact(exact_terms=True), Lanczos(), SmallestSingularValue()], ids=repr)
def test_a_constant_generator_has_the_entropy_of_its_noise(estimator, rng):
    layout = Layout(nn.Linear(3, 2))
    noise = DiagonalNoise(layout.num_params, 0.2)
    posterior = ImplicitPosterior(layout, Constant.for_layout(layout).init_around(layout.flatten(), 0.1), noise)
    estimate = posterior.entropy_at(posterior.draw(4, rng).latents, estimator, rng)[0]
    exact = noise.std().log().sum() + 0.5 * layout.num_params * (1 + math.log(2 * math.pi))
    torch.testing.assert_close(estimate.nats, exact.expand(4))
    assert estimate.report.converged.all()
    torch.testing.assert_close(posterior.generators[0](torch.zeros(1, 1))[0], layout.flatten())


# --- ensembles ------------------------------------------------------------------------------------


def test_ensemble_gives_members_in_equal_shares_and_the_rest_at_random(rng):
    theta = torch.arange(9.0).reshape(3, 3)
    ensemble = Ensemble(Layout(nn.Linear(2, 1)), theta)
    drawn = ensemble.sample(6, rng)
    assert sorted(drawn[:, 0].tolist()) == [0.0, 0.0, 3.0, 3.0, 6.0, 6.0]
    firsts = torch.stack([ensemble.sample(1, rng)[0, 0] for _ in range(600)])
    counts = torch.stack([(firsts == value).sum() for value in theta[:, 0]])
    assert ((counts - 200).abs() < 5 * math.sqrt(600 * 2 / 9)).all()


def test_ensemble_moves_its_network_along():
    net = nn.Linear(2, 1)
    ensemble = Ensemble(Layout(net), torch.zeros(2, 3)).float()
    assert ensemble.theta.dtype == net.weight.dtype == torch.float32


def test_ensemble_refuses_weights_of_another_network():
    with pytest.raises(ValueError, match="theta"):
        Ensemble(Layout(nn.Linear(2, 1)), torch.zeros(2, 4))


def test_ensemble_members_are_unselected_and_differ():
    data = (torch.randn(8, 2), torch.randn(8))
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    posterior = fit_ensemble(net, data, Gaussian(0.5), members=4, steps=5, seed=3)
    assert isinstance(posterior.sampler, Ensemble)
    assert posterior.sampler.num_members == 4
    assert len(posterior.sampler.theta.unique(dim=0)) == 4
    assert posterior.plan["recipe"]["map_steps"] == 5
    prediction = posterior.predict(data[0], num_samples=4)
    torch.testing.assert_close(prediction.means.sort(0)[0], posterior.predict(data[0], num_samples=4).means.sort(0)[0])


def test_members_with_batch_norm_keep_their_own_statistics(rng):
    inputs = 3 + torch.randn(16, 2)
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 1))
    posterior = fit_ensemble(net, (inputs, torch.randn(16)), Gaussian(0.5), members=3, steps=3)
    assert posterior.buffers["1.running_mean"].shape == (3, 3)
    draws = posterior.functions(7, rng)(inputs)
    for theta, values in zip(posterior.functions(7, rng.manual_seed(0)).theta, draws, strict=True):
        # The whole data set is one batch, so a member's own statistics are the batch's.
        torch.testing.assert_close(values, posterior.layout.apply(theta, inputs, batch_statistics=True))
    assert posterior.predict(inputs, num_samples=7, rng=rng).means.shape == (7, 16)


def test_members_that_are_trained_on_all_data_at_a_time_answer_as_they_were_trained():
    inputs = torch.linspace(-3, 3, 600)[:, None] ** 3
    net = nn.Sequential(nn.Linear(1, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 1))
    posterior = fit_ensemble(net, (inputs, inputs[:, 0]), Gaussian(0.5), members=2, steps=3)
    theta, layout = posterior.sampler.theta, posterior.layout
    trained = apply_many(layout, theta, inputs, batch_statistics=True)
    torch.testing.assert_close(apply_many(layout, theta, inputs, buffers=posterior.buffers), trained)


def test_map_with_batch_norm_is_a_plain_posterior():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 1))
    posterior = fit_map(net, (torch.randn(16, 2), torch.randn(16)), Gaussian(0.5), recipe=TINY)
    assert type(posterior) is Posterior
    assert posterior.predict(torch.randn(5, 2), num_samples=1).mean.shape == (5,)


# --- all of them ----------------------------------------------------------------------------------


def test_map_is_where_the_fit_of_the_same_seed_starts():
    data = (torch.randn(8, 2), torch.randn(8))
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    options = {"prior": Normal(1.0), "recipe": TINY}
    estimate = fit_map(net, data, Gaussian(0.5), seed=5, **options)
    sampled = {"generator": Constant.for_layout, "last_layer": "sampled"}
    prepared = plan(net, data, Gaussian(0.5), seed=5, **(options | sampled))
    begin(prepared, 5)
    torch.testing.assert_close(estimate.sample(1)[0], prepared.bound.family.generators[0].offset.detach())
    other = fit_map(net, data, Gaussian(0.5), seed=6, **options)
    members = fit_ensemble(net, data, Gaussian(0.5), members=3, seed=5, **options)
    assert (members.sampler.theta == estimate.sampler.theta).all(1).any()
    assert not torch.equal(other.sampler.theta, estimate.sampler.theta)


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_are_reproducible_and_leave_their_arguments_alone(name):
    data = (torch.randn(8, 2), torch.randn(8))
    net, likelihood = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), Gaussian()
    before = [parameter.clone() for parameter in (*net.parameters(), *likelihood.parameters())]
    first, second = (
        BASELINES[name](net, data, likelihood, recipe=TINY, seed=2, progress=False).sample(
            3, torch.Generator().manual_seed(0)
        )
        for _ in range(2)
    )
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    for old, parameter in zip(before, (*net.parameters(), *likelihood.parameters()), strict=True):
        assert torch.equal(old, parameter)


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_come_back_from_a_file(name, tmp_path):
    data = (torch.randn(8, 2), torch.randn(8))
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    posterior = BASELINES[name](net, data, Gaussian(0.5), recipe=TINY, progress=False)
    posterior.save(tmp_path / "posterior")
    again = load(tmp_path / "posterior", net)
    for one, other in zip(
        *(each.sample(4, torch.Generator().manual_seed(0)) for each in (posterior, again)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_refuse_a_generator(name):
    with pytest.raises(TypeError, match=f"fit_{name}: expected no generator"):
        BASELINES[name](nn.Linear(1, 1), (torch.zeros(2, 1), torch.zeros(2)), Gaussian(), generator=Constant(2))


def test_map_refuses_a_checkpoint():
    with pytest.raises(TypeError, match="fit_map: expected no checkpoint"):
        fit_map(nn.Linear(1, 1), (torch.zeros(2, 1), torch.zeros(2)), Gaussian(), checkpoint="file")


# --- the register ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("gradients", [60, 500, 5_000])
def test_a_method_spends_the_gradients_that_it_is_given(name, gradients):
    recipe = Recipe(steps=40, num_samples=8, map_steps=20, map_restarts=4)
    options = METHODS[name].spend(Budget(gradients, recipe))
    if "members" in options:
        spent = options["members"] * options["steps"]
    elif "steps" in options:
        lasting = recipe.lasting(options["steps"])
        spent = lasting.map_restarts * lasting.map_steps + lasting.num_samples * lasting.steps
    else:
        spent = options["recipe"].map_restarts * options["recipe"].map_steps
    most = 100 * recipe.map_steps if name == "ensemble" else math.inf
    assert min(gradients, most) - 16 <= spent <= gradients + 16


def test_a_method_that_is_not_known_is_named_with_the_nearest():
    assert method_named("ensemble").fit is fit_ensemble
    with pytest.raises(ValueError, match="got 'mean-field'; did you mean 'mean_field'"):
        method_named("mean-field")
