"""The gradient of dense networks, written out: the same as autograd's."""

from __future__ import annotations

import pytest
import torch
from test_layout_dense import INPUTS, layouts
from torch import Tensor, nn

from livi.network import Layout, Vmap, apply_many
from livi.network.dense import dense_layers
from livi.network.dense_gradient import DenseGradient
from livi.network.elementwise import _SLOPES, pulled_back

ACTIVATIONS = [*(kind() for kind in _SLOPES), nn.GELU("tanh"), nn.ELU(0.5), nn.LeakyReLU(0.2), nn.Softplus(2.0, 1.0)]


def assert_same_as_autograd(layout: Layout, x: Tensor, rows: int = 5) -> None:
    rng = torch.Generator().manual_seed(0)
    theta = 0.7 * torch.randn(rows, layout.num_params, generator=rng, dtype=x.dtype)
    layers = dense_layers(layout, (x,), {})
    assert layers is not None
    outputs, recorded = DenseGradient(layout, layers, x).outputs(theta)
    leaf = theta.clone().requires_grad_()
    expected = apply_many(layout, leaf, x, strategy=Vmap())
    torch.testing.assert_close(outputs, expected.detach())
    cotangent = torch.randn(expected.shape, generator=rng, dtype=x.dtype)
    (gradient,) = torch.autograd.grad(expected, leaf, cotangent, materialize_grads=True)
    before = cotangent.clone()
    written = DenseGradient(layout, layers, x).gradient(recorded, cotangent)
    torch.testing.assert_close(written, gradient)
    torch.testing.assert_close(cotangent, before)


@pytest.mark.parametrize("name", layouts())
def test_written_out_gradient_is_that_of_autograd(name):
    torch.manual_seed(0)
    layout = layouts()[name]
    layout.module.double()
    assert_same_as_autograd(layout, torch.randn(7, INPUTS, dtype=torch.float64))


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_written_out_gradient_knows_every_elementwise_activation(activation, last):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(INPUTS, 4), activation, nn.Linear(4, 2), *([activation] if last else []))
    assert_same_as_autograd(Layout(net.double()), torch.randn(9, INPUTS, dtype=torch.float64))


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_kernel_of_an_activation_is_its_slope(activation):
    x = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y, flow = activation(x), torch.linspace(-1.0, 2.0, 50, dtype=torch.float64)
    (expected,) = torch.autograd.grad(y, x, flow)
    torch.testing.assert_close(pulled_back(activation, flow.clone(), x.detach(), y.detach()), expected)


@pytest.mark.parametrize("hidden", [(), (3,), (4, 8, 5)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 6])
def test_written_out_gradient_holds_for_any_number_of_layers(hidden, bias, rows):
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs in zip((INPUTS, *hidden), (*hidden, 2), strict=True):
        layers += [nn.Linear(inputs, outputs, bias=bias), nn.Tanh()]
    net = nn.Sequential(*layers[:-1]).double()
    assert_same_as_autograd(Layout(net), torch.randn(6, INPUTS, dtype=torch.float64), rows)


def test_written_out_gradient_of_a_cotangent_without_memory_of_its_own():
    net = nn.Sequential(nn.Linear(INPUTS, 2), nn.ReLU())
    layout, x = Layout(net), torch.randn(4, INPUTS)
    network = DenseGradient(layout, dense_layers(layout, (x,), {}), x)
    outputs, recorded = network.outputs(torch.randn(3, layout.num_params))
    ones = torch.ones(()).expand(outputs.shape)
    written = network.gradient(recorded, ones)
    torch.testing.assert_close(written, network.gradient(recorded, ones.clone()))
