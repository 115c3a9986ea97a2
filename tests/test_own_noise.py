"""The noise of a network that is kept of several: its own, whatever became of the others."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi
from livi.inference import Recipe, map_weights
from livi.inference.refit_noise import fit_noise
from livi.model.likelihoods import Likelihood
from livi.model.problem import Problem
from livi.rivals import fit_map, fit_swag
from livi.rivals.nuts import _noise_of_each

RECIPE = Recipe(map_steps=400, map_restarts=4, map_rate=2e-2)


class Dying(nn.Linear):
    """Whose fresh initialisations never let a ReLU see the light."""

    def reset_parameters(self):
        super().reset_parameters()
        nn.init.constant_(self.bias, -1e3)


def sound_once():
    """A network that fits where it starts at its own weights, and stays at zero from all others."""
    net = nn.Sequential(Dying(1, 20), nn.ReLU(), nn.Linear(20, 1, bias=False))
    nn.init.uniform_(net[0].bias, -1.0, 1.0)
    return net


def wave(num_data=200):
    x = torch.linspace(-2, 2, num_data)[:, None]
    return x, 3 * torch.sin(2 * x[:, 0]) + 0.1 * torch.randn(num_data)


def residual_of(posterior, x, y):
    return float((posterior.predict(x, num_samples=1).mean - y).square().mean().sqrt())


@pytest.mark.parametrize("loaded", [False, True], ids=["tensors", "loader"])
def test_a_kept_network_has_a_noise_of_its_own(loaded):
    x, y = wave()
    data = DataLoader(TensorDataset(x, y), 40, shuffle=True) if loaded else (x, y)
    posterior = fit_map(sound_once(), data, livi.Gaussian(), recipe=RECIPE, standardise=False)
    residual = residual_of(posterior, x, y)
    assert residual < 0.5
    assert float(posterior.likelihood.obs_std()) == pytest.approx(residual, rel=2e-3)
    problem = Problem.of(sound_once(), (x, y), posterior.likelihood, standardise=False)
    fit, penalty = problem.on_data(posterior.sampler.theta)
    assert posterior.plan["log_joint"] == pytest.approx([float(fit + penalty)], rel=1e-6)


def test_the_weights_are_those_of_the_map_fits():
    data, net = wave(), sound_once()
    problem = Problem.of(net, data, livi.Gaussian(), standardise=False)
    starts = map_weights(problem, RECIPE, seed=0)
    assert problem.likelihood.obs_std().item() > 1.0  # one for all, three of which do not fit
    posterior = fit_map(net, data, livi.Gaussian(), recipe=RECIPE, standardise=False)
    assert torch.equal(posterior.sampler.theta, starts.theta[:1])


def test_swag_goes_on_with_the_noise_of_the_network_that_it_starts_from():
    data, net = wave(), sound_once()
    options = {"recipe": RECIPE, "standardise": False}
    posterior = fit_swag(net, data, livi.Gaussian(), steps=200, collected=20, rank=5, **options)
    estimate = fit_map(net, data, livi.Gaussian(), **options)
    torch.testing.assert_close(posterior.likelihood.obs_std(), estimate.likelihood.obs_std())


@pytest.mark.parametrize("restarts", [1, 3])
def test_a_noise_does_not_fall_below_the_limit_of_the_map_fits(restarts):
    x = torch.linspace(-1, 1, 50)[:, None]
    recipe = Recipe(map_steps=1500, map_restarts=restarts, map_rate=2e-2)
    posterior = fit_map(nn.Linear(1, 1), (x, x[:, 0]), livi.Gaussian(), recipe=recipe, standardise=False)
    assert float(posterior.likelihood.obs_std()) == pytest.approx(0.1 * float(x.std()), rel=1e-6)


def test_each_output_has_the_noise_that_suits_it():
    x = torch.randn(300, 2)
    y = x @ torch.randn(2, 3) + torch.tensor([0.1, 0.5, 2.0]) * torch.randn(300, 3)
    problem = Problem.of(nn.Linear(2, 3), (x, y), livi.Gaussian(), batch_size=50)
    theta, limits = torch.randn(9), problem.likelihood.lower_limits()
    outputs = problem.outputs(theta[None], x)[0]
    fit_noise(problem, theta, limits)
    torch.testing.assert_close(
        problem.likelihood.obs_std().detach(), (y - outputs).square().mean(0).sqrt(), rtol=2e-3, atol=0
    )
    assert all(parameter.grad is None for parameter in problem.likelihood.parameters())


class Unbounded(Likelihood):
    """Whose parameter has no best value: it is better the smaller it is, until there is no density."""

    def __init__(self):
        super().__init__()
        self.level = nn.Parameter(torch.tensor(1.0))

    def log_prob(self, outputs, targets):
        return -(outputs[..., 0] - targets).square() - torch.where(self.level > 0.5, self.level, torch.nan)


def test_parameters_without_a_best_value_stay_as_they_are():
    problem = Problem.of(nn.Linear(1, 1), (torch.randn(9, 1), torch.randn(9)), Unbounded())
    fit_noise(problem, torch.zeros(2), [])
    assert problem.likelihood.level.item() == 1.0


def test_chains_begin_at_the_noise_of_their_own_map_fit():
    x, y = wave()
    problem = Problem.of(sound_once(), (x, y), livi.Gaussian(), standardise=False)
    limits = problem.likelihood.lower_limits()
    starts = map_weights(problem, RECIPE, seed=0)
    noises = _noise_of_each(problem, starts.theta, limits)
    residuals = (problem.outputs(starts.theta, x)[..., 0] - y).square().mean(1).sqrt()
    torch.testing.assert_close(noises.exp(), residuals, rtol=2e-3, atol=0)
    torch.testing.assert_close(problem.likelihood.log_std.detach(), noises[0])
