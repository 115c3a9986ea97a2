"""The posterior that a user holds: what it takes, what it says of itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import livi
from livi.posterior.diagnostics import Effort
from livi.rivals import fit_ensemble

CHEAP = Effort(num_densities=4, num_importance=4, num_starts=1, num_latents=1)


def rng():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def posterior():
    """In single precision, so that arrays of doubles have to be converted."""
    layout = livi.Layout(nn.Linear(2, 1, dtype=torch.float32))
    sampler = livi.ImplicitPosterior(layout, livi.Affine(3, 3).float())
    return livi.Posterior(sampler.requires_grad_(False), livi.Gaussian(0.5).float(), livi.Normal().float())


X = torch.arange(10.0, dtype=torch.float64).reshape(5, 2)
Y = torch.arange(5.0, dtype=torch.float64)
FORMS = {"tensor": Tensor.double, "array": Tensor.numpy, "list": Tensor.tolist}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_inputs_of_every_form_give_the_same_functions_predictions_and_diagnoses(posterior, form):
    single = X.float()
    functions = posterior.functions(4, rng())
    assert torch.equal(functions(form(X)), functions(single))
    assert torch.equal(functions[1](form(X)), functions[1](single))
    found = posterior.predict(form(X), num_samples=4, rng=rng()).mean
    assert torch.equal(found, posterior.predict(single, num_samples=4, rng=rng()).mean)
    diagnosis = posterior.diagnose(form(X), form(Y), num_samples=16, rng=rng(), effort=CHEAP)
    expected = posterior.diagnose(single, Y.float(), num_samples=16, rng=rng(), effort=CHEAP)
    assert diagnosis.bound == expected.bound


def test_gradients_reach_the_inputs_of_drawn_functions(posterior):
    x = X.float().requires_grad_()
    posterior.functions(4, rng())(x).sum().backward()
    assert x.grad is not None
    assert bool((x.grad != 0).all())


@pytest.mark.parametrize("form", [*FORMS.values(), Tensor.int], ids=[*FORMS, "integers"])
def test_targets_of_every_form_are_scored_the_same(posterior, form):
    prediction = posterior.predict(X, num_samples=4, rng=rng())
    assert torch.equal(prediction.log_prob(form(Y)), prediction.log_prob(Y))
    assert torch.equal(prediction.cdf(form(Y)), prediction.cdf(Y))


@pytest.mark.parametrize("likelihood", [livi.Categorical(), livi.FunctionLikelihood(lambda f, y: f[:, :, 0] * y)])
def test_classes_and_functions_of_outputs_take_arrays_of_targets_too(likelihood):
    sampler = livi.ImplicitPosterior(livi.Layout(nn.Linear(2, 3)), livi.Affine(3, 9))
    prediction = livi.Posterior(sampler, likelihood).predict(X, num_samples=4)
    labels = torch.tensor([0, 1, 2, 1, 0])
    assert torch.equal(prediction.log_prob(labels.numpy()), prediction.log_prob(labels))
    assert torch.equal(prediction.log_prob(labels.tolist()), prediction.log_prob(labels))


@pytest.mark.parametrize("name", ["quantile", "function_quantile"])
def test_levels_of_every_form_give_the_same_quantiles(posterior, name):
    quantile = getattr(posterior.predict(X, num_samples=4, rng=rng()), name)
    levels = [0.125, 0.5]
    expected = torch.stack([quantile(level) for level in levels])
    for form in (tuple(levels), np.array(levels), np.array(levels, np.float32), torch.tensor(levels)):
        assert torch.equal(quantile(form), expected)
    for one in (np.float32(0.5), np.array(0.5), torch.tensor(0.5)):
        assert torch.equal(quantile(one), expected[1])


RECIPE = livi.Recipe(steps=20, map_steps=5, map_restarts=2, num_samples=4)


def test_the_repr_says_what_was_fitted_in_one_line(posterior, tmp_path):
    assert repr(posterior) == "Posterior(1 x Affine, 3 weights of Linear, Gaussian)"
    net, data = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), (X, Y)
    fitted = livi.fit(net, data, livi.Gaussian(), recipe=RECIPE, components=2, progress=False)
    start = "Posterior(2 x MLP and an exact last layer, 33 weights of Sequential, Gaussian"
    assert repr(fitted) == f"{start}, 20 steps)"
    fitted.save(tmp_path / "posterior.livi")
    assert repr(livi.load(tmp_path / "posterior.livi", net)) == repr(fitted)
    fitted.plan["interrupted_at"] = 12
    assert repr(fitted) == f"{start}, interrupted at step 12 of 20)"
    ensemble = fit_ensemble(net, data, livi.Gaussian(), recipe=RECIPE, members=2)
    assert repr(ensemble) == "Posterior(Ensemble, 33 weights of Sequential, Gaussian)"
