"""The start of a fit: which weights it begins from, what that costs, and what it shows."""

import io
import math
from dataclasses import replace

import pytest
import torch
from support.short_fits import QUICK, data, draws, network, quick_fit

import livi
from livi.inference import FitWarning, Recipe, map_fits, map_weights
from livi.inference.begin import begin
from livi.inference.progress import FitProgress
from livi.rivals import fit_ensemble


def test_the_start_is_chosen_by_all_of_the_data_not_its_first_rows():
    x = torch.linspace(-3, 3, 1500)[:, None]  # in order: the first rows see one end only
    y = torch.where(x[:, 0] < 0, torch.zeros(1500), torch.sin(3 * x[:, 0]))
    plan = livi.plan(network(), (x, y), livi.Gaussian(0.2), recipe=QUICK, batch_size=100)
    recipe = replace(QUICK, map_restarts=6, map_steps=150)
    density = plan.problem
    theta, likelihood, joint = map_weights(density, recipe, seed=0)
    truth = plan.bound.likelihood.log_prob(livi.apply_many(plan.layout, theta, x), y).sum(1)
    torch.testing.assert_close(likelihood, truth)
    torch.testing.assert_close(joint, truth + plan.bound.prior.log_prob(theta))
    assert (joint.diff() <= 0).all()


def test_one_restart_that_runs_away_does_not_take_the_others_along(monkeypatch):
    made = map_fits.initial_weights

    def wild(layout, count, seed):
        theta = made(layout, count, seed)
        theta[1] = 1e200
        return theta

    monkeypatch.setattr(map_fits, "initial_weights", wild)
    posterior = quick_fit(recipe=replace(QUICK, map_steps=200))
    assert posterior.sampler.centre().abs().max() < 100


@pytest.mark.parametrize("lost", [math.inf, -math.inf, math.nan])
def test_rows_without_a_finite_density_go_on_from_the_best(lost):
    theta = torch.arange(3.0)[:, None].clone()
    map_fits._replace_lost(theta, torch.tensor([-2.0, lost, -1.0]))
    assert theta[:, 0].tolist() == [0.0, 2.0, 2.0]


def test_ctrl_c_in_map_fits_that_are_no_start_ends_them(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(map_fits._Ascent, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_ensemble(network(), data(), livi.Gaussian(0.2), members=2, steps=10)


def test_ctrl_c_in_the_start_keeps_a_narrow_posterior_around_the_weights_found(monkeypatch, tmp_path):
    advance, taken = map_fits._Ascent.advance, []

    def press(self, batch):
        taken.append(batch)
        if len(taken) == 40:
            raise KeyboardInterrupt
        return advance(self, batch)

    monkeypatch.setattr(map_fits._Ascent, "advance", press)
    with pytest.warns(FitWarning, match="interrupted while looking for a start"):
        posterior = quick_fit(checkpoint=tmp_path / "c.livi")
    assert posterior.plan["interrupted_at"] == 0
    assert (tmp_path / "c.livi").exists()
    assert torch.isfinite(posterior.predict(data()[0], num_samples=4).mean).all()
    assert (draws(posterior) - posterior.sampler.centre()).abs().max() < 8 * QUICK.spread


def test_the_start_is_shown_and_its_cost_is_planned():
    said = io.StringIO()
    plan = livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=replace(QUICK, map_steps=200))
    begin(plan, 0, FitProgress(60, stream=said))
    lines = said.getvalue().splitlines()
    assert lines[0].startswith("MAP start [")
    assert "100/200" in lines[0]
    assert "likelihood" in lines[-1]
    assert plan.seconds_per_map_step > 0
    assert "for the start" in str(plan)


def test_fewer_steps_shorten_the_start_in_proportion_and_more_do_not_lengthen_it():
    recipe = Recipe(steps=1000, map_steps=500)
    assert recipe.lasting(100) == replace(recipe, steps=100, map_steps=50)
    assert recipe.lasting(5000) == replace(recipe, steps=5000)


def test_a_start_is_as_long_as_the_recipe_says_and_shortened_where_it_does_not():
    def planned(recipe, **steps):
        return livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=recipe, **steps).recipe

    whole = planned(Recipe(steps=100))
    assert planned(Recipe(steps=100), steps=10).map_steps == whole.map_steps // 10 > 0
    assert planned(QUICK, steps=6).map_steps == QUICK.map_steps


def test_a_mixture_starts_at_different_modes_with_odds_by_their_height():
    joint = torch.tensor([-10.0] * 5 + [-11.0] * 5 + [-60.0] * 10)
    starts = map_fits.Starts(torch.arange(20.0)[:, None], joint, joint)
    assert starts.pick(1, seed=0).tolist() == [[0.0]]
    picks = torch.stack([starts.pick(4, seed).squeeze(1) for seed in range(200)])
    assert all(len(set(row.tolist())) == 4 for row in picks)
    shares = torch.bincount(picks.long().flatten(), minlength=20) / 800
    assert shares[10:].sum() == 0  # 50 nats below
    lower = float(shares[5:10].sum())
    assert 0.3 < lower < 0.48  # somewhat below one half: exp(-1/3) of the odds
    assert torch.equal(starts.pick(10, seed=3), starts.theta[:10])


def test_estimates_far_below_the_best_are_no_starts():
    theta, levels = torch.arange(4.0)[:, None], torch.tensor([0.0, -5.0, -500.0, -torch.inf])
    starts = map_fits.Starts(theta, levels, levels)
    assert [starts.pick(count, seed=0).squeeze(1).tolist() for count in (1, 2, 3)] == [
        [0.0],
        [0.0, 1.0],
        [0.0, 1.0, 0.0],
    ]
    wide = map_fits.Starts(torch.zeros(4, 1000), levels, levels)  # a posterior of so many weights is that wide
    assert wide.pick(3, seed=0).shape == (3, 1000)


def test_without_map_steps_the_start_is_the_module_itself():
    plan = livi.plan(
        network(), data(), livi.Gaussian(), last_layer="sampled", recipe=replace(QUICK, map_steps=0, map_restarts=4)
    )
    begin(plan, seed=0)
    begun = plan.bound.family.sample(2000, torch.Generator().manual_seed(0)).mean(0)
    assert (begun - livi.Layout(network()).flatten()).abs().max() < 0.02
