"""Noise: its standard deviation, what of it is learned, and what it is given to."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import livi
from livi.family.noise import DiagonalNoise, FixedNoise, LayerNoise, LearnedNoise, Noise, RelativeNoise

SIZES = (2, 1, 3)
NOISES = {
    "fixed": (FixedNoise, 0),
    "learned": (LearnedNoise, 1),
    "layer": (lambda noise_std=0.01: LayerNoise(SIZES, noise_std), 3),
    "diagonal": (lambda noise_std=0.01: DiagonalNoise(6, noise_std), 6),
}
every_noise = pytest.mark.parametrize(("build", "num_learned"), NOISES.values(), ids=NOISES.keys())


@every_noise
def test_noise_starts_at_the_given_standard_deviation(build, num_learned):
    torch.testing.assert_close(build(0.3).std().expand(6), torch.full((6,), 0.3))
    torch.testing.assert_close(build().std().expand(6), torch.full((6,), 0.01))


@every_noise
def test_noise_has_as_many_parameters_as_it_says(build, num_learned):
    assert sum(parameter.numel() for parameter in build().parameters()) == num_learned
    assert build().std().shape in ((), (6,))


@every_noise
def test_noise_stays_positive_wherever_its_parameters_go(build, num_learned):
    noise = build()
    for value in (-40.0, 0.0, 10.0):
        with torch.no_grad():
            for parameter in noise.parameters():
                parameter.fill_(value)
        assert bool((noise.std() > 0).all())


@every_noise
def test_gradients_reach_every_parameter(build, num_learned):
    noise, weights = build(0.5), torch.arange(1.0, 7.0)
    outcome = (noise.std().expand(6).log() * weights).sum()  # d log std / d log_std = 1, summed over a layer
    layers = torch.stack([part.sum() for part in weights.split(SIZES)])
    expected = {0: [], 1: [weights.sum()], 3: [layers], 6: [weights]}[num_learned]
    found = torch.autograd.grad(outcome, list(noise.parameters())) if num_learned else ()
    assert outcome.requires_grad == (num_learned > 0)
    torch.testing.assert_close(list(found), expected)


def test_layer_noise_repeats_each_value_over_its_layer():
    noise = LayerNoise(SIZES)
    with torch.no_grad():
        noise.log_std.copy_(torch.tensor([1.0, 2.0, 3.0]).log())
    torch.testing.assert_close(noise.std(), torch.tensor([1.0, 1.0, 2.0, 3.0, 3.0, 3.0]))


@every_noise
def test_state_dict_restores_noise(build, num_learned):
    noise, other = build(0.7), build(0.2)
    other.load_state_dict(noise.state_dict())
    torch.testing.assert_close(other.std(), noise.std(), rtol=0, atol=0)


@every_noise
def test_noise_follows_the_posteriors_dtype(build, num_learned):
    layout = livi.Layout(nn.Linear(2, 2).float())
    posterior = livi.ImplicitPosterior(layout, livi.MLP(2, 6, hidden=(3,)), build())
    assert posterior.noises[0].std().dtype == torch.float32
    assert posterior.double().noises[0].std().dtype == torch.float64


@every_noise
def test_samples_spread_around_the_generator_by_the_noise(build, num_learned, rng):
    layout = livi.Layout(nn.Linear(2, 2))
    noise = build(0.3)
    with torch.no_grad():
        for parameter in noise.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng))
    posterior = livi.ImplicitPosterior(layout, livi.MLP(2, 6, hidden=(3,)), noise)
    draw = posterior.draw(4_000, rng, latents=livi.Independent())
    unit = (draw.theta - posterior.generators[0](draw.latents[0])) / noise.std()
    # The mean square of n standard normal numbers has the standard error sqrt(2 / n).
    scores = (unit.detach().square().mean(0) - 1.0) / math.sqrt(2.0 / 4_000)
    assert scores.abs().max() < 5.0


@pytest.mark.parametrize(
    ("noise_std", "error", "message"),
    [
        (0.0, ValueError, "noise_std: expected a positive, finite number, got 0.0"),
        (-0.1, ValueError, "noise_std: expected a positive, finite number"),
        (math.inf, ValueError, "noise_std: expected a positive, finite number, got inf"),
        (math.nan, ValueError, "noise_std: expected a positive, finite number, got nan"),
        ("0.1", TypeError, "noise_std: expected a number, got str"),
        (True, TypeError, "noise_std: expected a number, got bool"),
    ],
)
@every_noise
def test_noise_must_be_a_positive_number(build, num_learned, noise_std, error, message):
    with pytest.raises(error, match=message):
        build(noise_std)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: LayerNoise([]), ValueError, "sizes: expected at least one layer, got none"),
        (lambda: LayerNoise([2, 0]), ValueError, "each of sizes: expected at least 1, got 0"),
        (lambda: LayerNoise([2, 1.0]), TypeError, "each of sizes: expected an int, got float"),
        (lambda: DiagonalNoise(0), ValueError, "num_params: expected at least 1, got 0"),
        (lambda: DiagonalNoise(2.5), TypeError, "num_params: expected an int, got float"),
    ],
)
def test_numbers_of_weights_must_be_positive_integers(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize("build", [lambda: LayerNoise((2, 3)), lambda: DiagonalNoise(5)])
def test_noise_of_another_length_does_not_fit_a_posterior(build):
    with pytest.raises(ValueError, match=r"noise: expected a scalar or 6 values, got \(5,\)"):
        livi.ImplicitPosterior(livi.Layout(nn.Linear(2, 2)), livi.MLP(2, 6), build())


def test_relative_noise_is_a_share_of_each_tensor_s_root_mean_square():
    noise = RelativeNoise(SIZES, share=0.2, floors=(1e-3, 0.5, 1e-3))
    torch.testing.assert_close(noise.std(), 0.2 * torch.tensor([1e-3, 1e-3, 0.5, 1e-3, 1e-3, 1e-3]))
    noise.init_around(torch.tensor([3.0, -4.0, 0.1, 1.0, 1.0, -1.0]))
    sizes = [math.sqrt(12.5), math.sqrt(12.5), 0.5, 1.0, 1.0, 1.0]  # of the second tensor the floor
    torch.testing.assert_close(noise.std(), 0.2 * torch.tensor(sizes))
    assert not list(noise.parameters())


def test_relative_noise_of_a_layout_leaves_biases_at_zero_some_noise():
    layout = livi.Layout(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)))
    theta = 5.0 * torch.ones(layout.num_params)
    for slot in layout.slots:
        if len(slot.shape) == 1:
            theta[slot.start : slot.stop] = 0.0
    noise = RelativeNoise.for_layout(layout)
    noise.init_around(theta)
    expected = [0.5 if len(slot.shape) > 1 else 0.01 for slot in layout.slots for _ in range(slot.numel)]
    torch.testing.assert_close(noise.std(), torch.tensor(expected))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RelativeNoise([]), "sizes: expected at least one tensor"),
        (lambda: RelativeNoise([2], share=0.0), "share: expected a positive"),
        (lambda: RelativeNoise([2, 1], floors=[0.1]), "floors: expected one number, or one for each of 2 sizes, got 1"),
        (lambda: RelativeNoise([2, 1]).init_around(torch.ones(4)), "theta: expected"),
    ],
)
def test_unusable_relative_noise_is_an_error(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_noise_of_ones_own_needs_only_a_standard_deviation():
    class Ramp(Noise):
        def std(self) -> torch.Tensor:
            return torch.linspace(0.1, 0.6, 6)

    posterior = livi.ImplicitPosterior(livi.Layout(nn.Linear(2, 2)), livi.MLP(2, 6), Ramp())
    assert posterior.sample(3).shape == (3, 6)
    with pytest.raises(NotImplementedError):
        Noise().std()
