"""The noise that gives theta = g(z) + sigma * eps a density: fixed, relative to the weights, learned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from livi import checks
from livi.network import Layout, as_layout
from livi.spec import Specified


class Noise(Specified, nn.Module):
    """Standard deviation of eps's contribution: `std()` is () or (num_params,), positive and differentiable."""

    def std(self) -> Tensor:
        raise NotImplementedError

    def init_around(self, theta: Tensor) -> None:  # (m,)
        """Called with the weights that a fit starts from. Here: nothing."""


class FixedNoise(Noise):
    """One fixed sigma for all weights, as in the paper.

    >>> FixedNoise(0.01).std()
    tensor(0.0100)
    """

    def __init__(self, noise_std: float = 0.01) -> None:
        super().__init__()
        self.value: Tensor
        self.register_buffer("value", torch.tensor(checks.positive_float("noise_std", noise_std)))

    def std(self) -> Tensor:
        return self.value


class RelativeNoise(Noise):
    """A fixed share of each parameter tensor's root mean square, at the weights that a fit starts from.

    The weights of large networks differ in size from layer to layer, by the square root of the fan-in or more. One
    sigma for all would drown some and leave others without noise.

    Args:
        sizes: the tensors' numbers of weights, in theta's order.
        share: of the root mean square.
        floors: root mean squares that are assumed at least, one for all tensors or one each. Tensors such as biases,
            which may start at zero, need one.

    >>> noise = RelativeNoise((2, 1), share=0.1, floors=0.5)
    >>> noise.init_around(torch.tensor([3.0, -4.0, 0.0]))
    >>> noise.std()
    tensor([0.3536, 0.3536, 0.0500])
    """

    def __init__(self, sizes: Sequence[int], share: float = 0.1, floors: float | Sequence[float] = 1e-3) -> None:
        super().__init__()
        if not sizes:
            raise ValueError("sizes: expected at least one tensor, got none.")
        self.sizes = checks.sizes("sizes", sizes, sum(sizes))
        self.share = checks.positive_float("share", share)
        given = [floors] * len(self.sizes) if isinstance(floors, (int, float)) else list(floors)
        if len(given) != len(self.sizes):
            raise ValueError(
                f"floors: expected one number, or one for each of {len(self.sizes)} sizes, got {len(given)}."
            )
        self.floors = tuple(checks.positive_float("each of floors", floor) for floor in given)
        self.value: Tensor
        self.register_buffer("value", self.share * torch.tensor(self.floors))

    @classmethod
    def for_layout(cls, layout: Layout, share: float = 0.1) -> Self:
        """Vectors such as biases and norm scales count as at least 0.1."""
        slots = as_layout(layout).slots
        floors = [1e-3 if len(slot.shape) > 1 else 0.1 for slot in slots]
        return cls([slot.numel for slot in slots], share, floors).to(layout.device, layout.dtype)

    def std(self) -> Tensor:
        return torch.cat([std.expand(size) for std, size in zip(self.value, self.sizes, strict=True)])

    @torch.no_grad()
    def init_around(self, theta: Tensor) -> None:
        checks.vector("theta", theta, sum(self.sizes))
        sizes = torch.stack([part.square().mean().sqrt() for part in theta.split(self.sizes)])
        self.value.copy_(self.share * torch.maximum(sizes, sizes.new_tensor(self.floors)))


class LearnedNoise(Noise):
    """One learned sigma for all weights."""

    def __init__(self, noise_std: float = 0.01) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.tensor(math.log(checks.positive_float("noise_std", noise_std))))

    def std(self) -> Tensor:
        return self.log_std.exp()


class LayerNoise(Noise):
    """One learned sigma for each layer; `sizes` are the layers' numbers of weights, in theta's order."""

    def __init__(self, sizes: Sequence[int], noise_std: float = 0.01) -> None:
        super().__init__()
        if not sizes:
            raise ValueError("sizes: expected at least one layer, got none.")
        self.sizes = checks.sizes("sizes", sizes, sum(sizes))
        start = math.log(checks.positive_float("noise_std", noise_std))
        self.log_std = nn.Parameter(torch.full((len(sizes),), start))

    def std(self) -> Tensor:
        return torch.cat([std.expand(size) for std, size in zip(self.log_std.exp(), self.sizes, strict=True)])


class DiagonalNoise(Noise):
    """One learned sigma for each weight: the family then contains every mean-field Gaussian, for any latent_dim."""

    def __init__(self, num_params: int, noise_std: float = 0.01) -> None:
        super().__init__()
        checks.positive_int("num_params", num_params)
        start = math.log(checks.positive_float("noise_std", noise_std))
        self.log_std = nn.Parameter(torch.full((num_params,), start))

    def std(self) -> Tensor:
        return self.log_std.exp()
