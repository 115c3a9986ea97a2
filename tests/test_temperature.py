"""Cold and warm posteriors: the likelihood to the power of 1 / T."""

import pytest
import torch
from support.short_fits import QUICK, data, network, quick_fit
from torch import nn

import livi
from livi.inference import Recipe
from livi.inference.alarms import alarms
from livi.inference.final_check import Yardstick
from livi.report.course import warming_up


@pytest.mark.parametrize("temperature", [0.25, 4.0])
def test_a_tempered_fit_of_a_linear_model_is_the_tempered_posterior(temperature):
    torch.manual_seed(0)
    x = torch.randn(40, 2)
    y = x @ torch.tensor([0.7, -0.4]) + 0.2 + 0.5 * torch.randn(40)
    recipe = Recipe(temperature=temperature, steps=1500, map_steps=200, map_restarts=1)
    posterior = livi.fit(
        nn.Linear(2, 1),
        (x, y),
        livi.Gaussian(0.5),
        prior=livi.Normal(1.5),
        last_layer="sampled",
        recipe=recipe,
        progress=False,
    )
    design = torch.cat([x, torch.ones(40, 1)], 1)
    precision = design.T @ design / (0.5**2 * temperature) + torch.eye(3) / 1.5**2
    covariance = torch.linalg.inv(precision)
    mean = covariance @ design.T @ y / (0.5**2 * temperature)
    drawn = posterior.sample(4000, torch.Generator().manual_seed(0))
    std = covariance.diagonal().sqrt()
    torch.testing.assert_close((drawn.mean(0) - mean) / std, torch.zeros(3), rtol=0, atol=0.1)
    torch.testing.assert_close(drawn.std(0) / std, torch.ones(3), rtol=0.1, atol=0)


def test_a_last_layer_is_sampled_where_its_evidence_cannot_be_tempered():
    cold = Recipe(temperature=0.5)
    plan = livi.plan(network(), data(), livi.Gaussian(), recipe=cold)
    assert "temperature is not 1" in str(plan)
    assert "temperature 0.5" in str(plan)
    with pytest.raises(ValueError, match=r"last_layer='exact'.*temperature is not 1.*last_layer='sampled'"):
        livi.plan(network(), data(), livi.Gaussian(), recipe=cold, last_layer="exact")
    assert "temperature" not in str(livi.plan(network(), data(), livi.Gaussian()))


def test_chains_sample_no_tempered_posterior():
    with pytest.raises(ValueError, match=r"polish=True: expected temperature 1.*got 0\.5; leave one of them out"):
        livi.plan(network(), data(), livi.Gaussian(), recipe=Recipe(temperature=0.5), polish=True)


def test_a_fit_goes_on_at_the_temperature_that_it_had_unless_another_is_named():
    cold = quick_fit(recipe=Recipe(temperature=0.5).joined(QUICK))
    assert livi.plan(network(), data(), livi.Gaussian(), start=cold).recipe.temperature == 0.5
    named = Recipe(temperature=1.0)
    assert livi.plan(network(), data(), livi.Gaussian(), start=cold, recipe=named).recipe.temperature == 1.0


def test_early_stopping_waits_for_the_end_of_the_warm_up_at_any_temperature():
    recipe = Recipe(temperature=0.5, steps=200).joined(QUICK)
    stopping = livi.EarlyStopping(patience=1)
    posterior = quick_fit(recipe=recipe, validation=0.3, validate_every=10, callbacks=[stopping])
    assert max(row["kl_weight"] for row in posterior.history) == 0.5
    assert stopping.best_step is not None
    assert stopping.best_step > 0.3 * 200
    warming = warming_up(posterior.history)
    assert 50 <= warming[-1] <= 0.3 * 200


def test_what_has_nothing_to_temper_refuses():
    cold = Recipe(temperature=0.5)
    with pytest.raises(ValueError, match="expected temperature 1, for a density has no likelihood"):
        livi.fit_density(lambda x: -0.5 * x.square().sum(1), 2, recipe=cold)
    with pytest.raises(ValueError, match="fit_ensemble: expected temperature 1, for MAP fits have no KL term"):
        livi.rivals.fit_ensemble(network(), data(), livi.Gaussian(), recipe=cold)


def test_chains_from_a_tempered_posterior_say_that_they_are_not_tempered():
    cold = quick_fit(recipe=Recipe(temperature=0.5).joined(QUICK))
    with pytest.warns(livi.FitWarning) as caught:
        polished = livi.polish(cold, data(), chains=2, draws=16, steps=60, progress=False)
    assert any("chains sample the posterior itself" in str(each.message) for each in caught)
    assert polished.plan["recipe"]["temperature"] == 1.0
    assert cold.plan["recipe"]["temperature"] == 0.5


def test_a_tempered_posterior_is_not_held_against_mean_field():
    cold = quick_fit(recipe=Recipe(temperature=0.5).joined(QUICK))
    assert "a tempered one" in str(cold.diagnose(*data(), num_samples=16).references.mean_field)


def test_a_temperature_that_is_none_is_an_error():
    with pytest.raises(ValueError, match="temperature: expected a positive"):
        Recipe(temperature=0.0)


def test_a_hot_posterior_may_lose_what_its_start_explained():
    recipe, (x, y) = Recipe(temperature=100.0, steps=500, map_steps=400).over(QUICK), data(150)
    posterior = quick_fit(recipe=recipe, data=(x, y))
    assert float(posterior.predict(x).log_prob(y).sum()) < livi.Gaussian().constant_log_prob(y)


def test_a_hot_posterior_may_be_far_below_its_start():
    bound = livi.plan(network(), data(), livi.Gaussian(0.1), last_layer="sampled").bound
    said = [alarms(bound, -60.0, Yardstick(0.0, None, each), 0.0, torch.Generator()) for each in (1.0, 10.0)]
    assert ["far below the MAP start" in " ".join(texts) for texts in said] == [True, False]
