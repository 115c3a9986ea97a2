"""Fitting: the recipe's schedule, the own-loop path, the seed, clipping and averaging."""

from dataclasses import replace

import pytest
import torch
from support.short_fits import QUICK, data, draws, network, quick_fit

import livi
from livi.inference import Recipe, make_optimiser
from livi.inference.begin import begin


def test_learning_rate_rises_falls_and_ends_at_zero():
    recipe = Recipe(steps=1000, warm_up=0.1, kl_warm_up=0.3)
    rates = [recipe.rate_factor(step) for step in range(1000)]
    assert max(rates) == pytest.approx(1.0, abs=0.01)
    assert rates[0] < 0.02
    assert rates[-1] < 1e-4
    assert [recipe.kl_weight(step) for step in (0, 300, 999)] == [pytest.approx(1 / 301), 1.0, 1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps: expected at least 1"),
        ({"affine_rate": -1.0}, "affine_rate: expected a positive"),
        ({"kl_warm_up": 2.0}, "kl_warm_up: expected a share"),
        ({"num_samples": 2, "num_entropy_samples": 4}, "at most num_samples=2"),
    ],
)
def test_bad_recipes_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**options)


def test_fit_improves_the_bound_and_leaves_the_network_alone():
    net = network()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    posterior = livi.fit(net, data(), livi.Gaussian(), recipe=replace(QUICK, steps=400, map_steps=300), progress=False)
    assert posterior.history[-1]["bound"] > posterior.history[0]["bound"] + 10
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
    prediction = posterior.predict(data()[0], num_samples=64)
    assert (prediction.mean - data()[1]).square().mean().sqrt() < 0.4
    assert prediction.epistemic_std.shape == (24,)


def test_a_user_s_own_loop_gives_identical_numbers():
    posterior = quick_fit()
    plan = livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=QUICK)
    begin(plan, seed=0)
    bound, optimiser = plan.bound, make_optimiser(plan.bound, QUICK)
    rng = torch.Generator().manual_seed(0)
    for step in range(QUICK.steps):
        for group in optimiser.param_groups:
            group["lr"] = group["peak"] * QUICK.rate_factor(step)
        terms = bound(*plan.data.first(), rng)
        optimiser.zero_grad()
        (-terms.tempered(QUICK.kl_weight(step)) / bound.num_data).backward()
        optimiser.step()
        if (step + 1) % 10 == 0:
            assert terms.bound.item() == pytest.approx(posterior.history[step // 10]["bound"], rel=1e-9)
    torch.testing.assert_close(draws(posterior), bound.family.sample(5, torch.Generator().manual_seed(9)))


def test_the_seed_decides_everything():
    torch.testing.assert_close(draws(quick_fit(seed=3)), draws(quick_fit(seed=3)), rtol=0, atol=0)
    assert not torch.equal(draws(quick_fit(seed=3)), draws(quick_fit(seed=4)))


def test_fit_leaves_the_global_random_stream_alone():
    net, likelihood = network(), livi.Gaussian()
    before = torch.random.get_rng_state()
    livi.fit(net, data(), likelihood, recipe=QUICK, progress=False)
    assert torch.equal(before, torch.random.get_rng_state())


def test_clipping_bounds_the_gradient_by_its_usual_norm():
    plain, clipped = quick_fit(), quick_fit(recipe=replace(QUICK, clip_factor=0.5))
    assert not torch.equal(draws(plain), draws(clipped))
    torch.testing.assert_close(draws(quick_fit(recipe=replace(QUICK, clip_factor=1e9))), draws(plain))


def test_weight_averaging_starts_at_the_start_and_replaces_the_parameters_at_the_end():
    plain, averaged = quick_fit(), quick_fit(recipe=replace(QUICK, averaging=0.9))
    assert not torch.equal(draws(plain), draws(averaged))
    # So slow an average stays where it began: at the MAP start, not at the generator's own initialisation.
    slow = quick_fit(recipe=replace(QUICK, averaging=0.999999))
    plan = livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=QUICK)
    begin(plan, seed=0)
    torch.testing.assert_close(slow.sampler.centre(), plan.bound.family.centre(), rtol=1e-3, atol=1e-3)
