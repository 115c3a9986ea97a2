"""MC dropout: ridge regression where it is known to be one, and masks that are the network's own dropout."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from livi.inference import Recipe
from livi.model.likelihoods import Gaussian
from livi.model.priors import Normal
from livi.network import Layout
from livi.rivals import DropoutWeights, fit_mc_dropout

LONG = Recipe(steps=400, map_steps=100, map_restarts=1, num_samples=32, affine_rate=3e-2)


def test_dropout_of_inputs_is_ridge_regression():
    """E |y - X (z w) / (1 - p)|^2 = |y - X w|^2 + p / (1 - p) sum_j w_j^2 |x_j|^2 (Wager et al. 2013)."""
    p, obs_std = 0.3, 0.5
    design = torch.randn(50, 3) + 0.5 * torch.randn(50, 1)
    targets = design @ torch.tensor([1.0, -1.0, 0.5]) + obs_std * torch.randn(50)
    net = nn.Sequential(nn.Dropout(p), nn.Linear(3, 1, bias=False))
    posterior = fit_mc_dropout(
        net, (design, targets), Gaussian(obs_std), prior=Normal(1.0), recipe=LONG, progress=False
    )
    gram = design.T @ design / obs_std**2
    ridge = gram + p / (1 - p) * gram.diagonal().diag() + torch.eye(3) / (1 - p)
    exact = torch.linalg.solve(ridge, design.T @ targets / obs_std**2)
    torch.testing.assert_close(posterior.sampler.centre(), exact, rtol=0, atol=0.02)
    epistemic = (p / (1 - p) * (design * exact).square().sum(1)).sqrt()
    prediction = posterior.predict(design, num_samples=5_000)
    torch.testing.assert_close(prediction.epistemic_std, epistemic, rtol=0.1, atol=0.01)


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Dropout(0.4), nn.ReLU(), nn.Linear(6, 2)),
        nn.Sequential(nn.Unflatten(1, (3, 1, 1)), nn.Dropout2d(0.4), nn.Conv2d(3, 5, 1), nn.ReLU(), nn.Flatten()),
    ],
    ids=["features", "channels"],
)
def test_masked_weights_give_what_dropout_gives(net, rng):
    """For one example, whose mask is all there is, over many draws: the same mean and variance."""
    inputs = torch.randn(1, 3, generator=rng)
    family = DropoutWeights(Layout(net.double()))
    drawn = torch.stack([family.layout.apply(theta, inputs)[0] for theta in family.sample(4000, rng)])
    own = net.train()(inputs.expand(4000, 3)).detach()
    error = 5 * own.std(0) / 4000**0.5
    assert ((drawn.mean(0) - own.mean(0)).abs() <= 1.5 * error + 1e-9).all()
    torch.testing.assert_close(drawn.std(0), own.std(0), rtol=0.15, atol=1e-9)


def test_a_draw_is_one_network_for_all_examples(rng):
    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    family = DropoutWeights(Layout(net))
    weight = family.layout.unflatten(family.sample(200, rng))["2.weight"]
    zero = weight == 0
    assert 0.4 < float(zero.double().mean()) < 0.6
    torch.testing.assert_close(weight[~zero], (2 * net[2].weight.detach().expand_as(weight))[~zero])
    assert torch.equal(family.layout.unflatten(family.sample(2, rng))["0.weight"][1], net[0].weight)


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(F.dropout(torch.tanh(self.first(x)), 0.25, self.training))


def test_functional_dropout_is_found():
    [(slot, probability)] = DropoutWeights(Layout(Functional())).dropped
    assert (slot.name, probability) == ("last.weight", 0.25)


class FunctionalVolumes(Functional):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv3d(2, 4, 1), nn.Conv3d(4, 1, 1)

    def forward(self, x):
        return self.last(F.dropout3d(torch.relu(self.first(x)), 0.25, self.training))


def test_functional_dropout_of_volumes_is_found():
    [(slot, probability)] = DropoutWeights(Layout(FunctionalVolumes())).dropped
    assert (slot.name, probability) == ("last.weight", 0.25)


class Shared(nn.Module):
    """The same dropout and layer twice."""

    def __init__(self):
        super().__init__()
        self.dropout, self.layer = nn.Dropout(0.5), nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(self.dropout(torch.relu(self.layer(self.dropout(x)))))


def test_a_layer_that_is_used_twice_has_one_mask(rng):
    family = DropoutWeights(Layout(Shared()))
    weight = family.layout.unflatten(family.sample(200, rng))["layer.weight"]
    assert 0.45 < float((weight == 0).double().mean()) < 0.55


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1)), "expected nn.Dropout with p > 0 .* got none in Sequential"),
        (nn.Sequential(nn.Dropout(0.0), nn.Linear(1, 1)), "got none in Sequential"),
        (nn.Sequential(nn.Linear(1, 2), nn.Dropout(), nn.Tanh(), nn.Linear(2, 1)), "got Tanh behind it"),
        (nn.Sequential(nn.Linear(1, 1), nn.Dropout()), "got output output behind it"),
        (nn.Linear(1, 1), "got none in Linear"),
        (nn.Sequential(nn.AlphaDropout(), nn.Dropout(), nn.Linear(1, 1)), "got AlphaDropout at '0'"),
        (nn.Sequential(nn.FeatureAlphaDropout(), nn.Dropout(), nn.Linear(1, 1)), "got FeatureAlphaDropout at '0'"),
    ],
)
def test_a_network_without_usable_dropout_is_refused(net, words):
    with pytest.raises(ValueError, match=words):
        fit_mc_dropout(net.double(), (torch.randn(4, 1), torch.randn(4)), Gaussian(), progress=False)
