"""Networks that keep tensors of their passes, such as attention maps: they can be fitted, and stay as they are."""

import copy
import pickle

import pytest
import torch
from torch import nn

import livi
from livi import Layout, Loop, Vmap, apply_many


class Attending(nn.Module):
    """Keeps its attention map and a penalty in a list, as many published networks do."""

    def __init__(self):
        super().__init__()
        self.attend, self.last = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 1)
        self.attention, self.calls = None, 0

    def forward(self, x):
        found, self.attention = self.attend(x, x, x, average_attn_weights=False)
        self.penalties = [self.attention.square().mean()]
        self.calls += 1
        return self.last(found.mean(1))


class Remembering(nn.Module):
    """Adds what it returned the last time."""

    def __init__(self):
        super().__init__()
        self.layer, self.before = nn.Linear(3, 1), torch.zeros(1)

    def forward(self, x):
        self.before = self.before + self.layer(x).mean(0)
        return self.layer(x) + self.before


def short():
    return {"recipe": livi.Recipe(steps=3, map_steps=3, map_restarts=1, num_samples=2), "progress": False}


def data():
    rng = torch.Generator().manual_seed(0)
    return torch.randn(8, 5, 4, generator=rng), torch.randn(8, generator=rng)


@pytest.mark.parametrize("last_layer", ["sampled", "exact"])
def test_a_posterior_of_a_network_that_keeps_tensors_can_be_copied_and_pickled(last_layer, path):
    x, y = data()
    net = Attending()
    posterior = livi.fit(net, (x, y), livi.Gaussian(), last_layer=last_layer, **short())
    answer = posterior.predict(x, num_samples=4).mean
    posterior.save(path)
    for again in (copy.deepcopy(posterior), pickle.loads(pickle.dumps(posterior)), livi.load(path, net)):
        torch.testing.assert_close(again.predict(x, num_samples=4).mean, answer)


def test_a_network_that_holds_results_of_its_last_pass_can_be_fitted():
    x, y = data()
    net = Attending()
    net(x).sum().backward()
    held = net.attention
    posterior = livi.fit(net, (x, y), livi.Gaussian(), start="net", **short())
    assert net.attention is held
    assert torch.equal(posterior.layout.module.attention, held)
    assert not posterior.layout.module.attention.requires_grad


@pytest.mark.filterwarnings("ignore:.*weight_norm` is deprecated")
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_network_with_weight_norm_of_old_can_be_fitted(path):
    net = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 3)), nn.Tanh(), nn.Flatten(), nn.Linear(15, 1))
    x, y = data()
    net(x).sum().backward()
    posterior = livi.fit(net, (x, y), livi.Gaussian(), **short())
    assert [slot.name for slot in posterior.layout.slots][:3] == ["0.bias", "0.weight_g", "0.weight_v"]
    posterior.save(path)
    torch.testing.assert_close(livi.load(path, net).predict(x).mean, posterior.predict(x).mean)


@pytest.mark.parametrize("strategy", [Vmap(), Loop()])
def test_a_pass_leaves_attributes_as_they_were(strategy):
    net = Attending()
    layout, (x, _) = Layout(net), data()
    apply_many(layout, layout.flatten().expand(3, -1), x, strategy=strategy)
    assert net.attention is None
    assert net.calls == 0
    assert not hasattr(net, "penalties")


def test_weight_vectors_do_not_see_what_the_one_before_left():
    layout, x = Layout(Remembering()), torch.ones(2, 3)
    theta = torch.randn(4, layout.num_params)
    together = apply_many(layout, theta, x, strategy=Loop())
    for row, found in zip(theta, together, strict=True):
        torch.testing.assert_close(found, layout.apply(row, x))
    torch.testing.assert_close(apply_many(layout, theta, x, strategy=Vmap()), together)
