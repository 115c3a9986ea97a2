"""log p(D, theta) with its gradient, written out and by autograd."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from livi.model.likelihoods import (
    Categorical,
    ContaminatedGaussian,
    FunctionLikelihood,
    Gaussian,
    HeteroscedasticGaussian,
    StudentT,
    Weighted,
    pass_weights,
)
from livi.model.priors import FunctionPrior, Laplace, Normal, Relevance
from livi.model.problem import Problem
from livi.sampling.chains import run_chains
from livi.sampling.log_joint import by_autograd, differentiated_joint, written_out

PRIORS = {
    "Normal": Normal(0.7),
    "Normal per layer": lambda layout: Normal.for_layout(layout, 0.7, per_layer=True),
    "Normal by fan-in": lambda layout: Normal.for_layout(layout, fan_in=True),
    "Laplace": Laplace(2.0),
    "Relevance": lambda layout: Relevance.for_layout(layout, learned=True),
    "a function": FunctionPrior(lambda theta: -theta.square().square().sum(1)),
}


class Blunt(HeteroscedasticGaussian):
    def std(self, raw):
        return 1.0 + raw.square()


LIKELIHOODS = {
    "network's noise": (HeteroscedasticGaussian(1e-3), 2, 1),
    "network's noise, learned": (HeteroscedasticGaussian(learned=True), 2, 1),
    "network's noise in units": (HeteroscedasticGaussian(0.1, centre=3.0, unit=2.0, learned=True), 2, 1),
    "network's noise of two": (HeteroscedasticGaussian(centre=[1.0, 2.0], unit=[3.0, 0.5]), 4, 2),
    "network's noise of vectors": (HeteroscedasticGaussian(), 2, 0),
    "noise with outliers": (ContaminatedGaussian(0.2, 2.0), 2, 1),
    "noise with outliers of two": (ContaminatedGaussian(centre=[1.0, 2.0], unit=[3.0, 0.5]), 4, 2),
    "subclass": (Blunt(), 2, 1),
    "given noise": (Gaussian(0.3), 1, 1),
    "learned noise": (Gaussian(), 2, 2),
    "Student": (StudentT(4.0), 1, 1),
    "a function": (FunctionLikelihood(lambda outputs, y: -(outputs - y).square().sum(-1)), 1, 1),
}


def network(outputs: int = 2) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Linear(4, outputs))


def posed(name: str = "network's noise", prior: Any = None, rows: int = 20, **options: Any) -> Problem:
    torch.manual_seed(0)
    likelihood, outputs, targets = LIKELIHOODS[name]
    x = torch.randn(rows, 3, dtype=torch.float64)
    y = x[:, :targets] if targets else x[:, 0]
    options = {"standardise": False} | options
    return Problem.of(
        network(outputs).double(), (x, y), copy.deepcopy(likelihood), prior=prior or Normal(0.7), **options
    )


def assert_same(problem: Problem, blocks: list[Any] | None = None) -> None:
    blocks = [problem.data.first()] if blocks is None else blocks
    written = written_out(problem, blocks)
    assert written is not None
    theta = torch.randn(6, problem.layout.num_params, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(written(theta), by_autograd(problem, blocks)(theta))


@pytest.mark.filterwarnings("ignore::livi.inference.FitWarning")
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_gradient_written_out_is_that_of_autograd_for_every_likelihood(name):
    assert_same(posed(name))


@pytest.mark.parametrize("name", PRIORS)
def test_gradient_written_out_is_that_of_autograd_for_every_prior(name):
    assert_same(posed(prior=PRIORS[name]))


def test_gradient_written_out_is_that_of_autograd_for_classes():
    torch.manual_seed(0)
    x = torch.randn(20, 3, dtype=torch.float64)
    assert_same(Problem.of(network(3).double(), (x, torch.arange(20) % 3), Categorical()))


def test_gradient_written_out_is_that_of_autograd_in_blocks_and_in_other_units():
    problem = posed(standardise=True)
    x, y = problem.data.first()
    assert problem.layout.scaling is not None
    assert_same(problem, [(x[:7], y[:7]), (x[7:14], y[7:14]), (x[14:], y[14:])])


@pytest.mark.parametrize("kind", [nn.ELU, nn.SiLU, nn.CELU, nn.SELU, nn.ReLU, nn.LeakyReLU])
def test_activations_that_write_over_their_inputs_have_the_same_gradient(kind):
    torch.manual_seed(0)
    nets = [
        nn.Sequential(nn.Linear(3, 5), kind(inplace=inplace), nn.Linear(5, 2)).double() for inplace in (True, False)
    ]
    x, y = torch.randn(20, 3).double(), torch.randn(20, 1).double()
    found = []
    for net in nets:
        problem = Problem.of(net, (x, y), HeteroscedasticGaussian(), standardise=False)
        theta = torch.linspace(-1.0, 1.0, 3 * problem.layout.num_params).double().reshape(3, -1)
        both = written_out(problem, [problem.data.first()])
        assert both is not None
        found.append(both(theta))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
    assert torch.equal(x, problem.data.first()[0])


def test_a_prior_that_does_not_depend_on_the_weights_has_no_gradient():
    problem = posed(prior=FunctionPrior(lambda theta: torch.zeros(len(theta), dtype=theta.dtype)))
    value, gradient = problem.prior.differentiated()(torch.ones(2, problem.layout.num_params).double())
    assert value.tolist() == [0.0, 0.0]
    assert not gradient.any()


def test_gradient_written_out_leaves_out_what_is_fixed():
    assert_same(posed(exclude=("0.*", "4.bias")))
    assert_same(posed(exclude="2.*"))


def test_gradient_written_out_follows_a_noise_that_is_learned_on_the_way():
    problem = posed("network's noise, learned")
    written = written_out(problem, [problem.data.first()])
    assert written is not None
    theta = torch.randn(3, problem.layout.num_params, dtype=torch.float64)
    before = written(theta)[0]
    problem.likelihood.log_level.data += 1.0
    assert (written(theta)[0] - before).abs().min() > 1.0
    assert_same(problem)


def test_networks_of_other_layers_and_weighted_examples_are_left_to_autograd():
    torch.manual_seed(0)
    x, y = torch.randn(20, 3), torch.randn(20, 1)
    normed = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1))
    problem = Problem.of(normed, (x, y), Gaussian(0.3))
    assert written_out(problem, [problem.data.first()]) is None
    weighted = Problem.of(
        network(1), ((x, torch.rand(20)), y), Weighted(Gaussian(0.3)), forward=pass_weights, standardise=False
    )
    assert written_out(weighted, [weighted.data.first()]) is None
    value, gradient = differentiated_joint(weighted, 2)(torch.randn(2, weighted.layout.num_params))
    assert value.shape == (2,)
    assert gradient.shape == (2, weighted.layout.num_params)


def test_chains_are_the_same_with_either_gradient():
    problem = posed()
    blocks = [problem.data.first()]
    start = 0.3 * torch.randn(4, problem.layout.num_params, dtype=torch.float64)
    runs = [
        run_chains(target, start, steps=12, warm_up=4, draws=4, rng=torch.Generator().manual_seed(0))
        for target in (written_out(problem, blocks), by_autograd(problem, blocks))
    ]
    torch.testing.assert_close(runs[0].draws, runs[1].draws)
    torch.testing.assert_close(runs[0].log_density, runs[1].log_density)


def test_gradient_is_not_overwritten_by_the_next_one():
    problem = posed()
    written = written_out(problem, [problem.data.first()])
    theta = torch.randn(3, problem.layout.num_params, dtype=torch.float64)
    value, gradient = written(theta)
    kept = value.clone(), gradient.clone()
    written(2.0 * theta)
    torch.testing.assert_close((value, gradient), kept)
