"""A last layer integrated out is still one of the same model: its prior, its noise, and the evidence of both."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal

import livi
from livi.family.last_layer import ExactLastLayer, LinearGaussian
from livi.inference import Recipe
from livi.model.likelihoods import GuardedGaussian
from livi.spec import build, known_classes, spec_of

QUICK = Recipe(steps=40, map_steps=40, map_restarts=2, num_samples=8, num_entropy_samples=2)


def network(outputs=1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, outputs))


def data(count=12, outputs=1):
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(count, 2, generator=rng)
    y = torch.sin(2 * x[:, :1] + torch.arange(outputs)) + 0.1 * torch.randn(count, outputs, generator=rng)
    return x, y.squeeze(-1)


def planned(prior, outputs=1, noise=0.3, **options):
    options = {"recipe": QUICK, "last_layer": "exact"} | options
    return livi.plan(network(outputs), data(outputs=outputs), livi.Gaussian(noise), prior=prior, **options)


def moved(prior):
    """With scales that are all different where they may be."""
    with torch.no_grad():
        prior.log_scale += 0.3 * torch.randn(prior.log_scale.shape, generator=torch.Generator().manual_seed(3))
    return prior


def per_weight(layout, learned=False):
    return livi.Normal(torch.linspace(0.5, 2.0, layout.num_params), learned=learned)


PRIORS = {
    "global": lambda _: livi.Normal(0.7),
    "global, learned": lambda _: livi.Normal(0.7, learned=True),
    "layers": lambda layout: moved(livi.Normal.for_layout(layout, 0.7, per_layer=True)),
    "layers, learned": lambda layout: moved(livi.Normal.for_layout(layout, 0.7, per_layer=True, learned=True)),
    "given layers": lambda layout: livi.Normal([0.5, 10.0], sizes=layout.group_sizes),
    "fan-in": lambda layout: livi.Normal.for_layout(layout, 2.0, fan_in=True),
    "relevance": lambda layout: moved(livi.Relevance.for_layout(layout)),
    "relevance, fixed": lambda layout: moved(livi.Relevance.for_layout(layout, learned=False)),
}
SINGLE = {
    "weights": per_weight,
    "weights, learned": lambda layout: per_weight(layout, learned=True),
}


# --- priors in two parts --------------------------------------------------------------------------


@pytest.mark.parametrize("make", [*PRIORS.values(), *SINGLE.values()], ids=[*PRIORS, *SINGLE])
@pytest.mark.parametrize("chosen", [slice(9, 13), slice(0, 9)])
def test_the_log_densities_of_two_parts_add_up_to_that_of_the_whole(make, chosen):
    layout = livi.Layout(network())
    prior, mask = make(layout), torch.zeros(13, dtype=torch.bool)
    mask[chosen] = True
    theta = torch.randn(5, 13)
    others, last = prior.split(mask)
    torch.testing.assert_close(others.log_prob(theta[:, ~mask]) + last.log_prob(theta[:, mask]), prior.log_prob(theta))
    learned = {*others.parameters()} | {*last.parameters()}
    assert sum(p.numel() for p in learned) == sum(p.numel() for p in prior.parameters())


def test_a_learned_scale_of_all_weights_is_one_parameter_in_both_parts():
    prior = livi.Normal(0.7, learned=True)
    others, last = prior.split(torch.arange(4) > 1)
    assert others.log_scale is last.log_scale
    plan = planned(prior)
    assert plan.bound.prior.log_scale is plan.bound.likelihood.prior.log_scale
    assert [name for name, _ in plan.bound.named_parameters() if "log_scale" in name] == ["likelihood.prior.log_scale"]


class Own(livi.Normal):
    pass


@pytest.mark.parametrize(
    ("prior", "reason"),
    [
        (livi.Laplace(1.0), "the prior is Laplace, which does not split"),
        (Own(1.0), "the prior is Own, which does not split"),
        (livi.FunctionPrior(lambda theta: -theta.square().sum(1)), "the prior is FunctionPrior, which does not split"),
        (livi.Normal(1.0, sizes=(12, 1), learned=True), "a learned scale of the prior is shared by the last layer"),
        (
            livi.Relevance(torch.zeros(13, dtype=torch.long), torch.ones(1)),
            "a learned scale of the prior is shared by the last layer",
        ),
    ],
)
def test_a_prior_without_two_parts_is_sampled_with_the_reason(prior, reason):
    plan = planned(prior, last_layer="exact if possible")
    assert plan.problem.integrated is None
    assert reason in plan.summary()["last_layer_reason"]


@pytest.mark.parametrize("make", [*SINGLE.values(), lambda layout: livi.Normal.for_layout(layout, per_layer=True)])
def test_outputs_must_have_the_same_scales(make):
    prior = make(livi.Layout(network(2)))
    plan = planned(prior, outputs=2, last_layer="exact if possible")
    if prior.sizes is None:
        assert "the prior has other scales for one output" in plan.summary()["last_layer_reason"]
    else:
        assert plan.problem.integrated is not None


def test_scales_of_single_weights_that_are_the_same_for_all_outputs_will_do():
    scales = torch.tensor([1.0] * 9 + [2.0, 3.0, 4.0] * 2 + [5.0] * 2)
    plan = planned(livi.Normal(scales), outputs=2)
    torch.testing.assert_close(plan.bound.likelihood.prior.scale(), scales[9:])


# --- the same model, integrated -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "outputs", "noise"),
    [
        *((make, outputs, 0.3) for make in PRIORS.values() for outputs in (1, 2)),
        *((make, 1, 0.3) for make in SINGLE.values()),
        (PRIORS["relevance"], 2, [0.1, 0.6]),
        (PRIORS["layers"], 3, [0.1, 0.6, 1.0]),
    ],
)
def test_the_evidence_is_prior_times_likelihood_over_the_last_layers_posterior(make, outputs, noise):
    """p(D, earlier) = p(D, earlier, last) / p(last | earlier, D), whatever the last layer's weights are."""
    layout, (x, y) = livi.Layout(network(outputs)), data(outputs=outputs)
    prior, likelihood = make(layout), livi.Gaussian(noise)
    plan = planned(prior, outputs, noise)
    theta = torch.randn(4, layout.num_params, generator=torch.Generator().manual_seed(5))
    earlier, last = theta[:, :9], theta[:, 9:]
    features = livi.apply_many(plan.layout, earlier, x)
    found = plan.bound.likelihood.log_prob(features, y).sum(1) + plan.bound.prior.log_prob(earlier)
    joint = likelihood.log_prob(livi.apply_many(layout, theta, x), y).sum(1) + prior.log_prob(theta)
    conditional = plan.bound.likelihood.conditional(features, y)
    weights = torch.cat([last[:, : 3 * outputs].unflatten(1, (outputs, 3)).mT, last[:, None, 3 * outputs :]], 1)
    root = torch.diag(1.0 / conditional.scale) @ conditional.factor  # (4, K, 4, 4)
    density = MultivariateNormal(conditional.mean.mT, precision_matrix=root @ root.mT).log_prob(weights.mT).sum(1)
    torch.testing.assert_close(found, joint - density)


