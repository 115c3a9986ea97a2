"""CMMNN: a shared matrix trunk and one matrix sub-network for each group of layers (the paper's Appendix D)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self, Unpack

import torch
from torch import Tensor, nn

from livi import checks
from livi.family.generators.generator import Extras, Generator
from livi.family.generators.matrices import MatrixStack, linearised_blocks, linearised_stacks
from livi.family.generators.sizing import Shape, extra_weights, latent_side, square_enough, widest
from livi.family.products import Chain, Cut, Gate, Linearised
from livi.network import Layout, as_layout
from livi.network.elementwise import is_elementwise, with_slope
from livi.spec import Specified


@dataclass(frozen=True)
class Head(Specified):
    """Shapes of one sub-network: its slice of the trunk, hidden matrices, and output (the first `keep` entries)."""

    input: Shape
    hidden: tuple[Shape, ...]
    output: Shape
    keep: int | None = None

    @property
    def shapes(self) -> list[Shape]:
        return [self.input, *self.hidden, self.output]

    @property
    def kept(self) -> int:
        return math.prod(self.output) if self.keep is None else self.keep


class CMMNN(Generator):
    """Correlations across layers through the trunk, within a layer through its head.

    z --trunk--> one matrix, flattened and dealt out to the heads --head i--> the weights of layer group i.

    Dense connections end with the trunk, so generating m weights takes a small multiple of m, at any depth of network.
    """

    def __init__(
        self,
        latent: Shape,
        num_params: int,
        *,
        trunk: Sequence[Shape],
        heads: Sequence[Head],
        activation: Callable[[], nn.Module] = nn.ELU,
        **extras: Unpack[Extras],
    ) -> None:
        for side in (*latent, *(side for shape in trunk for side in shape)):
            checks.positive_int("each matrix side", side)
        if not trunk or not heads:
            raise ValueError(f"CMMNN: expected a trunk and heads, got {len(trunk)} trunk matrices, {len(heads)} heads.")
        dealt, produced = sum(math.prod(head.input) for head in heads), sum(head.kept for head in heads)
        if dealt > math.prod(trunk[-1]):
            raise ValueError(f"trunk: expected at least {dealt} outputs for the heads, got {trunk[-1]}.")
        if produced < num_params:
            raise ValueError(f"heads: expected at least {num_params} kept outputs in all, got {produced}.")
        super().__init__(math.prod(latent), num_params, **extras)
        self.latent, self.head_shapes = latent, tuple(heads)
        self.trunk = MatrixStack([latent, *trunk], activation)
        self.activation = activation()
        self.heads = nn.ModuleList(MatrixStack(head.shapes, activation) for head in heads)

    @classmethod
    def for_layout(
        cls,
        layout: Layout,
        *,
        budget: float = 2.0,
        latent_dim: int | None = None,
        max_heads: int = 32,
        activation: Callable[[], nn.Module] = nn.ELU,
        **extras: Unpack[Extras],
    ) -> Self:
        """One head for each layer, small neighbours sharing one, all widened together up to the budget."""
        m = as_layout(layout).num_params
        sizes = merge_small(layout.group_sizes, max_heads)
        side = latent_side(m, latent_dim)
        added = extra_weights(side * side, m, extras)

        def shapes(width: int) -> tuple[list[Shape], list[Head]]:
            heads = [_head(size, width / 1000) for size in sizes]
            dealt = sum(math.prod(head.input) for head in heads)
            middle = max(1, round(math.sqrt(math.sqrt(dealt) * side)))
            return [(middle, middle), square_enough(dealt)], heads

        def count(width: int) -> int:
            trunk, heads = shapes(width)
            stacks = [[(side, side), *trunk], *(head.shapes for head in heads)]
            return sum(MatrixStack.count(stack) for stack in stacks) + added

        trunk, heads = shapes(widest(count, budget * m, "smallest CMMNN"))
        generator = cls((side, side), m, trunk=trunk, heads=heads, activation=activation, **extras)
        return generator.to(layout.device, layout.dtype)

    def branch(self, z: Tensor) -> Tensor:
        trunk = self.activation(self.trunk(z.unflatten(1, self.latent))).flatten(1)
        outputs, start = [], 0
        for shape, head in zip(self.head_shapes, self.heads, strict=True):
            size = math.prod(shape.input)
            part: Tensor = head(trunk[:, start : start + size].unflatten(1, shape.input))
            outputs.append(part.flatten(1)[:, : shape.kept])
            start += size
        return torch.cat(outputs, 1)

    def linearised_branch(self, z: Tensor) -> Linearised | None:
        trunk = linearised_stacks([self.trunk], z)
        if trunk is None or not is_elementwise(self.activation):
            return None
        x, slope = with_slope(self.activation, trunk.value())
        dealt = Cut(slope.shape[-1], sum(math.prod(shape.input) for shape in self.head_shapes))
        kept = [shape.kept for shape in self.head_shapes]
        heads = linearised_blocks(self._stacks(), kept, dealt.push(x))
        if heads is None:
            return None
        pieces = (trunk.piece, Gate(slope), dealt, heads.piece, Cut(sum(kept), self.num_params))
        return Linearised(heads.value, Chain(pieces))

    def _rescale_branch(self, factor: float) -> None:
        for head in self._stacks():
            head.last.rescale(factor)

    def _shift_branch(self, delta: Tensor) -> None:
        kept = [shape.kept for shape in self.head_shapes]
        padded = torch.cat([delta, delta.new_zeros(sum(kept) - delta.numel())])
        for head, part in zip(self._stacks(), padded.split(kept), strict=True):
            head.last.shift(part)

    def _stacks(self) -> list[MatrixStack]:
        return [head for head in self.heads if isinstance(head, MatrixStack)]


def merge_small(sizes: Sequence[int], most: int) -> list[int]:
    """Neighbouring sizes added up, smallest pair first, until at most `most` remain, none below 1 % of the sum."""
    merged = list(sizes)
    least = sum(sizes) / 100
    while len(merged) > 1 and (len(merged) > most or min(merged) < least):
        sums = [a + b for a, b in pairwise(merged)]
        if len(merged) <= most:  # only the small ones still need company
            sums = [s if min(merged[i], merged[i + 1]) < least else sum(sizes) + s for i, s in enumerate(sums)]
        i = sums.index(min(sums))
        merged[i : i + 2] = [merged[i] + merged[i + 1]]
    return merged


def _head(size: int, width: float) -> Head:
    side = math.sqrt(size)
    narrow, wide = max(1, round(0.5 * width * side)), max(1, round(width * side))
    return Head((narrow, narrow), ((wide, wide),), square_enough(size), keep=size)
