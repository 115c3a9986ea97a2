"""Diagnostics of many examples: part by part, and the same as all at once."""

import pytest
import torch
from support.diagnosed_posteriors import CHEAP, Fitted, affine, gaussian, seeded
from torch import nn

import livi
from livi.family.last_layer import LinearGaussian
from livi.model.likelihoods import Categorical, Gaussian
from livi.network import Layout
from livi.posterior.diagnostics import diagnose
from livi.posterior.diagnostics.bound import log_likelihood, mean_log_likelihood
from livi.posterior.prediction import chunks
from livi.rivals import fit_ensemble


class Noting(nn.Module):
    """A network that notes how many examples it is given."""

    def __init__(self, outputs=1):
        super().__init__()
        self.first, self.last, self.sizes = nn.Linear(3, 16), nn.Linear(16, outputs), []

    def forward(self, x):
        self.sizes.append(len(x))
        return self.last(torch.cos(self.first(x)))


class Mutual(nn.Module):
    """A network whose examples look at each other."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(x - x.mean(0))


def diagnosed(module, likelihood, targets):
    layout = Layout(module)
    posterior = Fitted(affine(layout, 2).to(layout.dtype), likelihood)
    inputs = gaussian(len(targets), 3).to(layout.dtype)
    return diagnose(posterior, inputs, targets, num_samples=32, effort=CHEAP, rng=seeded(), estimators=())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_many_examples_are_evaluated_in_parts_with_the_same_result(kind, dtype, monkeypatch):
    likelihood = Gaussian(0.5) if kind == "numbers" else Categorical()
    targets = gaussian(3000).to(dtype) if kind == "numbers" else torch.arange(3000) % 4
    module = Noting(1 if kind == "numbers" else 4).to(dtype)
    whole = diagnosed(module, likelihood, targets)
    assert max(module.sizes) == 3000
    module.sizes.clear()
    monkeypatch.setattr(chunks, "DEFAULT_MEMORY_LIMIT", 200_000)
    parted = diagnosed(module, likelihood, targets)
    assert 100 < max(module.sizes) < 1000
    close = 1e-9 if dtype == torch.float64 else 1e-4
    for one, other in (
        (whole.bound.bound, parted.bound.bound),
        (whole.references.prior.bound, parted.references.prior.bound),
        (whole.references.mean_field.bound, parted.references.mean_field.bound),
    ):
        assert one.value == pytest.approx(other.value, rel=close)
    if kind == "classes":
        assert parted.references.equal == pytest.approx(whole.references.equal, rel=close)
        assert parted.references.equal == pytest.approx(-3000 * torch.tensor(4.0).log().item(), rel=close)


@pytest.mark.parametrize("case", ["network", "likelihood"])
def test_examples_that_depend_on_each_other_stay_together(case, monkeypatch):
    module, x, y = Mutual() if case == "network" else Noting(2), gaussian(500, 3), gaussian(500)
    layout = Layout(module)
    posterior = Fitted(affine(layout, 2), Gaussian(0.5) if case == "network" else LinearGaussian(Gaussian(0.5)))
    theta = posterior.sampler.sample(6, seeded())
    expected = log_likelihood(posterior, theta, x, y, None).mean(1)
    monkeypatch.setattr(chunks, "DEFAULT_MEMORY_LIMIT", 1000)
    torch.testing.assert_close(mean_log_likelihood(posterior, theta, x, y, None), expected)


def test_members_keep_their_batch_norm_statistics_in_parts(monkeypatch):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    x, y = gaussian(400, 3), gaussian(400)
    recipe = livi.Recipe(map_steps=5, map_restarts=2)
    posterior = fit_ensemble(net, (x, y), Gaussian(0.5), members=3, recipe=recipe)
    theta = posterior.sampler.theta[[2, 0, 1]]
    expected = log_likelihood(posterior, theta, x, y, None).mean(1)
    monkeypatch.setattr(chunks, "DEFAULT_MEMORY_LIMIT", 5000)
    torch.testing.assert_close(mean_log_likelihood(posterior, theta, x, y, None), expected)
