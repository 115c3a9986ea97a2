"""Random numbers that mean the same on every device."""

from __future__ import annotations

import torch
from torch import Tensor


def normal(
    shape: tuple[int, ...],
    rng: torch.Generator | None,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Standard normal numbers drawn on the rng's own device, then moved: a seed means the same draw on every device."""
    source = device if rng is None else rng.device
    return torch.randn(shape, generator=rng, dtype=dtype, device=source).to(device)


def rademacher(
    shape: tuple[int, ...],
    rng: torch.Generator | None,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Independent fair signs, drawn like `normal`."""
    source = device if rng is None else rng.device
    signs = torch.randint(0, 2, shape, generator=rng, device=source).to(device)
    return signs.to(dtype).mul_(2).sub_(1)


def gamma(shape: Tensor, rng: torch.Generator | None) -> Tensor:
    """Gamma variables of these shapes and scale 1, drawn like `normal`."""
    source = shape.device if rng is None else rng.device
    return torch._standard_gamma(shape.to(source), generator=rng).to(shape.device)


def poisson(rate: Tensor, rng: torch.Generator | None) -> Tensor:
    """Poisson counts of these rates, in their dtype, drawn like `normal`."""
    source = rate.device if rng is None else rng.device
    return torch.poisson(rate.to(source), generator=rng).to(rate.device)
