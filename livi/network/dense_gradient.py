"""As `dense.py`, with a backward pass written out: outputs at many weight vectors, and gradients in the weights.

`livi.network.dense` with the backward pass written out as well. For networks as small as those of tables, autograd's
own work takes about as long as the arithmetic (docs/benchmarks/evaluation.md).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from livi.network.dense import Layer, inside, untouched
from livi.network.elementwise import pulled_back
from livi.network.parameters import Layout
from livi.network.scaling import scaled

COLUMNS = 8  # a product of a multiple of so many is twice as quick as one of a few less


class _LayerSlots(NamedTuple):
    """A layer, and the numbers of the slots of theta that are its parameters; None for a fixed or missing one."""

    layer: nn.Module
    weight: int | None
    bias: int | None


class Recorded(NamedTuple):
    """What the backward pass needs from the forward pass."""

    weights: list[Tensor | None]  # of each layer, (S, out, in)
    values: list[Tensor]  # that enter each layer, and the outputs: (S, width, B)


class DenseGradient:
    """Layers of `dense_layers` on fixed inputs: outputs at many weight vectors, and their gradients."""

    def __init__(self, layout: Layout, layers: list[Layer], inputs: Tensor) -> None:  # as of `dense_layers`
        self.shapes = [slot.shape for slot in layout.slots]
        self.sizes = [slot.numel for slot in layout.slots]
        numbers = {name: i for i, slot in enumerate(layout.slots) for name in slot.names}
        self.places = [
            _LayerSlots(layer, numbers.get(inside(name, "weight")), numbers.get(inside(name, "bias")))
            if isinstance(layer, nn.Linear)
            else _LayerSlots(layer, None, None)
            for name, layer in layers
        ]
        moved = [i for i, place in enumerate(self.places) if place.weight is not None or place.bias is not None]
        self.lowest = min(moved, default=len(self.places))  # below which nothing depends on theta
        values: Tensor = scaled(layout.scaling, (inputs,))[0]  # (B, p)
        for layer, _, _ in self.places[: self.lowest]:
            values = untouched(layer, values).detach()
        missing = -values.shape[1] % COLUMNS
        self.filled = nn.functional.pad(values, (0, missing)) if missing else values  # (B, width and more)
        self.entering = self.filled[:, : values.shape[1]].t()  # the lowest of those layers, (width, B)

    def outputs(self, theta: Tensor) -> tuple[Tensor, Recorded]:  # (S, m) -> (S, B, out)
        """The outputs, and what `gradient` needs from this pass."""
        rows = len(theta)
        split = theta.split(self.sizes, 1)
        parts = [part.reshape(rows, *shape) for part, shape in zip(split, self.shapes, strict=True)]
        found = self.entering.expand(rows, *self.entering.shape)
        values, weights = [found], list[Tensor | None]()
        for layer, weight, bias in self.places[self.lowest :]:
            own = None
            if isinstance(layer, nn.Linear):
                own = layer.weight.detach().expand(rows, *layer.weight.shape) if weight is None else parts[weight]
                shift = None if layer.bias is None else layer.bias.detach() if bias is None else parts[bias]
                found = torch.bmm(own, found) if shift is None else torch.baddbmm(shift[..., None], own, found)
            else:
                found = untouched(layer, found)
            values.append(found)
            weights.append(own)
        return found.transpose(1, 2), Recorded(weights, values)

    def gradient(self, recorded: Recorded, cotangent: Tensor) -> Tensor:  # (S, B, out) -> (S, m)
        """The gradient, in each weight vector, of the sum of its outputs times the cotangent."""
        found: list[Tensor | None] = [None] * len(self.sizes)
        flow, spare = cotangent.transpose(1, 2), False  # (S, width, B); whether it may be written over
        steps = zip(self.places[self.lowest :], recorded.weights, recorded.values, strict=False)
        for i, ((layer, weight, bias), own, before) in reversed(list(enumerate(steps))):
            if own is None:
                flow = pulled_back(layer, flow if spare else flow.clone(), before, recorded.values[i + 1])
                spare = True
                continue
            if weight is not None:
                entered = before.transpose(1, 2) if i else self.filled.expand(len(flow), *self.filled.shape)
                products = torch.bmm(flow, entered)[..., : before.shape[1]]
                found[weight] = _added(found[weight], products.flatten(1))
            if bias is not None:
                found[bias] = _added(found[bias], flow.sum(-1))
            if i:
                flow, spare = torch.bmm(own.transpose(1, 2), flow), True
        each = zip(found, self.sizes, strict=True)
        return torch.cat([cotangent.new_zeros(len(flow), size) if part is None else part for part, size in each], 1)


def _added(first: Tensor | None, second: Tensor) -> Tensor:
    """The sum of gradients of a parameter that is used in several layers."""
    return second if first is None else first + second
