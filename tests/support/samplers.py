"""Samplers that return given weights, and networks and inputs for predictions."""

from dataclasses import dataclass

import torch
from torch import nn

from livi import Layout


@dataclass
class Draws:
    """A sampler that returns the first of the rows it was given."""

    layout: Layout
    theta: torch.Tensor

    def sample(self, num_samples, rng=None):  # noqa: ARG002
        return self.theta[:num_samples]


def sampler_for(module, num_samples=6, seed=0):
    layout = Layout(module)
    noise = torch.randn(num_samples, layout.num_params, generator=torch.Generator().manual_seed(seed))
    return Draws(layout, layout.flatten() + 0.3 * noise.to(layout.device, layout.dtype))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)
    )


def x_for(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))
