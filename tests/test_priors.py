"""Priors against torch.distributions, and their scales: per layer, by fan-in, learned."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from scipy import stats
from torch import Tensor, distributions, nn

import livi
from livi.model.priors import Prior

FAMILIES = {
    "Normal": (livi.Normal, distributions.Normal, lambda theta: theta.square().mean().sqrt()),
    "Laplace": (livi.Laplace, distributions.Laplace, lambda theta: theta.abs().mean()),
}
every_family = pytest.mark.parametrize(("family", "oracle", "best_scale"), FAMILIES.values(), ids=FAMILIES.keys())


@pytest.fixture
def layout() -> livi.Layout:
    return livi.Layout(nn.Sequential(nn.Conv1d(2, 3, 4), nn.ReLU(), nn.Linear(5, 2)))  # 24 + 3, 10 + 2


def reference(oracle: Callable[..., distributions.Distribution], scale: Tensor, theta: Tensor) -> Tensor:
    return oracle(torch.zeros_like(theta), scale.expand_as(theta)).log_prob(theta).sum(-1)


# --- draws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.5, [0.1, 3.0]])
@every_family
def test_draws_have_the_scale_of_the_density(family, oracle, best_scale, scale, rng):
    prior = family(scale, sizes=None if isinstance(scale, float) else (2, 3), learned=True)
    theta = prior.sample(4000, 5, rng)
    assert theta.shape == (4000, 5)
    assert not theta.requires_grad
    scales = prior.scale().detach().expand(5)
    wanted = oracle(torch.zeros(5), scales)
    for column in range(5):
        one = stats.kstest(theta[:, column].numpy(), lambda x, at=scales[column]: _cdf(oracle, at, x))
        assert one.pvalue > 1e-4
    # E log p over the draws is the negative entropy
    values = prior.log_prob(theta).detach()
    assert (values.mean() + wanted.entropy().sum()).abs() < 4.5 * values.std() / 4000**0.5
    torch.testing.assert_close(theta, prior.sample(4000, 5, rng.manual_seed(0)))


def _cdf(oracle, scale: Tensor, x):
    return oracle(torch.tensor(0.0), scale).cdf(torch.as_tensor(x)).numpy()


def test_relevance_draws_each_group_at_its_scale(layout, rng):
    prior = livi.Relevance.for_layout(layout)
    theta = prior.sample(4000, layout.num_params, rng)
    torch.testing.assert_close(theta.std(0), prior.scale().detach(), rtol=5.0 / 8000**0.5, atol=0.0)
    assert theta.mean(0).abs().max() < 5.0 * prior.scale().max() / 4000**0.5
    assert prior.float().sample(2, layout.num_params, rng).dtype == torch.float32


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (lambda: livi.FunctionPrior(lambda t: t.sum(1)).sample(2, 3), NotImplementedError, "FunctionPrior: expected a"),
        (lambda: livi.Normal([1.0, 2.0]).sample(2, 3), ValueError, "num_params: expected 2 weights as in the scale"),
        (lambda: livi.Normal().sample(0, 3), ValueError, "num_samples: expected at least 1"),
        (lambda: livi.Laplace().sample(2, 3, rng=0), TypeError, "rng: expected a torch.Generator or None, got int 0"),
        (
            lambda: livi.Relevance(torch.tensor([0, 0]), torch.ones(1)).sample(2, 3),
            ValueError,
            "num_params: expected 2 weights as in groups",
        ),
    ],
)
def test_draws_that_cannot_be_had_are_clear_errors(draw, error, message):
    with pytest.raises(error, match=message):
        draw()


@pytest.mark.parametrize(
    "prior",
    [
        livi.Normal(0.3, learned=True),
        livi.Normal([0.1, 3.0], sizes=(2, 3)),
        livi.Laplace([0.1, 0.2, 0.3, 0.4, 0.5]),
        livi.Relevance(torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0.1, 2.0, 1.0])),
    ],
)
def test_standard_deviations_are_those_of_draws(prior, rng):
    std = prior.std(5)
    assert not std.requires_grad
    # A squared Laplace number varies by sqrt(5) of its mean, a normal one by sqrt(2).
    torch.testing.assert_close(prior.sample(20_000, 5, rng).std(0), std, rtol=2.5 * (5.0 / 20_000) ** 0.5, atol=0.0)
    assert livi.FunctionPrior(lambda theta: -theta.square().sum(1)).std(5) is None


# --- densities ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.05, 1.0, 3])
@every_family
def test_one_scale_for_all_weights(family, oracle, best_scale, scale):
    theta = torch.randn(4, 6)
    found = family(scale).log_prob(theta)
    assert found.shape == (4,)
    torch.testing.assert_close(found, reference(oracle, torch.tensor(float(scale)), theta))


@pytest.mark.parametrize("scale", [[0.1, 1.0, 10.0], (0.1, 1.0, 10.0), torch.tensor([0.1, 1.0, 10.0])])
@every_family
def test_one_scale_for_each_weight(family, oracle, best_scale, scale):
    theta = torch.randn(4, 3)
    expected = reference(oracle, torch.as_tensor(scale, dtype=torch.float64), theta)
    torch.testing.assert_close(family(scale).log_prob(theta), expected)


@every_family
def test_one_scale_for_each_layer(family, oracle, best_scale):
    theta = torch.randn(4, 6)
    prior = family([0.1, 2.0], sizes=(4, 2))
    expected = torch.tensor([0.1, 0.1, 0.1, 0.1, 2.0, 2.0])
    torch.testing.assert_close(prior.scale(), expected)
    torch.testing.assert_close(prior.log_prob(theta), reference(oracle, expected, theta))


@every_family
def test_one_number_serves_every_layer(family, oracle, best_scale):
    torch.testing.assert_close(family(0.3, sizes=(4, 2)).scale(), torch.full((6,), 0.3))


@every_family
def test_density_integrates_to_one(family, oracle, best_scale):
    grid = torch.linspace(-40.0, 40.0, 400_001)
    density = family(0.8).log_prob(grid[:, None]).exp()
    torch.testing.assert_close(torch.trapezoid(density, grid), torch.tensor(1.0))


@pytest.mark.parametrize("scale", [0.5, [0.5, 1.0, 2.0]])
@pytest.mark.parametrize("learned", [True, False])
@every_family
def test_gradients_agree_with_differences(family, oracle, best_scale, scale, learned):
    prior = family(scale, learned=learned)
    theta = torch.randn(2, 3, requires_grad=True)
    assert torch.autograd.gradcheck(prior.log_prob, (theta,))


# --- for a layout ---------------------------------------------------------------------------------


@every_family
def test_scale_per_layer_follows_the_layouts_layers(family, oracle, best_scale, layout):
    prior = family.for_layout(layout, 0.4, per_layer=True, learned=True)
    assert prior.log_scale.shape == (2,)
    with torch.no_grad():
        prior.log_scale.copy_(torch.tensor([0.1, 2.0]).log())
    torch.testing.assert_close(prior.scale(), torch.cat([torch.full((27,), 0.1), torch.full((12,), 2.0)]))


@every_family
def test_fan_in_divides_matrices_and_leaves_vectors(family, oracle, best_scale, layout):
    prior = family.for_layout(layout, 0.4, fan_in=True)
    expected = {
        "0.weight": torch.full((3, 2, 4), 0.4 / math.sqrt(8)),
        "0.bias": torch.full((3,), 0.4),
        "2.weight": torch.full((2, 5), 0.4 / math.sqrt(5)),
        "2.bias": torch.full((2,), 0.4),
    }
    torch.testing.assert_close(layout.unflatten(prior.scale()), expected)
    theta = torch.randn(3, layout.num_params)
    torch.testing.assert_close(prior.log_prob(theta), reference(oracle, prior.scale(), theta))


def test_fan_in_prior_keeps_preactivations_at_unit_variance(rng):
    inputs, samples = 50, 4_000
    layout = livi.Layout(nn.Linear(inputs, 1, bias=False))
    scale = livi.Normal.for_layout(layout, fan_in=True).scale()
    theta = scale * torch.randn(samples, inputs, generator=rng)
    outputs = livi.apply_many(layout, theta, torch.ones(1, inputs))
    # The mean square of n standard normal numbers has the standard error sqrt(2 / n).
    assert abs(outputs.square().mean().item() - 1.0) < 5.0 * math.sqrt(2.0 / samples)


@pytest.mark.parametrize("options", [{}, {"per_layer": True}, {"fan_in": True}, {"learned": True}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_family
def test_prior_has_the_layouts_dtype(family, oracle, best_scale, options, dtype, layout):
    layout.module.to(dtype)
    prior = family.for_layout(layout, 0.3, **options)
    assert prior.scale().dtype == dtype
    assert prior.log_prob(layout.flatten()[None]).dtype == dtype


@pytest.mark.parametrize("options", [{"per_layer": True}, {"learned": True}])
def test_fan_in_excludes_other_scales(options, layout):
    with pytest.raises(ValueError, match="fan_in fixes a scale for each parameter"):
        livi.Normal.for_layout(layout, fan_in=True, **options)


# --- learned scales -------------------------------------------------------------------------------


def test_scale_is_a_parameter_only_where_learned():
    assert list(livi.Normal(0.5).parameters()) == []
    assert [name for name, _ in livi.Normal(0.5, learned=True).named_parameters()] == ["log_scale"]
    assert list(livi.Normal(0.5).state_dict()) == ["log_scale"]


@pytest.mark.parametrize("sizes", [None, (5, 1, 14)])
@every_family
def test_learned_scale_reaches_its_type_two_optimum(family, oracle, best_scale, sizes, rng):
    theta = torch.randn(8, 20, generator=rng) * torch.logspace(-2, 1, 20)
    prior = family(1.0, sizes=sizes, learned=True)
    optimiser = torch.optim.LBFGS(
        prior.parameters(), max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-12, tolerance_change=1e-16
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = -prior.log_prob(theta).mean() / 20
        loss.backward()
        return loss

    optimiser.step(closure)
    parts = theta.split(sizes or 20, dim=1)
    expected = torch.cat([best_scale(part).expand(part.shape[1]) for part in parts])
    torch.testing.assert_close(prior.scale().detach().expand(20), expected, rtol=1e-6, atol=0)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, [1.0, 0.0], torch.ones(2, 2)])
@every_family
def test_scale_must_be_positive_numbers(family, oracle, best_scale, scale):
    with pytest.raises(ValueError, match="scale: expected positive numbers"):
        family(scale)


@pytest.mark.parametrize(
    ("scale", "sizes", "error", "message"),
    [
        ([1.0, 2.0], (1, 2, 3), ValueError, "expected one number, or one for each of 3 sizes, got 2"),
        ([1.0], (1, 2), ValueError, "expected one number, or one for each of 2 sizes, got 1"),
        (1.0, (), ValueError, "one for each of 0 sizes"),
        (1.0, (1, 0), ValueError, "each of sizes: expected at least 1, got 0"),
        (1.0, (1, 2.0), TypeError, "each of sizes: expected an int, got float"),
    ],
)
@every_family
def test_scales_and_sizes_must_match(family, oracle, best_scale, scale, sizes, error, message):
    with pytest.raises(error, match=message):
        family(scale, sizes=sizes)


@pytest.mark.parametrize("columns", [1, 5, 7])
@every_family
def test_theta_of_another_length_is_an_error(family, oracle, best_scale, columns):
    for prior in (family(torch.ones(6)), family(1.0, sizes=(4, 2))):
        with pytest.raises(ValueError, match=f"theta: expected 6 weights as in the scale, got {columns}"):
            prior.log_prob(torch.zeros(3, columns))


@every_family
def test_callers_tensor_is_copied(family, oracle, best_scale):
    scale = torch.ones(3)
    prior = family(scale, learned=True)
    with torch.no_grad():
        prior.log_scale.fill_(5.0)
    assert torch.equal(scale, torch.ones(3))


# --- a prior of one's own -------------------------------------------------------------------------


def test_users_function_is_the_density():
    student = distributions.StudentT(3.0)
    theta = torch.randn(4, 6)
    prior = livi.FunctionPrior(lambda theta: student.log_prob(theta).sum(-1))
    torch.testing.assert_close(prior.log_prob(theta), student.log_prob(theta).sum(-1))


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda theta: theta, r"\(4, 6\)"),
        (lambda theta: theta.sum(), r"\(\)"),
        (lambda theta: theta.sum(0), r"\(6,\)"),
        (lambda theta: theta.sum(-1, keepdim=True), r"\(4, 1\)"),
        (lambda _: 0.0, "float"),
    ],
)
def test_users_function_of_another_shape_is_an_error(function, got):
    with pytest.raises(ValueError, match=rf"log_prob: expected one value for each of 4 samples, got {got}"):
        livi.FunctionPrior(function).log_prob(torch.zeros(4, 6))


def test_base_class_has_no_density():
    with pytest.raises(NotImplementedError):
        Prior().log_prob(torch.zeros(1, 1))


# --- scales for each input ------------------------------------------------------------------------


def test_relevance_has_a_scale_for_each_input_and_each_further_parameter():
    layout = livi.Layout(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))
    prior = livi.Relevance.for_layout(layout, gain=2.0, gains={"2.bias": 0.5})
    assert len(prior.log_scale) == 3 + 3
    first, second = 2.0 / math.sqrt(3), 2.0 / math.sqrt(4)
    torch.testing.assert_close(prior.scale(), torch.tensor([first] * 12 + [2.0] * 4 + [second] * 8 + [0.5] * 2))
    with torch.no_grad():
        prior.log_scale[1] = math.log(7.0)
    weight = prior.scale()[:12].reshape(4, 3)  # an nn.Linear's weight has a column for each input
    assert torch.equal(weight > 6.0, torch.tensor([[False, True, False]]).expand(4, 3))


def test_relevance_is_a_normal_with_a_prior_on_its_scales():
    groups, start = torch.tensor([0, 1, 1, 0]), torch.tensor([0.5, 2.0])
    prior = livi.Relevance(groups, start, spread=0.5)
    theta = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(prior.log_prob(theta), livi.Normal(start[groups]).log_prob(theta))
    with torch.no_grad():
        prior.log_scale += torch.tensor([0.0, 1.0])
    moved = torch.tensor([0.5, 2.0 * math.e])
    expected = livi.Normal(moved[groups]).log_prob(theta) - 0.5 * (1.0 / 0.5) ** 2
    torch.testing.assert_close(prior.log_prob(theta), expected)
    prior.log_prob(theta).sum().backward()
    assert bool((prior.log_scale.grad != 0).all())


def test_relevance_may_stay_where_it_starts():
    assert list(livi.Relevance(torch.tensor([0]), torch.tensor([1.0]), learned=False).parameters()) == []


@pytest.mark.parametrize(
    ("groups", "start", "message"),
    [
        ([0, 2], [1.0, 1.0], "from 0 to below 2 .* values from 0 to 2"),
        ([[0, 1]], [1.0, 1.0], "one number for each weight"),
        ([0, 1], [1.0, -1.0], "start: expected positive numbers, got -1"),
    ],
)
def test_relevance_says_what_is_wrong(groups, start, message):
    with pytest.raises(ValueError, match=message):
        livi.Relevance(torch.tensor(groups), torch.tensor(start))
    with pytest.raises(ValueError, match="theta: expected 2 weights as in groups, got 3"):
        livi.Relevance(torch.tensor([0, 0]), torch.tensor([1.0])).log_prob(torch.zeros(1, 3))


def test_an_input_without_effect_becomes_irrelevant():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(200, 2, generator=rng)
    y = torch.sin(2 * x[:, 0]) + 0.1 * torch.randn(200, generator=rng)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 1))
    posterior = livi.fit(net, (x, y), livi.Gaussian(), prior=livi.Relevance.for_layout, steps=300, progress=False)
    useful, useless = posterior.prior.log_scale[:2].exp().tolist()
    assert useless < 0.5 * useful
