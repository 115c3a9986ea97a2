"""Short fits of a small network, and their draws."""

import torch
from torch import nn

import livi
from livi.inference import Recipe

QUICK = Recipe(steps=60, map_steps=60, map_restarts=2, num_samples=8, num_entropy_samples=2)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))


def data(count=24, seed=1):
    x = torch.linspace(-1, 1, count)[:, None]
    return x, torch.sin(3 * x[:, 0]) + 0.1 * torch.randn(count, generator=torch.Generator().manual_seed(seed))


def quick_fit(**options):
    options = {"recipe": QUICK, "progress": False, "last_layer": "sampled"} | options
    return livi.fit(network(), options.pop("data", data()), options.pop("likelihood", livi.Gaussian()), **options)


def draws(posterior):
    return posterior.sample(5, torch.Generator().manual_seed(9))
