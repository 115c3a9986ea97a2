"""The noise that gives theta = g(z) + sigma * eps a density: fixed, learned, learned per layer, learned per weight."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from livi import checks
from livi.spec import Specified


class Noise(Specified, nn.Module):
    """Standard deviation of eps's contribution: `std()` is () or (num_params,), positive and differentiable."""

    def std(self) -> Tensor:
        raise NotImplementedError


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
