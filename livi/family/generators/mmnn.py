"""Matrix multiplication networks (Shi, Sun and Zhu, 2018): many outputs from few weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self, Unpack

from torch import Tensor, nn

from livi import checks
from livi.family.generators.generator import Extras, Generator
from livi.family.generators.matrices import MatrixStack, linearised_stacks
from livi.family.generators.sizing import Shape, align, extra_weights, latent_side, square_enough, widest
from livi.family.products import Chain, Cut, Linearised
from livi.network import Layout, as_layout


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
        aligned: bool = False,
        **extras: Unpack[Extras],
    ) -> Self:
        """One hidden square matrix, as large as `budget` times the network's weights allows.

        Args:
            most: rows of the hidden matrix.
            aligned: round the sides of hidden and output matrix to multiples of 8, which GPUs multiply faster.
        """
        m = as_layout(layout).num_params
        side, output = latent_side(m, latent_dim), square_enough(m, aligned=aligned)
        added = extra_weights(side * side, m, extras)

        def count(h: int) -> int:
            return MatrixStack.count([(side, side), (h, h), output], last_bias=last_bias) + added

        width = widest(count, budget * m, "hidden row")
        width = width if most is None else min(width, most)
        width = align(width) if aligned else width
        generator = cls(
            (side, side),
            m,
            hidden=((width, width),),
            output=output,
            activation=activation,
            last_bias=last_bias,
            **extras,
        )
        return generator.to(layout.device, layout.dtype)

    def branch(self, z: Tensor) -> Tensor:
        out: Tensor = self.stack(z.unflatten(1, self.latent))
        return out.flatten(1)

    def linearised_branch(self, z: Tensor) -> Linearised | None:
        whole = linearised_stacks([self.stack], z)
        if whole is None:
            return None
        size = math.prod(self.stack.shapes[-1])
        return Linearised(whole.value, Chain((whole.piece, Cut(size, self.num_params))))

    def is_only_a_stack(self) -> bool:
        """Whether the outputs are those of the stack: nothing is scaled or added, or changed by a subclass."""
        extras = (self.skip, self.offset, self.log_scale)
        return type(self).branch is MMNN.branch and self._is_as_written() and all(extra is None for extra in extras)

    def _rescale_branch(self, factor: float) -> None:
        self.stack.last.rescale(factor)

    def _shift_branch(self, delta: Tensor) -> None:
        self.stack.last.shift(delta)
