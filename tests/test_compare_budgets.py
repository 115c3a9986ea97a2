"""`livi.compare` gives every method the same number of gradients, and counts those that were taken."""

import pytest
import torch
from torch import nn

import livi
from livi.comparison.comparing import gradients_of

pytestmark = pytest.mark.filterwarnings("ignore::livi.FitWarning")
BUDGET = {"gradients": 2_000, "progress": False}


def data(num_data=200):
    inputs = torch.randn(num_data, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    return inputs, inputs[:, :1] * inputs[:, 1:]


def network():
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).float()


def test_a_gradient_with_an_integrated_last_layer_counts_as_many_as_others_need_batches():
    found = livi.compare(network(), data(3_200), methods=["livi", "map"], gradients=4_000, progress=False)
    rows = {row.name: row.gradients for row in found.rows}
    assert found.posteriors["livi"].plan["last_layer"].startswith("exact")
    batches = found.posteriors["map"].plan["steps_per_epoch"]
    assert batches > 5
    assert rows["livi"] == batches * found.posteriors["livi"].plan["gradients"]
    assert rows == pytest.approx({"livi": 4_000, "map": 4_000}, rel=0.15)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "mean_field", "components": 3},
        {"method": "mean_field", "recipe": livi.Recipe(num_samples=4)},
        {"method": "livi", "last_layer": "sampled", "recipe": livi.Recipe(num_samples=4)},
        {"method": "map", "recipe": livi.Recipe(map_rate=1e-3)},
        {"method": "swag", "recipe": livi.Recipe(map_restarts=1)},
    ],
    ids=["components", "samples", "livi", "rate", "restarts"],
)
def test_options_of_a_methods_own_leave_its_budget_as_it_is(options):
    found = livi.compare(network(), data(), methods={"own": options}, **BUDGET)
    assert found.rows[0].gradients == pytest.approx(2_000, rel=0.15)


@pytest.mark.parametrize("method", ["livi", "mean_field"])
@pytest.mark.parametrize(
    "length", [{"steps": 3}, {"recipe": livi.Recipe(steps=3, map_steps=2)}], ids=["option", "recipe"]
)
def test_a_length_that_is_asked_for_is_the_one_that_is_taken(method, length):
    found = livi.compare(network(), data(), methods={"own": {"method": method} | length}, **BUDGET)
    assert found.posteriors["own"].plan["recipe"]["steps"] == 3


def test_components_that_are_left_out_of_a_mixture_have_taken_gradients_too(monkeypatch):
    monkeypatch.setattr("livi.inference.fitting.lost_components", lambda *_: [1, 2])
    recipe = livi.Recipe(steps=5, num_samples=4, map_steps=7, map_restarts=3)
    options = {"components": 3, "last_layer": "sampled", "recipe": recipe, "progress": False}
    posterior = livi.fit(network(), data(), livi.Gaussian(0.2), **options)
    assert posterior.plan["components"] == 1
    assert gradients_of(posterior) == 3 * 7 + 5 * 3 * 4


def test_a_fit_that_is_started_again_counts_both_runs(monkeypatch):
    lost = iter(["the fit ended far below its start.", ""])
    monkeypatch.setattr("livi.inference.fitting.lost_likelihood", lambda *_: next(lost))
    recipe = livi.Recipe(steps=5, num_samples=4, map_steps=7, map_restarts=1)
    options = {"last_layer": "sampled", "recipe": recipe, "progress": False}
    assert gradients_of(livi.fit(network(), data(), livi.Gaussian(0.2), **options)) == 7 + 2 * 5 * 4


def test_a_fit_that_is_stopped_counts_the_steps_that_it_took():
    class Stop(livi.Callback):
        def on_step(self, run):
            if run.step == 3:
                run.stop("enough")

    recipe = livi.Recipe(steps=50, num_samples=4, map_steps=7, map_restarts=1)
    options = {"last_layer": "sampled", "recipe": recipe, "callbacks": [Stop()], "progress": False}
    posterior = livi.fit(network(), data(), livi.Gaussian(0.2), **options)
    assert gradients_of(posterior) == 7 + posterior.plan["stopped_at"] * 4 < 60
