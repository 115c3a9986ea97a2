"""Families that say that their steps can be recorded: none of them reads a result back."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import livi
from livi.family.family import Estimation
from livi.network import Layout
from livi.rivals.mnf import MultiplicativeFlow


class NoResultsRead(TorchDispatchMode):
    """Refuses what would wait for a GPU: a number, or a shape that depends on numbers."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func.overloadpacket not in (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero), func
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "make",
    [
        lambda layout: livi.ImplicitPosterior(layout, livi.MLP.for_layout(layout, skip=True, offset=True)),
        MultiplicativeFlow,
    ],
)
def test_families_that_can_be_recorded_read_no_result_back(make):
    layout = Layout(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)))
    family = make(layout)
    assert family.capturable
    how = Estimation(livi.Lanczos().captured(3), 4, torch.Generator().manual_seed(0))
    with NoResultsRead():
        draw = family.draw(4, torch.Generator().manual_seed(0))
        (draw.theta.square().sum() + family.entropy(draw, how)[0].nats.sum()).backward()
    assert all(parameter.grad is not None for parameter in family.parameters())
