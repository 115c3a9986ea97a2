"""Counts, outliers and skewed targets, fitted: each likelihood against a Gaussian on data of its own kind."""

from __future__ import annotations

import math

import pytest
import torch
from torch import distributions, nn

import livi


def waves(x):
    return torch.sin(1.5 * x).squeeze(-1)


def counts(x):
    return distributions.Poisson((0.8 + 1.2 * waves(x)).exp())


def spread_counts(x):
    mean = (1.0 + 1.2 * waves(x)).exp()
    return distributions.NegativeBinomial(2.0, logits=(0.5 * mean).log())


def outliers(x):
    return distributions.StudentT(2.5, 2.0 * waves(x), 0.2)


def skewed(x):
    return distributions.LogNormal(0.5 + waves(x), 0.5)


def fitted(likelihood, x, y):
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)).float()
    return livi.fit(net, (x.float(), y.float()), likelihood, steps=400, seed=0, progress=False)


@pytest.mark.parametrize(
    ("likelihood", "truth", "never_negative"),
    [
        (livi.Poisson(), counts, True),
        (livi.NegativeBinomial(), spread_counts, True),
        (livi.StudentT(), outliers, False),
        (livi.LogNormal(), skewed, True),
    ],
    ids=["Poisson", "NegativeBinomial", "StudentT", "LogNormal"],
)
def test_each_finds_the_mean_and_its_intervals_better_than_a_gaussian(likelihood, truth, never_negative, path):
    torch.manual_seed(1)
    x, new = 6.0 * torch.rand(200, 1) - 3.0, 6.0 * torch.rand(3000, 1) - 3.0
    y, new_y = truth(x).sample(), truth(new).sample().float()
    posteriors = {"own": fitted(likelihood, x, y), "gaussian": fitted(livi.Gaussian(), x, y)}
    low = waves(new) < 0.0
    facts: dict[str, dict[str, float]] = {}
    for name, posterior in posteriors.items():
        prediction = posterior.predict(new.float())
        away = 2.0 * livi.metrics.pit(prediction, new_y).sub(0.5).abs()  # so that a level holds those below it
        facts[name] = {
            "error": (prediction.mean - truth(new).mean).square().mean().sqrt().item(),
            "nll": livi.metrics.nll(prediction, new_y),
            "miss": max(
                abs((away[part] < level).double().mean().item() - level) for part in (low, ~low) for level in (0.5, 0.9)
            ),
            "width": livi.metrics.interval_width(prediction),
        }
    assert facts["own"]["error"] < facts["gaussian"]["error"]
    assert facts["own"]["nll"] < facts["gaussian"]["nll"]
    assert facts["own"]["miss"] < facts["gaussian"]["miss"]
    assert facts["own"]["miss"] < 0.1
    lower, _ = posteriors["own"].predict(new.float()).interval(0.9)
    assert bool((lower >= 0).all()) or not never_negative
    assert math.isfinite(facts["own"]["width"])
    posteriors["own"].save(path)
    again = livi.load(path, nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)).float())
    before, after = (each.predict(new[:5].float()).log_prob(new_y[:5]) for each in (posteriors["own"], again))
    torch.testing.assert_close(before, after)
