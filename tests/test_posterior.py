"""The implicit posterior: draws, mixtures, density, moving it about."""

import math

import pytest
import torch
from torch import nn

from livi import (
    MLP,
    Affine,
    Antithetic,
    DiagonalNoise,
    Exact,
    FixedNoise,
    ImplicitPosterior,
    Independent,
    LayerNoise,
    Layout,
    LearnedNoise,
    Orthogonal,
)


@pytest.fixture
def layout():
    return Layout(nn.Linear(3, 2))  # 8 weights


def test_samples_have_the_mean_and_covariance_of_an_affine_generator(layout):
    generator = Affine(3, 8)
    posterior = ImplicitPosterior(layout, generator, LearnedNoise(0.5))
    theta = posterior.sample(40_000, torch.Generator().manual_seed(0)).detach()
    truth = (generator.skip @ generator.skip.T + 0.25 * torch.eye(8)).detach()
    centred = theta - theta.mean(0)
    products = centred[:, :, None] * centred[:, None, :]
    assert ((products.mean(0) - truth).abs() < 5.0 * products.std(0) / 40_000**0.5).all()


@pytest.mark.parametrize("latents", [Independent(), Antithetic(), Orthogonal(), Orthogonal(antithetic=False)])
def test_an_rng_makes_draws_reproducible(layout, latents):
    posterior = ImplicitPosterior(layout, MLP(4, 8, hidden=(6,)))
    one = posterior.sample(7, torch.Generator().manual_seed(3), latents=latents)
    two = posterior.sample(7, torch.Generator().manual_seed(3), latents=latents)
    other = posterior.sample(7, torch.Generator().manual_seed(4), latents=latents)
    torch.testing.assert_close(one, two, rtol=0, atol=0)
    assert not torch.equal(one, other)


def test_antithetic_draws_of_an_affine_generator_average_to_its_offset_exactly(layout):
    generator = Affine(3, 8)
    posterior = ImplicitPosterior(layout, generator, FixedNoise(0.5))
    for latents in (Antithetic(), Orthogonal()):
        theta = posterior.sample(10, torch.Generator().manual_seed(0), latents=latents)
        torch.testing.assert_close(theta.mean(0), generator.offset)


def test_mixture_components_get_equal_shares(layout):
    generators = [Affine(2, 8) for _ in range(3)]
    for k, generator in enumerate(generators):
        generator.init_around(torch.full((8,), 100.0 * k), 0.1)
    posterior = ImplicitPosterior(layout, generators, [FixedNoise(0.1) for _ in range(3)])
    theta = posterior.sample(31, torch.Generator().manual_seed(0))
    counts = torch.bincount((theta.mean(1) / 100.0).round().long(), minlength=3)
    assert counts.sum() == 31
    assert counts.min() >= 10
    draw = posterior.draw(12)
    assert [z.shape[0] for z in draw.latents] == [4, 4, 4]
    with pytest.raises(ValueError, match="multiple of the 3 mixture components, got 10"):
        posterior.draw(10)


def test_the_remainder_of_a_mixture_draw_goes_to_random_components(layout):
    generators = [Affine(2, 8).init_around(torch.full((8,), 100.0 * k), 0.1) for k in range(3)]
    posterior = ImplicitPosterior(layout, generators)
    rng = torch.Generator().manual_seed(0)
    first = [int((posterior.sample(1, rng).mean() / 100.0).round()) for _ in range(60)]
    assert set(first) == {0, 1, 2}


def test_mean_of_component_entropies_bounds_the_mixture_s(layout):
    # Two Gaussians far apart: the mixture's entropy is their mean plus log 2. On top of each other: the mean itself.
    gaussians = [Affine(8, 8).init_around(torch.zeros(8), 0.5) for _ in range(2)]
    for distance, extra in ((0.0, 0.0), (50.0, math.log(2.0))):
        gaussians[1].offset.data = torch.full((8,), distance)
        posterior = ImplicitPosterior(layout, gaussians, [FixedNoise(0.2), FixedNoise(0.2)])
        draw = posterior.draw(400, torch.Generator().manual_seed(0))
        bound = torch.stack([e.nats.mean() for e in posterior.entropy_at(draw.latents, Exact())]).mean()
        density = posterior.log_prob(draw.theta.detach(), num_importance=64, rng=torch.Generator().manual_seed(1))
        monte_carlo = -density.log_prob
        error = 5.0 * monte_carlo.std() / 400**0.5
        assert abs(monte_carlo.mean() - bound - extra) < error


def test_log_prob_integrates_to_the_entropy_of_an_affine_posterior(layout):
    posterior = ImplicitPosterior(layout, Affine(4, 8), DiagonalNoise(8, 0.3))
    draw = posterior.draw(500, torch.Generator().manual_seed(0))
    entropy = posterior.entropy_at(draw.latents, Exact())[0].nats.mean()
    estimate = posterior.log_prob(draw.theta.detach(), starts=draw.latents[0], rng=torch.Generator().manual_seed(1))
    assert estimate.effective.min() > 100
    assert abs(-estimate.log_prob.mean() - entropy) < 5.0 * estimate.log_prob.std() / 500**0.5


def test_converting_the_posterior_converts_its_network(layout):
    posterior = ImplicitPosterior(layout, MLP(4, 8, hidden=(6,)), LayerNoise(layout.group_sizes))
    posterior.float()
    assert layout.module.weight.dtype == torch.float32
    assert posterior.sample(2).dtype == torch.float32


def test_posterior_parameters_are_the_variational_ones_alone(layout):
    posterior = ImplicitPosterior(layout, Affine(4, 8), FixedNoise())
    assert {name for name, _ in posterior.named_parameters()} == {"generators.0.skip", "generators.0.offset"}


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda q: ImplicitPosterior(q, nn.Linear(3, 8)),
            TypeError,
            "expected a livi.family.generators.Generator, got Linear",
        ),
        (lambda q: ImplicitPosterior(q, MLP(3, 9)), ValueError, r"expected num_params=8 .* MLP.for_layout"),
        (lambda q: ImplicitPosterior(q, []), ValueError, "as many noises as generators"),
        (lambda q: ImplicitPosterior(q, MLP(3, 8), [FixedNoise()] * 2), ValueError, "as many noises as generators"),
        (lambda q: ImplicitPosterior(q, MLP(3, 8), DiagonalNoise(9)), ValueError, "noise: expected a scalar or 8"),
        (lambda q: ImplicitPosterior(q, MLP(3, 8)).sample(0), ValueError, "num_samples: expected at least 1"),
        (
            lambda q: ImplicitPosterior(q, MLP(3, 8)).sample(2, 0),
            TypeError,
            "rng: expected a torch.Generator",
        ),
        (lambda q: ImplicitPosterior(q, MLP(3, 8)).draw(2, rng=5), TypeError, r"got int 5; .*manual_seed\(5\)"),
        (lambda q: ImplicitPosterior(q, MLP(3, 8)).entropy_at([], Exact()), ValueError, "expected 1 tensors"),
        (lambda q: ImplicitPosterior(q, MLP(3, 8)).log_prob(torch.zeros(8)), ValueError, "leading sample axis"),
    ],
)
def test_bad_input_is_a_clear_error(layout, build, error, message):
    with pytest.raises(error, match=message):
        build(layout)