def test_the_last_layer_gets_the_scale_that_was_asked_for():
    plan = planned(lambda layout: livi.Normal([0.1, 10.0], sizes=layout.group_sizes))
    torch.testing.assert_close(plan.bound.likelihood.prior.scale(), torch.full((4,), 10.0))
    torch.testing.assert_close(plan.bound.prior.scale(), torch.full((9,), 0.1))


def test_relevance_keeps_its_inputs_in_front():
    prior = livi.Relevance.for_layout(livi.Layout(network()), gains={"2.bias": 0.5})
    plan = planned(prior)
    torch.testing.assert_close(plan.bound.prior.log_scale, prior.log_scale[:3])
    torch.testing.assert_close(plan.bound.likelihood.prior.log_scale, prior.log_scale[3:])


def test_a_shared_scale_is_not_shrunk_by_the_start_but_learned_and_saved(tmp_path):
    options = {"recipe": replace(QUICK, map_steps=300, hyper_rate=0.1), "progress": False, "last_layer": "exact"}
    start = replace(options["recipe"], steps=1, hyper_rate=1e-9)
    rows, prior = data(), livi.Normal(1.0, learned=True)
    still = livi.fit(network(), rows, livi.Gaussian(0.3), prior=prior, **options | {"recipe": start})
    assert float(still.prior.scale()) == pytest.approx(1.0, abs=1e-6)
    posterior = livi.fit(network(), rows, livi.Gaussian(0.3), prior=prior, **options)
    assert float(posterior.prior.scale()) != pytest.approx(1.0, abs=1e-2)
    assert torch.equal(posterior.prior.scale(), posterior.sampler.likelihood.prior.scale())
    posterior.save(tmp_path / "p.livi")
    again = livi.load(tmp_path / "p.livi", network())
    assert torch.equal(*(each.sample(3, torch.Generator().manual_seed(0)) for each in (posterior, again)))


