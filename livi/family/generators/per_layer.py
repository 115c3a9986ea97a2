"""PerLayer: an independent generator for each layer (the paper's future work)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from livi import checks
from livi.family.generators.cmmnn import merge_small
from livi.family.generators.generator import Generator
from livi.family.generators.matrices import MatrixStack, linearised_blocks
from livi.family.generators.mmnn import MMNN
from livi.family.generators.sizing import latent_side, square_enough, widest
from livi.family.products import Blocks, Linearised, Share
from livi.network import Layout, as_layout


class PerLayer(Generator):
    """Generators side by side, each with its own share of z and of theta: no correlation between them.

    Its Jacobian is block diagonal, so its cost grows with the number of weights alone. Skip, offset and scale belong
    to the parts.
    """

    def __init__(self, parts: Sequence[Generator]) -> None:
        if not parts:
            raise ValueError("parts: expected at least one generator, got none.")
        super().__init__(sum(part.latent_dim for part in parts), sum(part.num_params for part in parts))
        self.parts = nn.ModuleList(parts)

    @classmethod
    def for_layout(
        cls,
        layout: Layout,
        *,
        budget: float = 2.0,
        max_layers: int = 64,
        activation: Callable[[], nn.Module] = nn.ELU,
        offset: bool = False,
    ) -> Self:
        """One MMNN for each layer, small neighbours sharing one, all widened together up to the budget."""
        sizes = merge_small(as_layout(layout).group_sizes, max_layers)

        def shapes(width: int) -> list[list[tuple[int, int]]]:
            stacks = []
            for size in sizes:
                side, hidden = latent_side(size, None), max(1, round(width / 1000 * size**0.5))
                stacks.append([(side, side), (hidden, hidden), square_enough(size)])
            return stacks

        def count(width: int) -> int:
            return sum(MatrixStack.count(stack) for stack in shapes(width)) + layout.num_params * offset

        chosen = shapes(widest(count, budget * layout.num_params, "smallest set of layers"))
        parts = [
            MMNN(stack[0], size, hidden=stack[1:-1], output=stack[-1], activation=activation, offset=offset)
            for size, stack in zip(sizes, chosen, strict=True)
        ]
        return cls(parts).to(layout.device, layout.dtype)

    def branch(self, z: Tensor) -> Tensor:
        shares = z.split([part.latent_dim for part in self._generators()], dim=1)
        return torch.cat([part(share) for part, share in zip(self.parts, shares, strict=True)], 1)

    def linearised_branch(self, z: Tensor) -> Linearised | None:
        """Parts that are matrix stacks and nothing else share products where they are alike; others go one by one."""
        parts = self._generators()
        stacks = [part.stack for part in parts if isinstance(part, MMNN) and part.is_only_a_stack()]
        if len(stacks) == len(parts):
            return linearised_blocks(stacks, [part.num_params for part in parts], z)
        shares = z.split([part.latent_dim for part in parts], dim=1)
        found = [part.written_out(share) for part, share in zip(parts, shares, strict=True)]
        wholes = [whole for whole in found if whole is not None]
        if len(wholes) < len(parts):
            return None
        sizes = [Share(part.latent_dim, part.num_params, part.num_params) for part in parts]
        blocks = Blocks(sizes, [((i,), whole.piece) for i, whole in enumerate(wholes)])
        return Linearised(lambda: torch.cat([whole.value() for whole in wholes], 1), blocks)

    def affine_parameters(self) -> list[nn.Parameter]:
        return [parameter for part in self._generators() for parameter in part.affine_parameters()]

    @torch.no_grad()
    def init_around(
        self,
        theta: Tensor,  # (m,)
        spread: float | Sequence[float],
        *,
        nonlinear_share: float = 0.4,
        rng: torch.Generator | None = None,
    ) -> Self:
        """As in `Generator.init_around`; `spread` may have one number for each part."""
        checks.vector("theta", theta, self.num_params)
        parts = self._generators()
        spreads = [spread] * len(parts) if isinstance(spread, (int, float)) else list(spread)
        if len(spreads) != len(parts):
            raise ValueError(f"spread: expected one number or one for each of {len(parts)} parts, got {len(spreads)}.")
        pieces = theta.split([part.num_params for part in parts])
        for part, piece, width in zip(parts, pieces, spreads, strict=True):
            part.init_around(piece, width, nonlinear_share=nonlinear_share, rng=rng)
        return self

    def _generators(self) -> list[Generator]:
        return [part for part in self.parts if isinstance(part, Generator)]
