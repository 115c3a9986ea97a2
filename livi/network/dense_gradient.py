"""Linear layers with elementwise activations between them, and the gradient of what is made of their outputs.

`livi.network.dense` with the backward pass written out as well. For networks as small as those of tables, autograd's
own work takes longer than the arithmetic (docs/benchmarks/evaluation.md).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from livi.network.dense import Layer, inside, linear
from livi.network.elementwise import pulled_back
from livi.network.parameters import Layout
from livi.network.scaling import scaled


class _Place(NamedTuple):
    """A layer, and which slots of theta its parameters are; None for what is fixed, or not there."""

    layer: nn.Module
    weight: int | None
    bias: int | None


class Recorded(NamedTuple):
    """What a backward pass needs of the forward one."""

    rows: int
    weights: list[Tensor | None]  # of each layer: (out, in) or (S, out, in)
    values: list[Tensor]  # that enter each layer, and the outputs: (width, B) or (S, width, B)


class DenseGradient:
    """Such layers on one set of inputs: outputs at many weight vectors, and products with the transposed Jacobian."""

    def __init__(self, layout: Layout, layers: list[Layer], inputs: Tensor) -> None:  # as of `dense_layers`
        self.shapes = [slot.shape for slot in layout.slots]
        self.sizes = [slot.numel for slot in layout.slots]
        numbers = {name: i for i, slot in enumerate(layout.slots) for name in slot.names}
        self.places = [
            _Place(layer, numbers.get(inside(name, "weight")), numbers.get(inside(name, "bias")))
            if isinstance(layer, nn.Linear)
            else _Place(layer, None, None)
            for name, layer in layers
        ]
        moved = [i for i, place in enumerate(self.places) if place.weight is not None or place.bias is not None]
        self.lowest = min(moved, default=len(self.places))  # below which nothing depends on theta
        self.inputs: Tensor = scaled(layout.scaling, (inputs,))[0].t()  # (p, B)

    def outputs(self, theta: Tensor) -> tuple[Tensor, Recorded]:  # (S, m) -> (S, B, out)
        """The outputs, and what `gradient` needs to know of them."""
        parts = self._parts(theta)
        values, weights = [self.inputs], list[Tensor | None]()
        for layer, weight, bias in self.places:
            if isinstance(layer, nn.Linear):
                own = layer.weight.detach() if weight is None else parts[weight]
                shift = None if layer.bias is None else layer.bias.detach() if bias is None else parts[bias]
                values.append(linear(values[-1], own, shift))
                weights.append(own)
            else:
                values.append(layer(values[-1]))
                weights.append(None)
        found = values[-1].expand(len(theta), *values[-1].shape[-2:]).transpose(1, 2)
        return found, Recorded(len(theta), weights, values)

    def gradient(self, recorded: Recorded, cotangent: Tensor) -> Tensor:  # (S, B, out) -> (S, m)
        """The gradient, in each weight vector, of the sum of its outputs times the cotangent."""
        found: list[Tensor | None] = [None] * len(self.sizes)
        flow = cotangent.transpose(1, 2)  # (S, width, B)
        for i in range(len(self.places) - 1, self.lowest - 1, -1):
            (layer, weight, bias), before, own = self.places[i], recorded.values[i], recorded.weights[i]
            if own is None:
                flow = pulled_back(layer, flow, before, recorded.values[i + 1])
                continue
            if weight is not None:
                found[weight] = _added(found[weight], _products(flow, before))
            if bias is not None:
                found[bias] = _added(found[bias], flow.sum(-1))
            if i > self.lowest:
                flow = torch.bmm(own.transpose(-1, -2).expand(len(flow), *own.shape[:-3:-1]), flow)
        rows = recorded.rows
        return torch.cat(
            [
                cotangent.new_zeros(rows, size) if part is None else part
                for part, size in zip(found, self.sizes, strict=True)
            ],
            1,
        )

    def _parts(self, theta: Tensor) -> list[Tensor]:
        """Views of theta, in the shapes of the slots."""
        rows = len(theta)
        split = theta.split(self.sizes, 1)
        return [part.view(rows, *shape) for part, shape in zip(split, self.shapes, strict=True)]


def _products(flow: Tensor, before: Tensor) -> Tensor:  # (S, out, B), (in, B) or (S, in, B) -> (S, out in)
    """What flows into a layer's outputs times what entered it, summed over examples."""
    if before.ndim == 2:
        return (flow.reshape(-1, flow.shape[-1]) @ before.t()).view(len(flow), -1)
    return torch.bmm(flow, before.transpose(1, 2)).flatten(1)


def _added(first: Tensor | None, second: Tensor) -> Tensor:
    """Of a parameter that stands in several layers, what each of them contributes."""
    return second if first is None else first + second
