"""Matrix layers and stacks of them, alone or several side by side, with their Jacobians written out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from livi.family.generators.sizing import Shape
from livi.family.products import Blocks, Chain, Gate, Linearised, Matrix, Piece, Share, in_a_row
from livi.network.elementwise import is_elementwise, is_plain, with_slope

# Multiplications in a stack's largest product up to which equal stacks share batched ones. Sixteen heads on one thread:
# 2.9 times as fast at 25^3, 1.8 at 76^3, even with one probe and slower with four past 100^3. A GPU, where a call costs
# more and a product of this size leaves most of it idle, is given far more; that number is not measured.
TOGETHER = {"cpu": 96**3, "cuda": 1024**3}


class MatrixLayer(nn.Module):
    """Y = (W_l X + B_l) W_r + B_r for X: (S, p, q), Y: (S, p', q').

    p' p + p' q + q q' + p' q' weights make p' q' outputs, where a dense layer would take p q p' q'. Without its bias
    B_r they are p' q' fewer, for a last layer whose output an offset is added to anyway.

    W_l and W_r start orthogonal, so that Y is as spread out as X in every direction: the Jacobian of a stack then has
    nearly equal singular values, and conjugate gradients solve with it in a fifth of the iterations that Gaussian
    weights take (docs/benchmarks/step.md).
    """

    def __init__(self, inputs: Shape, outputs: Shape, *, bias: bool = True) -> None:
        super().__init__()
        (p, q), (p_out, q_out) = inputs, outputs
        self.left = nn.Parameter(_orthogonal(p_out, p))
        self.left_bias = nn.Parameter(torch.zeros(p_out, q))
        self.right = nn.Parameter(_orthogonal(q_out, q).mT.contiguous())
        self.right_bias = nn.Parameter(torch.zeros(p_out, q_out)) if bias else None

    @staticmethod
    def count(inputs: Shape, outputs: Shape) -> int:
        (p, q), (p_out, q_out) = inputs, outputs
        return p_out * p + p_out * q + q * q_out + p_out * q_out

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


def _orthogonal(outputs: int, inputs: int) -> Tensor:
    """A random map that keeps variances: rows of length one, which are orthogonal if they are fewer than the columns,
    else the columns are."""
    weight = torch.empty(outputs, inputs)
    return nn.init.orthogonal_(weight, gain=max(1.0, outputs / inputs) ** 0.5)


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


def linearised_stacks(stacks: Sequence[nn.Module], x: Tensor) -> Linearised | None:  # (S, n p q) -> (S, n p' q')
    """n stacks of the same shapes and activations side by side, their parameters stacked, one product per layer.

    None where a stack holds anything but matrix layers and known elementwise activations.
    """
    if not all(_is_known(stack) for stack in stacks):
        return None
    pieces: list[Piece] = []
    *before, last = zip(*(stack.children() for stack in stacks), strict=True)
    for modules in before:
        if isinstance(modules[0], MatrixLayer):
            layer = _SideBySide(modules)
            x = layer(x)
            pieces.append(layer.piece)
        else:
            x, slope = with_slope(modules[0], x)
            pieces.append(Gate(slope))
    layer = _SideBySide(last)
    return Linearised(lambda: layer(x), Chain((*pieces, layer.piece)))


def linearised_blocks(stacks: Sequence[MatrixStack], kept: Sequence[int], x: Tensor) -> Linearised | None:
    """Stacks side by side, each with its own share of x and the first `kept` of its outputs."""
    shares = [
        Share(math.prod(stack.shapes[0]), math.prod(stack.shapes[-1]), keep)
        for stack, keep in zip(stacks, kept, strict=True)
    ]
    inputs = x.split([share.inputs for share in shares], -1)
    groups = []
    for members in _groups(stacks, TOGETHER.get(x.device.type, 0)):
        group = linearised_stacks([stacks[i] for i in members], in_a_row([inputs[i] for i in members]))
        if group is None:
            return None
        groups.append((members, group))

    def value() -> Tensor:
        outputs = dict[int, Tensor]()
        for members, group in groups:
            parts = group.value().split([shares[i].outputs for i in members], -1)
            outputs.update(zip(members, parts, strict=True))
        return in_a_row([outputs[i][..., : share.kept] for i, share in enumerate(shares)])

    return Linearised(value, Blocks(shares, [(members, group.piece) for members, group in groups]))


class _SideBySide:
    """The layers at one place of n stacks as one function, and their Jacobian."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self.layers = [layer for layer in layers if isinstance(layer, MatrixLayer)]
        self.piece = Matrix(self._stacked("left"), self._stacked("right"))

    def __call__(self, x: Tensor) -> Tensor:
        left, right = self.piece.left, self.piece.right
        x = x.unflatten(-1, (*left.shape[:-2], left.shape[-1], right.shape[-2]))
        x = (left @ x + self._stacked("left_bias")) @ right
        x = x if self.layers[0].right_bias is None else x + self._stacked("right_bias")
        return x.flatten(-left.ndim)

    def _stacked(self, name: str) -> Tensor:
        tensors = [getattr(layer, name) for layer in self.layers]
        return tensors[0] if len(tensors) == 1 else torch.stack(tensors)


def _is_known(stack: nn.Module) -> bool:
    layers = list(stack.children())
    known = all(is_plain(layer, MatrixLayer) or is_elementwise(layer) for layer in layers)
    return known and is_plain(stack, MatrixStack) and isinstance(layers[-1], MatrixLayer)


def _groups(stacks: Sequence[MatrixStack], most: int) -> list[tuple[int, ...]]:
    """Which stacks to compute together: equal ones, so small that a call costs more than its arithmetic."""
    groups: dict[object, list[int]] = {}
    for i, stack in enumerate(stacks):
        small = max(_largest_product(*pair) for pair in pairwise(stack.shapes)) <= most
        key = (stack.shapes, repr(stack)) if small else i
        groups.setdefault(key, []).append(i)
    return [tuple(members) for members in groups.values()]


def _largest_product(inputs: Shape, outputs: Shape) -> int:
    return max(outputs[0] * inputs[0] * inputs[1], outputs[0] * inputs[1] * outputs[1])
