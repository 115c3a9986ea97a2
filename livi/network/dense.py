"""Fast evaluation of linear layers with elementwise activations at many weight vectors: one batched product a layer.

It replaces vmap, which serves any module: for small networks, such as those of tables, vmap and the module's own calls
take longer than the arithmetic (docs/benchmarks/evaluation.md). Examples are the last axis, which makes the products
wide.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from livi.network.elementwise import is_elementwise, without_hooks
from livi.network.entering import Entering
from livi.network.parameters import Layout
from livi.network.scaling import scaled

Layer = tuple[str, nn.Module]


def dense_layers(layout: Layout, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Layer] | None:
    """The layers by name, in order, where `apply_dense` can make this call; else None.

    It can for an nn.Sequential (perhaps of others) of nn.Linear and of activations without weights, on rows of numbers;
    and for the part of it before one of its layers.
    """
    plain = type(layout) is Layout and not kwargs and len(args) == 1 and isinstance(args[0], Tensor)
    if not plain or not _is_own_forward(layout.forward) or args[0].ndim != 2:
        return None
    if args[0].dtype != layout.dtype or args[0].device != layout.device:
        return None
    last = layout.forward.last if isinstance(layout.forward, Entering) else None
    found: list[Layer] = []
    for name, layer in _leaves("", layout.module):
        if name == last:
            break
        if not _is_linear(layer) and not is_elementwise(layer):
            return None
        found.append((name, layer))
    first = next((layer for _, layer in found if isinstance(layer, nn.Linear)), None)
    return found if first is not None and first.in_features == args[0].shape[1] else None


def apply_dense(layout: Layout, layers: list[Layer], theta: Tensor, inputs: Tensor) -> Tensor:
    """The outputs (S, B, out) of these layers at weights (S, m), for inputs (B, p)."""
    named = layout.unflatten(theta)
    weights = {name: named[slot.name] for slot in layout.slots for name in slot.names}  # (S, ...)
    values: Tensor = scaled(layout.scaling, (inputs,))[0].t()  # (p, B), then (S, width, B)
    for name, layer in layers:
        if isinstance(layer, nn.Linear):
            values = _linear(values, name, layer, weights)
        else:
            values = untouched(layer, values) if values.ndim == 2 else layer(values)  # 2: perhaps the user's tensor
    return values.expand(len(theta), *values.shape[-2:]).transpose(1, 2)


def _linear(values: Tensor, name: str, layer: nn.Linear, weights: dict[str, Tensor]) -> Tensor:
    """One linear layer at all weight vectors, which share any parameter that is not stochastic."""
    weight = weights.get(inside(name, "weight"), layer.weight.detach())
    bias = None if layer.bias is None else weights.get(inside(name, "bias"), layer.bias.detach())
    if values.ndim == 2 and bias is not None and bias.ndim > 1:
        weight = weight.expand(len(bias), *weight.shape[-2:])
    if values.ndim == 2:  # the same for all weight vectors: one product, of all their rows
        rows, shape = weight.reshape(-1, weight.shape[-1]), weight.shape[:-1]
        bias = None if bias is None else bias.expand(shape).reshape(-1, 1)
        return (rows @ values if bias is None else torch.addmm(bias, rows, values)).view(*shape, -1)
    weight = weight.expand(len(values), *weight.shape[-2:])
    return torch.bmm(weight, values) if bias is None else torch.baddbmm(bias[..., None], weight, values)


def untouched(layer: nn.Module, values: Tensor) -> Tensor:
    """The layer's outputs, computed on a copy where the layer would overwrite its inputs."""
    outputs: Tensor = layer(values.clone() if getattr(layer, "inplace", False) else values)
    return outputs


def _is_own_forward(forward: Any) -> bool:
    """Whether the module itself is called, or the part of it before a layer; not a function of the user's."""
    return forward is None or (isinstance(forward, Entering) and not forward.beside and forward.inner is None)


def _leaves(name: str, module: nn.Module) -> Iterator[Layer]:
    if type(module) is nn.Sequential and without_hooks(module):
        for part, child in module._modules.items():  # a layer that is listed twice runs twice
            if child is not None:
                yield from _leaves(inside(name, part), child)
    else:
        yield name, module


def _is_linear(layer: nn.Module) -> bool:
    """An nn.Linear with torch's own forward, and a weight that is a parameter, not made by a parametrisation."""
    own = isinstance(layer, nn.Linear) and type(layer).forward is nn.Linear.forward and without_hooks(layer)
    return own and not layer._modules and layer._parameters.get("weight") is not None  # a parametrisation is a module


def inside(name: str, part: str) -> str:
    """The dotted name of a part of a module: `part` itself where the module's name is empty."""
    return f"{name}.{part}" if name else part
