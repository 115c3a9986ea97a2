"""Matrix multiplication networks (Shi, Sun and Zhu, 2018): many outputs from few weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Self, Unpack

import torch
from torch import Tensor, nn

from livi import checks
from livi.family.generators.generator import Extras, Generator
from livi.family.generators.sizing import Shape, extra_weights, latent_side, square_enough, widest
from livi.network import Layout


class MatrixLayer(nn.Module):
    """Y = (W_l X + B_l) W_r + B_r for X: (S, p, q), Y: (S, p', q').

    p' p + p' q + q q' + p' q' weights make p' q' outputs, where a dense layer would take p q p' q'. Without its bias
    B_r they are p' q' fewer, for a last layer whose output an offset is added to anyway.
    """

    def __init__(self, inputs: Shape, outputs: Shape, *, bias: bool = True) -> None:
        super().__init__()
        (p, q), (p_out, q_out) = inputs, outputs
        self.left = nn.Parameter(torch.randn(p_out, p) * p**-0.5)
        self.left_bias = nn.Parameter(torch.zeros(p_out, q))
        self.right = nn.Parameter(torch.randn(q, q_out) * q**-0.5)
        self.right_bias = nn.Parameter(torch.zeros(p_out, q_out)) if bias else None

    @staticmethod
    def count(inputs: Shape, outputs: Shape, *, bias: bool = True) -> int:
        (p, q), (p_out, q_out) = inputs, outputs
        return p_out * p + p_out * q + q * q_out + p_out * q_out * bias

    def forward(self, x: Tensor) -> Tensor:
        y = (self.left @ x + self.left_bias) @ self.right
        return y if self.right_bias is None else y + self.right_bias

    def rescale(self, factor: float) -> None:
        self.right.mul_(factor)
        if self.right_bias is not None:
            self.right_bias.mul_(factor)

    def shift(self, delta: Tensor) -> None:
        """Add delta to the first entries of the flattened output."""
        assert self.right_bias is not None, "an offset takes every shift"
        self.right_bias.view(-1)[: delta.numel()].add_(delta)


class MatrixStack(nn.Sequential):
    """Matrix layers with an activation between, from one matrix shape to the next."""

    def __init__(self, shapes: Sequence[Shape], activation: Callable[[], nn.Module], *, last_bias: bool = True) -> None:
        layers: list[nn.Module] = []
        for index, (inputs, outputs) in enumerate(pairwise(shapes), start=2):
            layers += [activation(), MatrixLayer(inputs, outputs, bias=last_bias or index < len(shapes))]
        super().__init__(*layers[1:])
        self.shapes = tuple(shapes)

    @staticmethod
    def count(shapes: Sequence[Shape], *, last_bias: bool = True) -> int:
        rows, columns = shapes[-1]
        weights = sum(MatrixLayer.count(inputs, outputs) for inputs, outputs in pairwise(shapes))
        return weights - (0 if last_bias else rows * columns)

    @property
    def last(self) -> MatrixLayer:
        layer = self[-1]
        assert isinstance(layer, MatrixLayer)
        return layer


class MMNN(Generator):
    """A matrix latent scaled up through matrix layers: the paper's MNIST generator.

    Args:
        last_bias: False leaves out the last layer's bias, num_params weights whose place an offset takes.

    >>> generator = MMNN((65, 65), 44_426, hidden=((250, 250), (250, 250)), output=(350, 127))
    >>> sum(p.numel() for p in generator.parameters())
    612450
    """

    def __init__(
        self,
        latent: Shape,
        num_params: int,
        *,
        hidden: Sequence[Shape],
        output: Shape | None = None,
        activation: Callable[[], nn.Module] = nn.ELU,
        last_bias: bool = True,
        **extras: Unpack[Extras],
    ) -> None:
        if not last_bias and not extras.get("offset", False):
            raise ValueError("last_bias: expected True without an offset, which takes its place, got False.")
        output = square_enough(num_params) if output is None else output
        for side in (*latent, *output, *(side for shape in hidden for side in shape)):
            checks.positive_int("each matrix side", side)
        if output[0] * output[1] < num_params:
            raise ValueError(f"output: expected at least {num_params} entries, got {output[0]} x {output[1]}.")
        super().__init__(latent[0] * latent[1], num_params, **extras)
        self.latent = latent
        self.stack = MatrixStack([latent, *hidden, output], activation, last_bias=last_bias)

    @classmethod
    def for_layout(
        cls,
        layout: Layout,
        *,
        budget: float = 2.0,
        latent_dim: int | None = None,
        activation: Callable[[], nn.Module] = nn.ELU,
        last_bias: bool = True,
        most: int | None = None,
        **extras: Unpack[Extras],
    ) -> Self:
        """One hidden square matrix, as large as `budget` times the network's weights allows, and at most `most`."""
        m = layout.num_params
        side, output = latent_side(m, latent_dim), square_enough(m)
        added = extra_weights(side * side, m, extras)

        def count(h: int) -> int:
            return MatrixStack.count([(side, side), (h, h), output], last_bias=last_bias) + added

        width = widest(count, budget * m, "hidden row")
        hidden = ((width, width) if most is None else (min(width, most), min(width, most)),)
        generator = cls(
            (side, side), m, hidden=hidden, output=output, activation=activation, last_bias=last_bias, **extras
        )
        return generator.to(layout.device, layout.dtype)

    def branch(self, z: Tensor) -> Tensor:
        out: Tensor = self.stack(z.unflatten(1, self.latent))
        return out.flatten(1)

    def _rescale_branch(self, factor: float) -> None:
        self.stack.last.rescale(factor)

    def _shift_branch(self, delta: Tensor) -> None:
        self.stack.last.shift(delta)