@pytest.mark.parametrize("make", [PRIORS["relevance"], PRIORS["layers, learned"], per_weight])
def test_priors_in_two_parts_are_saved_and_loaded(make, tmp_path):
    posterior = livi.fit(
        network(), data(), livi.Gaussian(0.3), prior=make(livi.Layout(network())), recipe=QUICK, progress=False
    )
    assert isinstance(posterior.sampler, ExactLastLayer)
    posterior.save(tmp_path / "p.livi")
    again = livi.load(tmp_path / "p.livi", network())
    assert torch.equal(*(each.sample(3, torch.Generator().manual_seed(0)) for each in (posterior, again)))


def test_descriptions_from_before_there_was_a_prior_are_understood():
    described = spec_of(LinearGaussian(livi.Gaussian(), scale=0.5, learn_scale=True))
    del described["arguments"]["prior"]
    built = build(described, known_classes())
    assert list(built.state_dict()) == ["log_scale", "noise.log_std"]
    expected = LinearGaussian(livi.Gaussian(), prior=livi.Normal(0.5)).log_prob(features_of(), data()[1])
    torch.testing.assert_close(built.log_prob(features_of(), data()[1]), expected)


# --- evidence with scales and noises of several sizes ---------------------------------------------


def features_of(rows=12, width=3, samples=2):
    return torch.randn(samples, rows, width, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("counts", [None, torch.arange(12.0, dtype=torch.float64) % 3 + 1])
def test_each_output_has_the_evidence_of_its_own_noise(counts):
    features, (_, y) = features_of(), data(outputs=3)
    stds, scale = torch.tensor([0.1, 0.3, 1.0]), torch.tensor([0.5, 1.0, 2.0, 4.0])
    prior = livi.Normal(torch.cat([scale[:3].repeat(3), scale[3:].repeat(3)]))
    likelihood = LinearGaussian(livi.Gaussian(stds), prior=prior, counts=counts)
    design = torch.cat([features, torch.ones(2, 12, 1)], -1) * scale
    expected = torch.zeros(2)
    for column, std in zip(y.T, stds, strict=True):
        noise = torch.diag(std**2 / (torch.ones(12) if counts is None else counts))
        normal = MultivariateNormal(torch.zeros(12), design @ design.mT + noise)
        expected += normal.log_prob(column)
        if counts is not None:  # w rows with one value each against one row with their mean
            expected += (0.5 * (1 - counts) * (2 * math.pi * std**2).log() - 0.5 * counts.log()).sum()
    torch.testing.assert_close(likelihood.log_prob(features, y).sum(1), expected)


def test_the_posterior_of_each_output_is_that_of_its_own_ridge_regression():
    features, (_, y) = features_of(samples=1), data(outputs=2)
    stds, scale = torch.tensor([0.1, 1.0]), torch.tensor([0.5, 1.0, 2.0, 4.0])
    prior = livi.Normal(torch.cat([scale[:3].repeat(2), scale[3:].repeat(2)]))
    likelihood = LinearGaussian(livi.Gaussian(stds), prior=prior)
    conditional = likelihood.conditional(features, y)
    many = [part.repeat(20_000, *[1] * (part.ndim - 1)) for part in conditional[:2]]
    draws = likelihood.draw(type(conditional)(*many, *conditional[2:]), torch.Generator().manual_seed(0))
    design = torch.cat([features[0], torch.ones(12, 1)], -1)
    for t, std in enumerate(stds):
        precision = design.T @ design / std**2 + torch.diag(scale**-2)
        mean = torch.linalg.solve(precision, design.T @ y[:, t] / std**2)
        torch.testing.assert_close(conditional.mean[0, :, t], mean)
        covariance, expected = draws[..., t].T.cov(), torch.linalg.inv(precision)
        torch.testing.assert_close(covariance, expected, rtol=0.1, atol=0.05 * expected.max().item())


@pytest.mark.parametrize("counts", [None, torch.tensor([1.0, 0.5, 2.0, 1.0, 1.5, 1.0], dtype=torch.float64)])
def test_gradients_reach_noises_and_scales_of_several_sizes(counts):
    features, (_, y) = features_of(6, 2), data(6, outputs=2)
    groups = torch.tensor([0, 1, 0, 1, 2, 2])

    def total(features, log_std, log_scale):
        likelihood = LinearGaussian(
            livi.Gaussian([0.5, 0.2], learned=True), prior=livi.Relevance(groups, torch.ones(3)), counts=counts
        )
        parameters = {"noise.log_std": log_std, "prior.log_scale": log_scale}
        return torch.func.functional_call(
            _LogProb(likelihood), {f"inner.{k}": v for k, v in parameters.items()}, features
        )

    class _LogProb(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, features):
            return self.inner.log_prob(features, y)

    leaves = (features, torch.tensor([0.5, 0.2]).log(), torch.tensor([0.3, -0.2, 0.5]))
    assert torch.autograd.gradcheck(total, tuple(leaf.requires_grad_() for leaf in leaves))


# --- several outputs ------------------------------------------------------------------------------

STDS = torch.tensor([0.1, 0.3, 1.0], dtype=torch.float64)


def three(count, seed):
    rng = torch.Generator().manual_seed(seed)
    x = 4.0 * torch.rand(count, 1, generator=rng) - 2.0
    truth = torch.cat([torch.sin(2 * x), torch.cos(x), x], 1)
    return x, truth + STDS * torch.randn(count, 3, generator=rng)


@pytest.mark.parametrize("last_layer", ["exact", "sampled"])
def test_three_outputs_have_three_noises(last_layer, tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 3))
    recipe = Recipe(steps=1000, map_steps=1000, map_restarts=2, num_samples=16, num_entropy_samples=2, hyper_rate=2e-2)
    recipe = replace(recipe, steps=300) if last_layer == "exact" else recipe
    posterior = livi.fit(net, three(300, 0), livi.Gaussian(), last_layer=last_layer, recipe=recipe, progress=False)
    torch.testing.assert_close(posterior.likelihood.obs_std(), STDS, rtol=0.25, atol=0.0)
    x, y = three(2000, 1)
    scores = livi.posterior.metrics.score_outputs(posterior.predict(x, rng=torch.Generator().manual_seed(0)), y)
    assert max(scores["coverage_error"]) < 0.05
    torch.testing.assert_close(torch.tensor(scores["rmse"]), STDS, rtol=0.25, atol=0.0)
    posterior.save(tmp_path / "p.livi")
    again = livi.load(tmp_path / "p.livi", nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 3)))
    assert torch.equal(*(each.predict(x, rng=torch.Generator().manual_seed(0)).stds for each in (posterior, again)))


