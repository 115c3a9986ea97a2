"""Elementwise activations with their derivatives, and checks of whether a module is one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def is_plain(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Whether a module is of exactly one of these classes, without hooks that could change what it does."""
    return type(module) in kinds and without_hooks(module)


def without_hooks(module: nn.Module) -> bool:
    """Whether a call runs the forward of its class and nothing else."""
    return not module._forward_hooks and not module._forward_pre_hooks and "forward" not in vars(module)


def is_elementwise(module: nn.Module) -> bool:
    """Whether `with_slope` knows the activation. Others may mix their inputs, or have a state."""
    return is_plain(module, *_SLOPES)


def with_slope(activation: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """An elementwise activation and its derivative, both differentiable."""
    return _SLOPES[type(activation)](activation, x)


def pulled_back(activation: nn.Module, flow: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The gradient with respect to x of an activation y = f(x), from that with respect to y, which is overwritten.

    Computed by the kernel of torch's own backward pass, where there is one.
    """
    kernel = _KERNELS.get(type(activation))
    if kernel is None:
        return flow.mul_(with_slope(activation, x)[1])
    return kernel(activation, flow, x, y)


def _identity(_: nn.Identity, x: Tensor) -> tuple[Tensor, Tensor]:
    return x, torch.ones_like(x)


def _relu(_: nn.ReLU, x: Tensor) -> tuple[Tensor, Tensor]:
    return F.relu(x), (x > 0).to(x.dtype)


def _leaky_relu(module: nn.LeakyReLU, x: Tensor) -> tuple[Tensor, Tensor]:
    slope = torch.where(x > 0, torch.ones_like(x), module.negative_slope)
    return F.leaky_relu(x, module.negative_slope), slope


def _elu(module: nn.ELU, x: Tensor) -> tuple[Tensor, Tensor]:
    y = F.elu(x, module.alpha)
    return y, torch.where(x > 0, 1.0, y + module.alpha)


def _celu(module: nn.CELU, x: Tensor) -> tuple[Tensor, Tensor]:
    y = F.celu(x, module.alpha)
    return y, torch.where(x > 0, 1.0, y / module.alpha + 1.0)


def _selu(_: nn.SELU, x: Tensor) -> tuple[Tensor, Tensor]:
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    y = F.selu(x)
    return y, torch.where(x > 0, scale, y + scale * alpha)


def _tanh(_: nn.Tanh, x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.tanh(x)
    return y, 1.0 - y.square()


def _sigmoid(_: nn.Sigmoid, x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.sigmoid(x)
    return y, y * (1.0 - y)


def _softplus(module: nn.Softplus, x: Tensor) -> tuple[Tensor, Tensor]:
    steep = module.beta * x
    slope = torch.where(steep > module.threshold, 1.0, torch.sigmoid(steep))
    return F.softplus(x, module.beta, module.threshold), slope


def _silu(_: nn.SiLU, x: Tensor) -> tuple[Tensor, Tensor]:
    y, gate = F.silu(x), torch.sigmoid(x)
    return y, gate + y * (1.0 - gate)


def _gelu(module: nn.GELU, x: Tensor) -> tuple[Tensor, Tensor]:
    y = F.gelu(x, approximate=module.approximate)
    if module.approximate == "tanh":
        rate, cubic = math.sqrt(2.0 / math.pi), 0.044715
        bend = torch.tanh(rate * (x + cubic * x**3))
        rise = rate * (1.0 + 3.0 * cubic * x.square()) * (1.0 - bend.square())
        return y, 0.5 * (1.0 + bend + x * rise)
    density = torch.exp(-0.5 * x.square()) / math.sqrt(2.0 * math.pi)
    return y, 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))) + x * density


_SLOPES: dict[type[nn.Module], Callable[[Any, Tensor], tuple[Tensor, Tensor]]] = {
    nn.Identity: _identity,
    nn.ReLU: _relu,
    nn.LeakyReLU: _leaky_relu,
    nn.ELU: _elu,
    nn.CELU: _celu,
    nn.SELU: _selu,
    nn.Tanh: _tanh,
    nn.Sigmoid: _sigmoid,
    nn.Softplus: _softplus,
    nn.SiLU: _silu,
    nn.GELU: _gelu,
}

_aten = torch.ops.aten
_KERNELS: dict[type[nn.Module], Callable[[Any, Tensor, Tensor, Tensor], Tensor]] = {
    nn.Identity: lambda _, flow, __, ___: flow,
    nn.ReLU: lambda _, flow, __, y: _aten.threshold_backward.grad_input(flow, y, 0, grad_input=flow),
    nn.Tanh: lambda _, flow, __, y: _aten.tanh_backward.grad_input(flow, y, grad_input=flow),
    nn.Sigmoid: lambda _, flow, __, y: _aten.sigmoid_backward.grad_input(flow, y, grad_input=flow),
    nn.SiLU: lambda _, flow, x, __: _aten.silu_backward.grad_input(flow, x, grad_input=flow),
    nn.GELU: lambda own, flow, x, _: _aten.gelu_backward.grad_input(
        flow, x, approximate=own.approximate, grad_input=flow
    ),
}
