"""Schedules of fits of a classifier, or of a part of one, whose features are many and large."""

import math

import pytest
import torch
from torch import nn

import livi
from livi.inference.rules import Size, default_recipe, from_posterior
from livi.network import Layout


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


def convolved(width=8):
    return nn.Sequential(nn.Conv2d(1, width, 3), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(9 * width, 10))


def dense(_=8):
    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))


def rates_of(net, likelihood, **options):
    x = torch.rand(40, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    y = torch.arange(40) % 10
    recipe = livi.plan(net, (x, y), likelihood, last_layer="sampled", standardise=False, **options).recipe
    return recipe.affine_rate, recipe.nonlinear_rate, recipe.hyper_rate


def test_a_trained_classifier_of_convolutions_up_to_5000_weights_is_fitted_at_a_fifth_of_the_rates():
    full = rates_of(dense(), livi.Categorical(), start="net")
    assert rates_of(convolved(), livi.Categorical(), start="net") == pytest.approx([0.2 * rate for rate in full])
    assert rates_of(convolved(), livi.Categorical()) == pytest.approx(full)
    # Smaller and larger ones have the rates of their size, and a part of one those of parts.
    assert rates_of(convolved(2), livi.Categorical(), start="net") == pytest.approx((5e-3, 2e-3, 1e-2))
    assert rates_of(convolved(60), livi.Categorical(), start="net") == pytest.approx((3e-3, 3e-3, 2e-3))
    part = rates_of(convolved(), livi.Categorical(), start="net", include="4.*")
    assert part == pytest.approx([0.1 * rate for rate in full])


@pytest.mark.parametrize(("places", "share"), [(1, 0.3), (10, 0.2)])
def test_a_fit_that_goes_on_has_no_higher_rates_than_one_from_a_trained_network(places, share):
    layout = Layout(convolved())
    size = Size(layout, 40, 1, work=40 * places * layout.num_params, classes=True)
    usual, going_on = default_recipe(size), from_posterior(default_recipe(size), size)
    assert going_on.affine_rate == pytest.approx(share * usual.affine_rate)
    assert going_on.kl_warm_up == 0.0


def test_rates_that_are_named_stay_as_they_are_where_others_are_a_fifth():
    named = livi.Recipe(affine_rate=0.5)
    affine, nonlinear, _ = rates_of(convolved(), livi.Categorical(), start="net", recipe=named)
    assert affine == 0.5
    assert nonlinear == pytest.approx(2e-4)


def test_trained_convolutions_whose_outputs_are_counts_have_the_rates_of_their_size():
    net = nn.Sequential(convolved(), nn.Linear(10, 1))
    assert rates_of(net, livi.Poisson(), start="net") == pytest.approx((3e-3, 1e-3, 3e-2))
