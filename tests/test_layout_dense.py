"""Networks of linear layers, written out as batched products: the same as the module itself, one vector at a time."""

from __future__ import annotations

import pytest
import torch
from support.networks import assert_unchanged, snapshot
from torch import Tensor, nn

from livi.network import InputScaling, Layout, Loop, Vmap, apply_many
from livi.network.dense import dense_layers
from livi.network.entering import Entering

INPUTS = 3


def deep() -> nn.Sequential:
    inner = nn.Sequential(nn.Linear(4, 5, bias=False), nn.GELU())
    return nn.Sequential(nn.Linear(INPUTS, 4), nn.Tanh(), inner, nn.Identity(), nn.Linear(5, 2), nn.Softplus())


def twice() -> nn.Sequential:
    shared = nn.Linear(INPUTS, INPUTS)
    return nn.Sequential(shared, nn.ReLU(), shared)


def layouts() -> dict[str, Layout]:
    net = deep()
    scaling = InputScaling([1.0, 2.0, 3.0], [0.5, 1.0, 2.0])
    return {
        "all": Layout(net),
        "scaled": Layout(net, scaling=scaling),
        "first layer fixed": Layout(net, exclude="0.*"),
        "last layer alone": Layout(net, include="4.*"),
        "first bias alone": Layout(net, include="0.bias"),
        "biases": Layout(net, include="*.bias"),
        "middle alone": Layout(net, include="2.*"),
        "tied": Layout(twice()),
        "one layer": Layout(nn.Sequential(nn.Linear(INPUTS, 1))),
        "nn.Linear": Layout(nn.Linear(INPUTS, 2)),
        "without a bias": Layout(nn.Linear(INPUTS, 2, bias=False)),
        "what enters the last layer": Layout(net, include=("0.*", "2.*"), forward=Entering("4")),
    }


def both(layout: Layout, x: Tensor, **options: int) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs, gradients and those of the inputs: written out, and one weight vector after the other."""
    found = []
    for strategy in (Vmap(**options), Loop()):
        theta = 0.7 * torch.randn(5, layout.num_params, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
        leaves = theta.requires_grad_(), x.clone().requires_grad_()
        outputs = apply_many(layout, *leaves, strategy=strategy)
        found.append([outputs, *torch.autograd.grad(outputs.square().sum(), leaves)])
    return found[0], found[1]


@pytest.mark.parametrize("name", layouts())
def test_written_out_products_are_the_module_at_every_weight_vector(name):
    torch.manual_seed(0)
    layout = layouts()[name]
    layout.module.double()
    before = snapshot(layout.module)
    x = torch.randn(7, INPUTS, dtype=torch.float64)
    assert dense_layers(layout, (x,), {}) is not None
    written, looped = both(layout, x)
    torch.testing.assert_close(written, looped)
    assert_unchanged(layout.module, before)


def test_written_out_products_in_chunks_are_the_same():
    layout = layouts()["all"]
    written, looped = both(layout, torch.randn(7, INPUTS), chunk_size=2)
    torch.testing.assert_close(written, looped)


class Doubling(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * super().forward(x)


class Reversed(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return self[1](self[0](x.flip(1)))


def hooked() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(INPUTS, 2), nn.ReLU())
    net[0].register_forward_hook(lambda _, __, output: output + 1.0)
    return net


def replaced() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(INPUTS, 2))
    net[0].forward = lambda x: x[:, :2]  # type: ignore[method-assign]
    return net


def parametrised() -> nn.Sequential:
    layer = nn.Linear(INPUTS, 2)
    nn.utils.parametrize.register_parametrization(layer, "weight", nn.Softplus())
    return nn.Sequential(layer, nn.ReLU())


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Sequential(Doubling(INPUTS, 2)),
        lambda: Reversed(nn.Linear(INPUTS, 2), nn.ReLU()),
        hooked,
        replaced,
        parametrised,
        lambda: nn.Sequential(nn.Linear(INPUTS, 2), nn.Softmax(-1)),
        lambda: nn.Sequential(nn.Linear(INPUTS, 2), nn.PReLU()),
        lambda: nn.Sequential(nn.Linear(INPUTS, 2), nn.BatchNorm1d(2)),
    ],
    ids=["subclass", "own order", "hook", "own forward", "parametrised", "softmax", "PReLU", "BatchNorm"],
)
def test_whatever_else_a_network_does_is_left_to_it(build):
    layout, x = Layout(build()), torch.randn(4, INPUTS)
    assert dense_layers(layout, (x,), {}) is None
    theta = torch.randn(3, layout.num_params)
    torch.testing.assert_close(
        apply_many(layout, theta, x, strategy=Vmap()), apply_many(layout, theta, x, strategy=Loop())
    )


@pytest.mark.parametrize("shape", [(INPUTS,), (2, 4, INPUTS)])
def test_inputs_that_are_not_rows_are_left_to_the_module(shape):
    layout, x = Layout(deep()), torch.randn(shape)
    assert dense_layers(layout, (x,), {}) is None
    theta = torch.randn(3, layout.num_params)
    torch.testing.assert_close(
        apply_many(layout, theta, x, strategy=Vmap()), apply_many(layout, theta, x, strategy=Loop())
    )


def test_forward_of_the_users_own_is_not_passed_by():
    layout, x = Layout(deep(), forward=lambda net, x: -net(x)), torch.randn(4, INPUTS)
    assert dense_layers(layout, (x,), {}) is None
