"""Posteriors for tests of saving, and checks that two objects are identical."""

import struct
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import livi
from livi import ImplicitPosterior, Layout
from livi.model.likelihoods import Gaussian, Likelihood
from livi.model.priors import Prior


@dataclass
class Fitted:
    """The attributes that an object needs to be saved like a posterior."""

    sampler: object
    likelihood: Likelihood = field(default_factory=lambda: Gaussian(0.3))
    prior: Prior | None = None
    buffers: dict[str, Tensor] = field(default_factory=dict)
    calibration: object = None
    history: list[dict[str, float]] = field(default_factory=list)
    plan: dict = field(default_factory=dict)


def network(width=4):
    return nn.Sequential(nn.Linear(2, width), nn.ELU(), nn.Linear(width, 1))  # 17 weights


def affine(net=None, **options):
    layout = Layout(network() if net is None else net, **options)
    return Fitted(ImplicitPosterior(layout, livi.Affine(3, layout.num_params)))


def perturbed(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module


def draws(sampler):
    return sampler.sample(5, torch.Generator().manual_seed(7)).detach()


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def assert_identical(a, b):
    assert type(a) is type(b)
    if isinstance(a, Tensor):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    elif isinstance(a, dict):
        assert list(map(repr, a)) == list(map(repr, b))
        for x, y in zip(a.values(), b.values(), strict=True):
            assert_identical(x, y)
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_identical(x, y)
    elif isinstance(a, float):
        assert struct.pack(">d", a) == struct.pack(">d", b)
    else:
        assert a == b
