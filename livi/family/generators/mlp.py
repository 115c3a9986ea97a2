"""MLP and affine generators: for networks of up to a few thousand weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Self, Unpack

import torch
from torch import Tensor, nn

from livi import checks
from livi.family.generators.generator import Extras, Generator
from livi.family.generators.sizing import extra_weights, widest
from livi.family.jacobian import forward_mode_jacobian
from livi.family.products import Chain, Dense, Gate, Linearised, Piece, Zero
from livi.network import Layout, as_layout
from livi.network.elementwise import is_elementwise, is_plain, with_slope


class MLP(Generator):
    """z -> hidden layers -> theta, as in the paper's toy and UCI experiments.

    >>> sum(p.numel() for p in MLP(60, 105, hidden=(105,)).parameters())  # the toy experiment's 60-105-105
    17535
    """

    def __init__(
        self,
        latent_dim: int,
        num_params: int,
        *,
        hidden: Sequence[int] = (128,),
        activation: Callable[[], nn.Module] = nn.ELU,
        **extras: Unpack[Extras],
    ) -> None:
        super().__init__(latent_dim, num_params, **extras)
        widths = [latent_dim, *(checks.positive_int("each of hidden", width) for width in hidden)]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), activation()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], num_params)

    @classmethod
    def for_layout(
        cls,
        layout: Layout,
        *,
        budget: float | None = None,
        latent_dim: int | None = None,
        activation: Callable[[], nn.Module] = nn.ELU,
        **extras: Unpack[Extras],
    ) -> Self:
        """One hidden layer as wide as `budget` times the network's weights allows; by default as wide as theta.

        A dense output layer costs num_params for every hidden unit, so a budget of c affords about c - 1 units: MMNN
        is the generator for small budgets.
        """
        m = as_layout(layout).num_params
        d = m if latent_dim is None else latent_dim
        added = extra_weights(d, m, extras)
        remedy = "raise it, lower latent_dim, or use MMNN.for_layout for a large network"

        def count(h: int) -> int:
            return (d + 1 + m) * h + m + added

        width = m if budget is None else widest(count, budget * m, "hidden unit", remedy)
        generator = cls(d, m, hidden=(width,), activation=activation, **extras)
        return generator.to(layout.device, layout.dtype)

    def branch(self, z: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(z))
        return out

    def linearised_branch(self, z: Tensor) -> Linearised | None:
        if not self._is_known():
            return None
        pieces: list[Piece] = []
        x = z
        for layer in self.body:
            if isinstance(layer, nn.Linear):
                x = layer(x)
                pieces.append(Dense(layer.weight))
            else:
                x, slope = with_slope(layer, x)
                pieces.append(Gate(slope))
        return Linearised(lambda: self.head(x), Chain((*pieces, Dense(self.head.weight))))

    def jacobian(self, z: Tensor) -> Tensor:  # (S, m, d)
        """J_g(z) by the chain rule, layer after layer: a third of forward mode's time on small networks.

        With activations that are not elementwise, or in a subclass with its own branch, forward mode is used.
        """
        if not self._is_as_written() or not self._is_known():
            return forward_mode_jacobian(self, z)
        tangent = torch.eye(self.latent_dim, dtype=z.dtype, device=z.device).expand(z.shape[0], -1, -1)
        x = z
        for layer in self.body:
            if isinstance(layer, nn.Linear):
                x, tangent = layer(x), layer.weight @ tangent
            else:
                x, slope = with_slope(layer, x)
                tangent = slope[..., None] * tangent
        return self._with_skip(self.head.weight @ tangent)

    def _is_known(self) -> bool:
        known = all(is_plain(layer, nn.Linear) or is_elementwise(layer) for layer in self.body)
        return known and is_plain(self.body, nn.Sequential) and is_plain(self.head, nn.Linear)

    def _rescale_branch(self, factor: float) -> None:
        self.head.weight.mul_(factor)
        self.head.bias.mul_(factor)

    def _shift_branch(self, delta: Tensor) -> None:
        self.head.bias.add_(delta)


class Affine(Generator):
    """theta = b + W z: Gaussian variational inference, of full rank when latent_dim >= num_params."""

    def __init__(self, latent_dim: int, num_params: int) -> None:
        super().__init__(latent_dim, num_params, skip=True, offset=True)

    @classmethod
    def for_layout(cls, layout: Layout, *, latent_dim: int | None = None) -> Self:
        m = as_layout(layout).num_params
        return cls(m if latent_dim is None else latent_dim, m).to(layout.device, layout.dtype)

    def branch(self, z: Tensor) -> Tensor:
        return z.new_zeros(z.shape[0], self.num_params)

    def linearised_branch(self, z: Tensor) -> Linearised | None:
        return Linearised(lambda: self.branch(z), Zero(self.latent_dim, self.num_params))

    def jacobian(self, z: Tensor) -> Tensor:  # (S, m, d)
        if not self._is_as_written():
            return forward_mode_jacobian(self, z)
        assert self.skip is not None
        return self.skip.expand(z.shape[0], -1, -1)

    def _rescale_branch(self, factor: float) -> None:
        pass  # there is no branch to rescale

    def _shift_branch(self, delta: Tensor) -> None:
        raise AssertionError(f"the offset takes every shift, got {torch.Size(delta.shape)}")
