"""Fits inside torch.no_grad and torch.inference_mode, of tensors that were made there, and of those with gradients."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi

MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
SHORT = {"recipe": livi.Recipe(steps=4, map_steps=4, map_restarts=1, num_samples=2), "progress": False}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))


CALLS = {
    "fit": lambda _, x, y: livi.fit(net(), (x, y), livi.Gaussian(), **SHORT),
    "plan": lambda _, x, y: livi.plan(net(), (x, y), livi.Gaussian()),
    "polish": lambda known, x, y: livi.polish(known, (x, y), chains=2, draws=16, steps=20, progress=False),
    "diagnose": lambda known, x, y: known.diagnose(x, y, num_samples=4),
    "fit_density": lambda *_: livi.fit_density(lambda theta: -theta.square().sum(-1), 2, steps=50, progress=False),
}


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", CALLS)
def test_the_mode_of_the_caller_does_not_matter(mode, call, plane):
    known = livi.fit(net(), plane, livi.Gaussian(), **SHORT)
    with MODES[mode]():
        CALLS[call](known, *plane)
        assert not torch.is_grad_enabled()


@pytest.mark.parametrize("mode", MODES)
def test_a_fit_there_is_the_same_fit(mode, plane):
    one = livi.fit(net(), plane, livi.Gaussian(), **SHORT)
    with MODES[mode]():
        other = livi.fit(net(), plane, livi.Gaussian(), **SHORT)
    assert torch.equal(one.predict(plane[0]).mean, other.predict(plane[0]).mean)


def pair(x, y):
    return x, y


def loader(x, y):
    return DataLoader(TensorDataset(x, y), 8)


@pytest.mark.parametrize("form", [pair, loader])
def test_data_made_in_inference_mode_are_data(form, plane):
    with torch.inference_mode():
        made = [part.clone() for part in plane]
    one, other = (livi.fit(net(), form(*data), livi.Gaussian(), **SHORT) for data in (made, plane))
    assert torch.equal(one.predict(made[0]).mean, other.predict(plane[0]).mean)


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
@pytest.mark.parametrize("form", [pair, loader])
def test_gradients_do_not_flow_into_the_data_of_a_fit(form, plane):
    backbone = nn.Linear(2, 2)
    features, rows = backbone(plane[0]), plane[0].clone().requires_grad_()
    for inputs in (features, rows):
        posterior = livi.fit(net(), form(inputs, plane[1]), livi.Gaussian(), **SHORT)
        posterior.diagnose(inputs, plane[1], num_samples=4)
        livi.polish(posterior, form(inputs, plane[1]), chains=2, draws=16, steps=20, progress=False)
        again = livi.fit(net(), form(inputs.detach(), plane[1]), livi.Gaussian(), **SHORT)
        assert torch.equal(posterior.predict(plane[0]).mean, again.predict(plane[0]).mean)
    assert rows.grad is None
    assert backbone.weight.grad is None
    (gradient,) = torch.autograd.grad(posterior.predict(features).mean.sum(), backbone.weight)
    assert gradient.abs().sum() > 0
