"""Batches that a fit took through `unpack` are predicted and diagnosed through it too."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import livi

BRIEF = livi.Recipe(steps=3, map_steps=3, map_restarts=1, num_samples=2, num_entropy_samples=1)
X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
ROWS = [{"numbers": row, "name": "a", "value": row[0]} for row in X]
LOADER = DataLoader(ROWS, batch_size=6)


def unpack(batch):
    return batch["numbers"], batch["value"]


@pytest.fixture(scope="module", params=["sampled", "exact"])
def posterior(request):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    options = {"unpack": unpack, "last_layer": request.param, "recipe": BRIEF, "progress": False}
    return livi.fit(net, LOADER, livi.Gaussian(), **options)


def test_a_loader_of_the_fit_is_predicted_through_its_unpack(posterior):
    assert torch.equal(posterior.predict(LOADER, unpack=unpack).mean, posterior.predict(iter([X[:6], X[6:]])).mean)


def test_an_unpack_for_predictions_needs_no_targets(posterior):
    found = posterior.predict(LOADER, unpack=lambda batch: (batch["numbers"], None))
    assert torch.equal(found.mean, posterior.predict(iter([X[:6], X[6:]])).mean)


def test_a_loader_of_the_fit_is_diagnosed_through_its_unpack(posterior):
    one, other = (torch.Generator().manual_seed(0) for _ in range(2))
    found = posterior.diagnose(LOADER, unpack=unpack, num_samples=8, rng=one)
    assert str(found) == str(posterior.diagnose(X, X[:, 0], num_samples=8, rng=other))


def test_batches_without_unpack_are_refused_with_it_as_the_remedy(posterior):
    with pytest.raises(TypeError, match=r"'name': a list of 6 str.*: pass a tensor, or of batches `unpack=`"):
        posterior.predict(LOADER)


def test_unpack_is_refused_where_there_are_no_batches(posterior):
    with pytest.raises(ValueError, match="unpack: expected only with batches"):
        posterior.predict(X, unpack=unpack)
    with pytest.raises(ValueError, match="unpack: expected only with batches"):
        posterior.diagnose(X, X[:, 0], unpack=unpack)