def test_the_prior_of_a_guarded_noise_counts_once_for_all_examples():
    x, y = data()
    features = torch.randn(2, len(x), 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    guarded = GuardedGaussian(0.3, 0.5)
    with torch.no_grad():
        guarded.log_std += 1.0
    joint, plain = (
        LinearGaussian(noise).log_prob(features, y.double()).sum(1) for noise in (guarded, guarded.unguarded())
    )
    torch.testing.assert_close(joint - plain, torch.full_like(plain, -0.5 * (1.0 / 0.5) ** 2))
    assert guarded.unguarded().log_std is guarded.log_std


def test_a_guarded_noise_is_integrated_out_and_read_from_a_file_like_any_other(tmp_path):
    options = {"recipe": QUICK, "seed": 0, "progress": False}
    posterior = livi.fit(network(), data(), GuardedGaussian(0.3, 0.5, unit=2.0), **options)
    assert isinstance(posterior.sampler, ExactLastLayer)
    assert posterior.likelihood.unguarded().unit() == 2.0
    posterior.save(tmp_path / "few.livi")
    again = livi.load(tmp_path / "few.livi", network())
    assert again.likelihood.log_prob_of_noise() == posterior.likelihood.log_prob_of_noise() != 0.0
    assert again.likelihood.log_prob_of_scales() == 0.0  # which its log_prob does not count
