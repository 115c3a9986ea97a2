"""Every method of the register, swept: predictions, scores, files and devices are the same for all of them."""

import pytest
import torch
from torch import nn

import livi
from livi.inference import Recipe
from livi.model.likelihoods import Categorical, Gaussian
from livi.rivals import METHODS

TINY = Recipe(steps=3, map_steps=20, map_restarts=2, num_samples=4, num_entropy_samples=2)
# What makes a fit of each short; where a package is needed, the sweep does without the method if it is not there.
SHORT = {
    "langevin": {"chains": 2, "steps": 40, "draws": 16, "map_steps": 5},
    "swag": {"steps": 60, "collected": 20, "rank": 5},
    "laplace_low_rank": {"rank": 5},
    "ivon": {"steps": 10},
    "nuts": {"warmup": 10, "draws": 10, "chains": 2},
}
TOO_SHORT_FOR_CHAOS = {"nuts": {"warmup": 2, "draws": 8, "chains": 2}}  # more trees turn rounding into other draws
NEEDS = {
    "laplace_last_layer": "laplace",
    "laplace_linearised": "laplace",
    "laplace_low_rank": "laplace",
    "ivon": "ivon",
    "nuts": "numpyro",
}
QUICK = [name for name in METHODS if name != "nuts"]  # whose chains take seconds to be compiled: swept once
pytestmark = pytest.mark.filterwarnings("ignore::livi.inference.FitWarning")


def fitted(name, data, likelihood, outputs=1, **options):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, outputs))
    chosen = {"recipe": TINY, "progress": False} | SHORT.get(name, {}) | options
    return net, METHODS[name].fit(net, data, likelihood, **chosen)


@pytest.mark.parametrize("name", METHODS)
def test_numbers_are_predicted_scored_saved_and_loaded_alike(name, tmp_path):
    inputs = torch.randn(24, 2)
    data = (inputs, inputs.sum(1))
    net, posterior = fitted(name, data, Gaussian(0.5))
    assert type(posterior) is livi.Posterior
    prediction = posterior.predict(inputs, num_samples=10)
    assert prediction.mean.shape == (24,)
    scores = [livi.metrics.nll(prediction, data[1]), livi.metrics.crps(prediction, data[1])]
    assert all(torch.isfinite(torch.as_tensor(score)).all() for score in scores)
    again = posterior.predict(inputs, num_samples=10)
    torch.testing.assert_close(again.means, prediction.means, rtol=0, atol=0)
    posterior.save(tmp_path / "posterior.livi")
    loaded = livi.load(tmp_path / "posterior.livi", net)
    torch.testing.assert_close(loaded.predict(inputs, num_samples=10).means, prediction.means, rtol=0, atol=0)
    assert loaded.plan == posterior.plan


@pytest.mark.parametrize("name", QUICK)
def test_classes_are_predicted_and_scored_alike(name):
    inputs = torch.randn(24, 2)
    data = (inputs, (inputs[:, 0] > 0).long())
    _, posterior = fitted(name, data, Categorical(), outputs=2)
    prediction = posterior.predict(inputs, num_samples=10)
    torch.testing.assert_close(prediction.probabilities.sum(1), torch.ones(24))
    assert 0.0 <= float(livi.metrics.accuracy(prediction, data[1])) <= 1.0


@pytest.mark.parametrize("name", QUICK)
def test_the_same_seed_gives_the_same_posterior_and_leaves_everything_as_it_was(name):
    inputs = torch.randn(24, 2)
    data = (inputs, inputs.sum(1))
    state = torch.random.get_rng_state()
    torch.manual_seed(5)
    net, first = fitted(name, data, Gaussian(0.5), seed=3)
    kept = [parameter.clone() for parameter in net.parameters()]
    torch.manual_seed(5)
    _, second = fitted(name, data, Gaussian(0.5), seed=3)
    draws = [each.sample(3, torch.Generator().manual_seed(0)) for each in (first, second)]
    torch.testing.assert_close(*draws, rtol=0, atol=0)
    assert all(torch.equal(a, b) for a, b in zip(kept, net.parameters(), strict=True))
    torch.random.set_rng_state(state)


@pytest.mark.parametrize("name", METHODS)
def test_an_option_that_there_is_not_is_refused(name):
    with pytest.raises(TypeError, match="nonsense"):
        fitted(name, (torch.randn(8, 2), torch.randn(8)), Gaussian(0.5), nonsense=1)


@pytest.mark.parametrize("name", METHODS)
def test_raw_units_give_the_posterior_of_data_standardised_by_hand(name):
    inputs = torch.randn(24, 2, dtype=torch.float64)
    inputs = (inputs - inputs.mean(0)) / inputs.std(0, correction=0)
    targets = inputs.sum(1) + 0.3 * torch.randn(24, dtype=torch.float64)
    targets = (targets - targets.mean()) / targets.std(correction=0)
    raw, prices = 80.0 + 30.0 * inputs, 230_000.0 + 1_500.0 * targets
    options = TOO_SHORT_FOR_CHAOS.get(name, {})
    torch.manual_seed(5)
    _, by_hand = fitted(name, (inputs, targets), Gaussian(), standardise=False, **options)
    torch.manual_seed(5)
    _, posterior = fitted(name, (raw, prices), Gaussian(), **options)
    assert posterior.layout.scaling is not None
    here, there = by_hand.predict(inputs, num_samples=10), posterior.predict(raw, num_samples=10)
    torch.testing.assert_close((there.mean - 230_000.0) / 1_500.0, here.mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(there.total_std / 1_500.0, here.total_std, rtol=1e-3, atol=1e-3)
