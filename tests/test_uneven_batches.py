"""Batches of different sizes: over an epoch every example counts alike, whoever takes the steps."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi
from livi.inference.map_fits import map_weights
from livi.model.data import Part, as_data
from livi.model.problem import Problem

X = torch.ones(101, 1, dtype=torch.float64)
Y = torch.cat([torch.zeros(100), torch.tensor([3.0])])[:, None].double()
EXACT = 3.0 / 102.0  # mean of the weight: 101 examples and the prior, all of variance 1
FORMS = {
    "loader": lambda: DataLoader(TensorDataset(X, Y), batch_size=100),
    "list": lambda: [(X[:100], Y[:100]), (X[100:], Y[100:])],
    "three": lambda: [(X[:40], Y[:40]), (X[40:100], Y[40:100]), (X[100:], Y[100:])],
}


def network():
    torch.manual_seed(0)
    return nn.Linear(1, 1, bias=False)


@pytest.mark.parametrize("form", FORMS)
def test_the_steps_of_an_epoch_add_up_to_the_gradient_on_all_examples(form):
    data = as_data(FORMS[form](), device=torch.device("cpu"), dtype=torch.float64)
    slope = torch.zeros((), dtype=torch.float64)
    for _, targets in data.epoch(0):
        slope += data.emphasis((None, targets)) * targets.mean()
    torch.testing.assert_close(slope / data.steps_per_epoch, Y.double().mean())


@pytest.mark.parametrize("form", FORMS)
def test_the_parts_of_several_processes_have_the_emphasis_of_the_whole_batch(form):
    data = as_data(FORMS[form](), device=torch.device("cpu"), dtype=torch.float64)
    parts = [list(Part(data, index, 2).epoch(0)) for index in range(2)]
    for index, batch in enumerate(data.epoch(0)):
        pieces = [part[index] for part in parts]
        assert [piece[3] for piece in pieces] == [data.emphasis(batch)] * 2
        assert sum(piece[2] for piece in pieces) == pytest.approx(1.0)


def test_batches_of_an_unknown_size_are_held_against_the_first():
    class Ones:
        """Of a known length and number, but not of known sizes."""

        dataset = X

        def __iter__(self):
            yield from FORMS["list"]()

        def __len__(self):
            return 2

    data = as_data(Ones(), device=torch.device("cpu"), dtype=torch.float64)
    assert [data.emphasis(batch) for batch in data.epoch(0)] == [1.0, 0.01]


@pytest.mark.parametrize("form", FORMS)
def test_a_map_fit_finds_the_mode_of_all_examples(form):
    problem = Problem.of(network(), FORMS[form](), livi.Gaussian(1.0), prior=livi.Normal(1.0), standardise=False)
    recipe = livi.Recipe(map_steps=600, map_restarts=1, map_rate=0.05, num_samples=4)
    theta = map_weights(problem, recipe, seed=0).theta
    assert theta[0, 0].item() == pytest.approx(EXACT, abs=0.02)


@pytest.mark.parametrize("strategy", [livi.Vmap(), livi.Loop()], ids=["vmap", "loop"])
def test_the_gradients_of_the_bound_add_up_to_those_on_all_examples(strategy):
    def gradient(batches):
        layout = livi.Layout(network())
        generator, noise = livi.MLP.for_layout(layout), livi.FixedNoise(0.1)
        family, options = livi.ImplicitPosterior(layout, generator, noise), {"num_data": 101, "num_samples": 4}
        bound = livi.Bound(family, livi.Gaussian(1.0), livi.Normal(1.0), strategy=strategy, **options)
        data = as_data(batches, device=torch.device("cpu"), dtype=torch.float64)
        for inputs, targets in data.epoch(0):
            rng, emphasis = torch.Generator().manual_seed(0), data.emphasis((inputs, targets)) / data.steps_per_epoch
            bound.accumulate(inputs, targets, rng, emphasis=emphasis)
        return torch.cat([one.grad.flatten() for one in bound.parameters() if one.grad is not None])

    torch.testing.assert_close(gradient(FORMS["three"]()), gradient([(X, Y)]), rtol=1e-4, atol=1e-6)


# Without a warning that the likelihood is low, as it is of the batch with the outlier, which the last steps may be on.
def test_a_fit_on_the_bound_finds_the_posterior_of_all_examples():
    options = {"prior": livi.Normal(1.0), "last_layer": "sampled", "standardise": False, "progress": False}
    posterior = livi.fit(network(), FORMS["three"](), livi.Gaussian(1.0), steps=600, **options)
    drawn = posterior.sample(2000, torch.Generator().manual_seed(0))[:, 0]
    assert drawn.mean().item() == pytest.approx(EXACT, abs=0.04)  # less than half of a standard deviation
    assert drawn.std().item() == pytest.approx(102**-0.5, rel=0.2)


def test_stochastic_gradient_descent_of_swag_finds_the_mode_of_all_examples():
    options = {"prior": livi.Normal(1.0), "standardise": False, "progress": False}
    posterior = livi.rivals.fit_swag(network(), FORMS["list"](), livi.Gaussian(1.0), steps=400, **options)
    assert posterior.sample(2000, torch.Generator().manual_seed(0)).mean().item() == pytest.approx(EXACT, abs=0.1)
