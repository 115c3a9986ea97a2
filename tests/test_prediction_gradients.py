"""Gradients of predictions with respect to inputs: as for adversarial examples, saliency and Bayesian optimisation."""

import pickle

import pytest
import torch
from support.samplers import sampler_for
from torch import nn
from torch.func import grad

from livi import (
    MLP,
    Bernoulli,
    Categorical,
    FunctionLikelihood,
    Gaussian,
    HeteroscedasticGaussian,
    ImplicitPosterior,
    Layout,
    LogNormal,
    Poisson,
    Posterior,
    StudentT,
)


def dense(outputs):
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs))


def normalised(outputs):
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, outputs))


class Recurrent(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.layer, self.last = nn.GRU(1, 5, batch_first=True), nn.Linear(5, outputs)

    def forward(self, x):
        return self.last(self.layer(x[..., None])[1][-1])


def laplace(outputs, targets):
    return -(outputs[..., 0] - targets).abs()


ASKED = {
    "mean": lambda answer: answer.mean.square().sum(),
    "total std": lambda answer: answer.total_std.square().sum(),
    "quantiles": lambda answer: answer.quantile([0.03, 0.6, 0.9]).square().sum(),
    "entropy": lambda answer: answer.entropy.sum(),
    "mutual information": lambda answer: answer.mutual_information.sum(),
    "log probability": lambda answer: answer.log_prob(torch.ones(3).long()).sum(),
    "log density": lambda answer: answer.log_prob(torch.full((3,), 0.7)).sum(),
}
NUMBERS, CLASSES = ("mean", "total std", "log density"), ("entropy", "mutual information", "log probability")
CASES = {
    "Gaussian": (dense(1), Gaussian(0.3), (*NUMBERS, "quantiles")),
    "noise that varies": (dense(2), HeteroscedasticGaussian(), (*NUMBERS, "quantiles")),
    "LogNormal": (dense(1), LogNormal(0.3), (*NUMBERS, "quantiles")),
    "StudentT": (dense(1), StudentT(0.3, 4.0), NUMBERS),
    "Poisson": (dense(1), Poisson(), ("mean", "total std", "log probability")),
    "Categorical": (dense(3), Categorical(), CLASSES),
    "Bernoulli": (dense(1), Bernoulli(), CLASSES),
    "own likelihood": (dense(1), FunctionLikelihood(laplace), ("mean", "log density")),
    "BatchNorm": (normalised(1), Gaussian(0.3), NUMBERS),
    "GRU": (Recurrent(1), Gaussian(0.3), NUMBERS),
}


@pytest.fixture
def generated():
    """A posterior whose networks a generator draws."""
    layout = Layout(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)))
    return Posterior(ImplicitPosterior(layout, MLP(3, layout.num_params, hidden=(5,))), Gaussian(0.3))


def posterior_of(net, likelihood):
    sampler = sampler_for(net.double(), num_samples=5)
    return Posterior(sampler, likelihood.double())


def inputs():
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.mark.parametrize(("name", "what"), [(name, what) for name, case in CASES.items() for what in case[2]])
def test_the_gradient_of_an_answer_is_that_of_finite_differences(name, what):
    net, likelihood, _ = CASES[name]
    posterior, asked = posterior_of(net, likelihood), ASKED[what]

    def answer(x):
        return asked(posterior.predict(x, num_samples=5))

    x = inputs().requires_grad_()
    assert torch.autograd.gradcheck(answer, (x,), eps=1e-6, atol=1e-6)
    (gradient,) = torch.autograd.grad(answer(x), x)
    torch.testing.assert_close(grad(answer)(inputs()), gradient)
    torch.testing.assert_close(answer(x).detach(), answer(inputs()), rtol=1e-13, atol=0.0)


def test_gradients_reach_quantiles_where_networks_disagree():
    """By far more than their noise: Newton's method gives way to bisection, which is right to 1e-7 of the spread."""
    posterior = posterior_of(dense(1), Gaussian(0.01))
    x = inputs().requires_grad_()

    def median(x):
        return posterior.predict(x, num_samples=5).quantile(0.41)

    assert torch.autograd.gradcheck(median, (x,), eps=1e-4, atol=2e-3)


def test_gradients_do_not_depend_on_the_memory_limit():
    posterior = posterior_of(dense(1), Gaussian(0.3))
    found = []
    for limit in (None, 500):
        x = inputs().requires_grad_()
        found += torch.autograd.grad(posterior.predict(x, num_samples=5, memory_limit=limit).total_std.sum(), x)
    torch.testing.assert_close(*found)


def test_the_centre_has_gradients_too_and_only_for_inputs(generated):
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    generated.predict(x, deterministic=True).mean.sum().backward()
    assert x.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in generated.sampler.parameters())


def test_nothing_is_recorded_where_no_gradient_is_asked_for():
    posterior = posterior_of(dense(1), Gaussian(0.3))
    assert not posterior.predict(inputs(), num_samples=5).mean.requires_grad
    with torch.no_grad():
        assert not posterior.predict(inputs().requires_grad_(), num_samples=5).mean.requires_grad


def test_networks_that_answered_in_inference_mode_give_gradients_afterwards(generated):
    x = torch.zeros(1, 2, requires_grad=True)
    with torch.inference_mode():
        before = generated.predict(x, num_samples=7).mean
    after = generated.predict(x, num_samples=7).mean
    (gradient,) = torch.autograd.grad(after.sum(), x)
    assert gradient.abs().sum() > 0
    assert torch.equal(before, after)


def test_networks_drawn_inside_a_transform_are_kept_as_they_are(generated):
    grad(lambda x: generated.predict(x, num_samples=9).mean.sum())(torch.zeros(1, 2))
    kept = generated.functions(9).theta, generated.frozen(9)
    assert pickle.loads(pickle.dumps(kept))[1].sampler.theta.shape[0] == 9
