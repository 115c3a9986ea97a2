"""The nodes of one graph are rows that a network reads together, and refuses alone."""

import pytest
import torch
from torch import nn

import livi

BRIEF = livi.Recipe(steps=3, map_steps=3, map_restarts=1, num_samples=2, num_entropy_samples=1)


class Graph(nn.Module):
    """Each node's class from its neighbours."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, features, adjacency):
        return self.out(adjacency @ torch.tanh(self.hidden(adjacency @ features)))


def nodes(count, known):
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(count, 3, generator=rng)
    adjacency = torch.eye(count) + (torch.rand(count, count, generator=rng) < 2 / count)
    labels = (features[:, 0] > 0).long()
    labels[known:] = -100
    return (features, adjacency), labels


def test_nodes_of_a_graph_are_fitted_as_rows():
    inputs, labels = nodes(30, 20)
    posterior = livi.fit(Graph(), (inputs, labels), livi.Categorical(), recipe=BRIEF, progress=False)
    assert posterior.predict(inputs).probabilities.shape == (30, 2)
    assert posterior.plan["steps_per_epoch"] == 1
    assert posterior.diagnose(inputs, labels, num_samples=8).findings


def test_edges_in_the_forward_are_of_all_nodes():
    (features, adjacency), labels = nodes(30, 30)
    net = Graph()
    options = {"forward": lambda net, x: net(x, adjacency), "recipe": BRIEF, "progress": False}
    posterior = livi.fit(net, (features, labels), livi.Categorical(), **options)
    assert posterior.predict(features).probabilities.shape == (30, 2)


def test_a_graph_of_more_nodes_than_a_batch_is_told_its_batch_size():
    data = nodes(2100, 2100)
    with pytest.raises(RuntimeError, match=r"nodes of one graph want to be one batch: pass batch_size=2100\."):
        livi.fit(Graph(), data, livi.Categorical(), recipe=BRIEF, progress=False)
    posterior = livi.fit(Graph(), data, livi.Categorical(), batch_size=2100, recipe=BRIEF, progress=False)
    assert posterior.plan["steps_per_epoch"] == 1
