"""Rows in the shares of their weights: systematic resampling."""

from __future__ import annotations

import torch
from torch import Tensor


def resampled(log_weights: Tensor, count: int, rng: torch.Generator | None) -> Tensor:  # (S,) -> (count,)
    """The numbers of so many rows, in their order, each as often as its weight says, up to once more or less.

    >>> resampled(torch.tensor([0.5, 0.25, 0.25]).log(), 4, torch.Generator().manual_seed(0))
    tensor([0, 0, 1, 2])
    """
    ends = log_weights.softmax(0).cumsum(0)
    device = ends.device if rng is None else rng.device
    offset = torch.rand((), generator=rng, device=device, dtype=ends.dtype).to(ends.device)
    places = (torch.arange(count, device=ends.device) + offset) / count
    return torch.searchsorted(ends, places).clamp(max=len(ends) - 1)
