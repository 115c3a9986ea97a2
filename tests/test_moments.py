"""Spreads measured a few draws at a time, so that networks of many weights are not drawn all at once."""

import pytest
import torch
from torch import nn

import livi
from livi.family import moments as module
from livi.family.moments import bytes_of_moments, moments
from livi.inference.alarms import alarms
from livi.inference.final_check import Yardstick, log_predictive


@pytest.mark.parametrize("block", [1, 7 * 5, 20 * 5, 10**9])
def test_moments_do_not_depend_on_the_blocks(monkeypatch, block):
    draws = 1e3 + torch.randn(20, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kept = draws.clone()
    monkeypatch.setattr(module, "BLOCK", block)
    mean, std = moments(lambda some: draws[some], 20, 5)
    torch.testing.assert_close(mean, draws.mean(0))
    torch.testing.assert_close(std, draws.std(0))
    assert torch.equal(draws, kept)


def test_the_bytes_are_those_of_two_blocks():
    assert bytes_of_moments(10, 4) == 2 * module.PROBES * 10 * 4
    assert bytes_of_moments(10**6, 4) == 2 * 8 * 10**6 * 4
    assert bytes_of_moments(10**8, 4) == 2 * 10**8 * 4


class Watched(livi.MLP):
    """Remembers the most weight vectors made at once."""

    most = 0

    def branch(self, z):
        Watched.most = max(Watched.most, len(z))
        return super().branch(z)


@pytest.mark.parametrize("family", ["implicit", "mean field"])
def test_a_fit_does_not_draw_many_large_networks_at_once(monkeypatch, family):
    x = torch.linspace(-1, 1, 30)[:, None]
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    options = {"generator": lambda layout: Watched(3, layout.num_params, hidden=(4,), offset=True)}
    options |= {"last_layer": "sampled", "recipe": livi.Recipe(steps=3, num_samples=2, map_steps=3, map_restarts=1)}
    prepared = livi.plan(net, (x, x.sin()), livi.Gaussian(0.1), **options)
    size = prepared.layout.num_params
    monkeypatch.setattr(module, "BLOCK", 4 * size)
    Watched.most, rng = 0, torch.Generator().manual_seed(0)
    prepared.bound.family.begin_around(torch.zeros(1, size), 0.1)
    assert Watched.most == 4
    if family == "implicit":
        assert alarms(prepared.bound, -1.0, Yardstick(-1.0), 0.0, rng) == []
        assert Watched.most == 4
        return
    posterior = prepared.bound.family
    counts = []
    monkeypatch.setattr("livi.inference.alarms.ImplicitPosterior", type(None))
    monkeypatch.setattr(
        type(posterior), "sample", lambda _, count, __: counts.append(count) or torch.randn(count, size)
    )
    alarms(prepared.bound, -1.0, Yardstick(-1.0), 0.0, rng)
    assert sum(counts) >= 64
    assert max(counts) == 4


def test_large_networks_are_judged_by_fewer_draws(monkeypatch):
    x = torch.linspace(-1, 1, 30)[:, None]
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    recipe = livi.Recipe(steps=3, num_samples=4, map_steps=3, map_restarts=1)
    prepared = livi.plan(net, (x, x.sin()), livi.Gaussian(0.1), last_layer="sampled", recipe=recipe)
    drawn = []
    whole = type(prepared.bound.family).sample
    monkeypatch.setattr(
        type(prepared.bound.family),
        "sample",
        lambda *args, **kwargs: drawn.append(args[1]) or whole(*args, **kwargs),
    )
    for held, expected in ((2**28, 32), (1, 8)):
        monkeypatch.setattr("livi.inference.final_check.HELD", held)
        drawn.clear()
        log_predictive(prepared.bound, prepared.data, torch.Generator().manual_seed(0))
        assert sum(drawn) == expected
