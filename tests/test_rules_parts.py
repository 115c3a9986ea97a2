"""Schedules of fits of a part of a network, whose features are many and large."""

import math

import pytest
import torch
from torch import nn

import livi


def trained(rows=200, classes=4):
    """A classifier with many large features, and the rows that it was trained on."""
    rng = torch.Generator().manual_seed(0)
    x = 5.0 * torch.randn(rows, 10, generator=rng)
    y = (x @ torch.randn(10, classes, generator=rng) + 10.0 * torch.randn(rows, classes, generator=rng)).argmax(1)
    net = nn.Sequential(nn.Linear(10, 1000), nn.ReLU(), nn.Linear(1000, classes))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=rng))
    optimiser = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    return net, x, y


@pytest.mark.parametrize("start", ["net", "map"])
def test_the_last_layer_of_a_classifier_never_becomes_worse_than_a_constant_on_the_way(start):
    net, x, y = trained()
    rows = []
    recipe = livi.Recipe(steps=60, map_steps=60, map_restarts=1, num_samples=8)
    options = {"start": start, "include": "2.*", "recipe": recipe, "callbacks": [rows.append], "progress": False}
    livi.fit(net, (x, y), livi.Categorical(), standardise=False, **options)
    assert min(row["log_likelihood"] for row in rows) > -len(y) * math.log(4)


@pytest.mark.parametrize(("width", "share"), [(4, 0.1), (20, 0.1), (600, 1.0)])
def test_a_part_of_a_classifier_up_to_5000_weights_is_fitted_at_a_tenth_of_the_rates(width, share):
    net = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 10))
    x, y = torch.randn(30, 3), torch.arange(30) % 10
    part = livi.plan(net, (x, y), livi.Categorical(), include="2.*").recipe
    whole = livi.plan(net[2:], (torch.randn(30, width), y), livi.Categorical()).recipe
    for name in ("affine_rate", "nonlinear_rate", "hyper_rate"):
        assert getattr(part, name) == pytest.approx(share * getattr(whole, name))
    assert part.map_rate == whole.map_rate


def test_a_part_of_a_regression_has_the_rates_of_a_whole_network():
    net = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 1))
    x, y = torch.randn(30, 3), torch.randn(30)
    part = livi.plan(net, (x, y), livi.Gaussian(), include=("2.*", "4.*")).recipe
    whole = livi.plan(net[2:], (torch.randn(30, 20), y), livi.Gaussian()).recipe
    assert (part.affine_rate, part.hyper_rate) == (whole.affine_rate, whole.hyper_rate)
