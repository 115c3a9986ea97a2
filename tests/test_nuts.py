"""NUTS: exact where the posterior is Gaussian, and a translation that is the same function as torch's."""

import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import livi
from livi.inference import Recipe
from livi.model.likelihoods import Bernoulli, Gaussian
from livi.model.priors import Laplace, Normal
from livi.network import Layout
from livi.rivals import NutsReport, fit_nuts

TINY = Recipe(map_steps=200, map_rate=3e-2)
SHORT = {"chains": 2, "warmup": 8, "draws": 8, "max_tree_depth": 3}
pytestmark = pytest.mark.filterwarnings("ignore::livi.inference.FitWarning")


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(8, 2, bias=False)
        self.scale = nn.Parameter(torch.tensor([1.5]))

    def forward(self, x):
        h = F.relu(self.first(x))
        h = h + self.scale * torch.tanh(self.second(h))
        return self.last(torch.cat([h, F.elu(-h)], 1))


class Own(nn.Linear):
    """A layer of the user's own, which calls a function of torch's."""


NETWORKS = {
    "own layers": lambda: nn.Sequential(Own(3, 4), nn.GELU(), Own(4, 2, bias=False)),
    "linear": lambda: nn.Linear(3, 2),
    "layers": lambda: nn.Sequential(
        nn.Linear(3, 5), nn.SiLU(), nn.LayerNorm(5), nn.Dropout(0.5), nn.Linear(5, 4), nn.GELU(), nn.Linear(4, 2)
    ),
    "residual": Residual,
    "images": lambda: nn.Sequential(
        nn.Identity(),
        nn.Conv2d(1, 3, 3, padding=1, stride=2),
        nn.LeakyReLU(0.2),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 2, 2, bias=False),
        nn.Softplus(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(2, 2),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_translated_network_is_the_same_function(name):
    jax = pytest.importorskip("jax")
    from livi.rivals.jax_network import in_double, translated

    net = NETWORKS[name]()
    inputs = torch.randn(5, 1, 13, 13) if name == "images" else torch.randn(5, 3)
    layout = Layout(net)
    with in_double(jax):
        weights = {key: jax.numpy.asarray(value.detach().numpy()) for key, value in net.named_parameters()}
        found = np.array(translated(net)(weights, jax.numpy.asarray(inputs.numpy())))
    torch.testing.assert_close(torch.tensor(found), layout.apply(layout.flatten(), inputs), rtol=1e-9, atol=1e-9)


def test_nuts_reaches_the_posterior_of_a_linear_model():
    pytest.importorskip("numpyro")
    design = torch.randn(30, 3) + torch.randn(30, 1)
    targets = design @ torch.tensor([1.0, -1.0, 0.5]) + 0.5 * torch.randn(30)
    covariance = torch.linalg.inv(torch.eye(3) + design.T @ design / 0.25)
    mean = covariance @ design.T @ targets / 0.25
    posterior = fit_nuts(
        nn.Linear(3, 1, bias=False),
        (design, targets),
        Gaussian(0.5),
        prior=Normal(1.0),
        recipe=TINY,
        warmup=300,
        draws=500,
    )
    theta, report = posterior.sampler.theta, NutsReport.of(posterior)
    assert theta.shape == (2000, 3)
    error = (covariance.diagonal() / report.effective[1]).sqrt()
    assert ((theta.mean(0) - mean).abs() < 5 * error).all()
    torch.testing.assert_close(theta.T.cov(), covariance, rtol=0, atol=0.15 * float(covariance.max()))
    assert report.rhat[1] < 1.05
    assert report.effective[1] > 200
    assert report.divergences == 0
    assert "2,000 draws of 4 NUTS chains" in str(report)
    assert posterior.plan["gradients"] > 2000


def test_a_learned_noise_is_sampled_along():
    pytest.importorskip("numpyro")
    inputs = torch.randn(150, 2)
    data = (inputs, inputs.sum(1) + 0.5 * torch.randn(150))
    posterior = fit_nuts(nn.Linear(2, 1), data, Gaussian(), recipe=TINY, chains=1, warmup=50, draws=100)
    assert float(posterior.likelihood.obs_std()) == pytest.approx(0.5, rel=0.2)


@pytest.mark.parametrize(
    ("likelihood", "targets"),
    [
        (livi.Bernoulli(), lambda x: (x[:, 0] > 0).double()),
        (livi.HeteroscedasticGaussian(), lambda x: x[:, :1]),
        (livi.Categorical(), lambda x: (x[:, 0] > 0).long()),
        (livi.Gaussian([0.5, 1.0]), lambda x: x[:, :2]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_likelihoods_are_translated(likelihood, targets):
    jax = pytest.importorskip("jax")
    from livi.rivals.jax_network import in_double
    from livi.rivals.nuts import _check_translation, _density

    inputs = torch.randn(20, 3)
    net = nn.Linear(3, 1 if isinstance(likelihood, Bernoulli) else 2)
    problem = livi.Problem.of(net, (inputs, targets(inputs)), likelihood, prior=Laplace(1.0))
    theta = torch.randn(4, problem.layout.num_params)
    with in_double(jax):
        _check_translation(jax, _density(jax, problem), problem, theta)  # which raises where they differ


def test_what_has_no_translation_and_what_is_too_large_is_refused():
    pytest.importorskip("numpyro")
    data = (torch.randn(8, 3), torch.randn(8))
    with pytest.raises(ValueError, match="expected at most 3 weights, got 4: a chain on all data would take days"):
        fit_nuts(nn.Linear(3, 1), data, Gaussian(), most_weights=3)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    with pytest.raises(TypeError, match=r"expected layers among Linear, .* got BatchNorm1d '1'"):
        fit_nuts(net, data, Gaussian(), recipe=TINY, **SHORT)
    with pytest.raises(TypeError, match="got StudentT"):
        fit_nuts(nn.Linear(3, 1), data, livi.StudentT(), recipe=TINY, **SHORT)
    with pytest.raises(TypeError, match="prior of fixed scales, got Normal with learned ones"):
        fit_nuts(nn.Linear(3, 1), data, Gaussian(), prior=Normal(1.0, learned=True), recipe=TINY, **SHORT)


def test_a_wrong_translation_is_found(monkeypatch):
    pytest.importorskip("numpyro")
    from livi.rivals import jax_network, nuts

    def doubled(module):
        forward = jax_network.translated(module)
        return lambda weights, inputs: 2 * forward(weights, inputs)

    monkeypatch.setattr(nuts, "translated", doubled)
    with pytest.raises(TypeError, match="to mean the same in jax, got log joint densities"):
        fit_nuts(nn.Linear(3, 1), (torch.randn(8, 3), torch.randn(8)), Gaussian(0.5), recipe=TINY, **SHORT)


def test_a_missing_package_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match=r"fit_nuts: expected jax, got no such package; install it: pip install "):
        fit_nuts(nn.Linear(3, 1), (torch.randn(8, 3), torch.randn(8)), Gaussian())


class Scaled(nn.Module):
    """With a tensor that is neither a parameter nor a layer's."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.register_buffer("scale", torch.tensor([2.0, 0.5]))

    def forward(self, x):
        return self.layer(x * self.scale)


def test_a_network_may_have_buffers_of_its_own():
    pytest.importorskip("numpyro")
    x = torch.randn(20, 2)
    posterior = fit_nuts(Scaled(), (x, x[:, :1]), Gaussian(0.5), prior=Normal(1.0), recipe=TINY, **SHORT)
    assert bool(torch.isfinite(posterior.predict(x).mean).all())
