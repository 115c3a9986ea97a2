"""Targets that a likelihood has no probability for are named by their batch and row, wherever they are."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi
from livi.model.likelihoods import pass_weights

BRIEF = livi.Recipe(steps=30, map_steps=20, map_restarts=1, num_samples=2, num_entropy_samples=1)
X = torch.randn(600, 2, generator=torch.Generator().manual_seed(0))
CASES = [
    (livi.Categorical(), 3, torch.arange(600) % 3, 7, "labels 0 to 2, got 7"),
    (livi.Bernoulli(), 1, torch.zeros(600), 2.0, r"values in \[0, 1\], got 2"),
    (livi.Multilabel(), 2, torch.zeros(600, 2), -1.0, r"values in \[0, 1\], got -1"),
    (livi.Poisson(), 1, torch.ones(600), -2.0, "counts 0, 1, 2, ..., got -2"),
    (livi.NegativeBinomial(), 1, torch.ones(600), 0.5, "counts 0, 1, 2, ..., got 0.5"),
    (livi.LogNormal(), 1, torch.linspace(1, 2, 600), 0.0, "numbers above 0, got 0"),
]
each = pytest.mark.parametrize(
    ("likelihood", "outputs", "targets", "wrong", "said"), CASES, ids=[type(case[0]).__name__ for case in CASES]
)


def network(outputs):
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, outputs))


def with_one(targets, row, wrong):
    found = targets.clone()
    found[row] = wrong
    return found


@each
@pytest.mark.parametrize("row", [3, 401])
def test_a_late_batch_is_named(likelihood, outputs, targets, wrong, said, row):
    loader = DataLoader(TensorDataset(X, with_one(targets, row, wrong)), 50)
    place = rf"^batch {row // 50}: targets: expected {said} in 1 of 50 rows \(numbers {row % 50}, counted from 0\);"
    with pytest.raises(ValueError, match=place):
        livi.fit(network(outputs), loader, likelihood, recipe=BRIEF, progress=False)


@each
@pytest.mark.parametrize("batch_size", [None, 50])
def test_of_tensors_the_row_among_all_is_named_before_the_fit(likelihood, outputs, targets, wrong, said, batch_size):
    data = X, with_one(targets, 401, wrong)
    with pytest.raises(ValueError, match=rf"^targets: expected {said} in 1 of 600 rows \(numbers 401, counted"):
        livi.plan(network(outputs), data, likelihood, batch_size=batch_size)


def test_weights_of_examples_hide_no_label():
    data = (X, torch.ones(600)), with_one(torch.arange(600) % 3, 401, 7)
    weighted = livi.Weighted(livi.Categorical())
    with pytest.raises(ValueError, match=r"got 7 in 1 of 600 rows \(numbers 401"):
        livi.plan(network(3), data, weighted, forward=pass_weights, batch_size=50)


def weighted_plan(weights, **options):
    likelihood, forward = livi.Weighted(livi.Gaussian(0.1)), livi.pass_weights
    return livi.plan(network(1), ((X, weights), X[:, 0]), likelihood, forward=forward, recipe=BRIEF, **options)


@pytest.mark.parametrize("last_layer", ["sampled", "exact"])
def test_weights_that_are_no_shares_are_refused(last_layer):
    def plan(weights):
        return weighted_plan(weights, last_layer=last_layer)

    with pytest.raises(ValueError, match=r"^weights: .* at least 0, got -1 in 1 of 600 rows \(numbers 401, counted"):
        plan(with_one(torch.ones(600), 401, -1.0))
    with pytest.raises(ValueError, match=r"^weights: expected some above 0, got 600 of 0; leave Weighted\(\) out"):
        plan(torch.zeros(600))
    with pytest.raises(ValueError, match=r"^weights: expected one for each example, of shape \(N,\), got \(600, 2\)"):
        plan(torch.ones(600, 2))


@pytest.mark.parametrize("row", [3, 401])
def test_a_late_batch_of_weights_is_named(row):
    weights = with_one(torch.ones(600), row, -1.0)
    loader = DataLoader(TensorDataset(X, weights, X[:, :1]), 50)
    said = rf"^batch {row // 50}: weights: .* at least 0, got -1 in 1 of 50 rows \(numbers {row % 50}, counted"
    options = {"forward": livi.pass_weights, "recipe": BRIEF, "progress": False, "last_layer": "sampled"}
    with pytest.raises(ValueError, match=said):
        livi.fit(network(1), loader, livi.Weighted(livi.Gaussian(0.1)), **options)


@pytest.mark.parametrize("last_layer", ["sampled", "exact"])
def test_a_column_of_weights_counts_as_a_row_of_them(last_layer):
    torch.manual_seed(0)
    weights, bounds = torch.rand(600), []
    for given in (weights, weights[:, None]):
        torch.manual_seed(1)
        made = weighted_plan(given, last_layer=last_layer)
        bounds.append(made.bound(*made.data.first(), torch.Generator().manual_seed(0)).log_likelihood)
    torch.testing.assert_close(bounds[0], bounds[1])


def test_weights_of_another_shape_beside_outputs_are_named():
    with pytest.raises(ValueError, match=r"weights: expected one for each of 3 examples .* shape \(1, 3, 1\)"):
        livi.Weighted(livi.Gaussian(0.1)).log_prob((torch.zeros(1, 3, 1), torch.ones(1, 3, 1)), torch.zeros(3))


class Signs(livi.Bernoulli):
    """Of labels -1 and 1."""

    def log_prob(self, outputs, targets):
        return super().log_prob(outputs, (targets + 1.0) / 2.0)


def test_a_log_prob_of_ones_own_decides_what_a_label_is():
    signs = 2.0 * (torch.arange(600) % 2) - 1.0
    for data in ((X, signs), DataLoader(TensorDataset(X, signs), 50)):
        livi.fit(network(1), data, Signs(), recipe=BRIEF, progress=False, last_layer="sampled")
