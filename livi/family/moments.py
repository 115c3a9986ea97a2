"""Mean and spread of many draws of many numbers, a few draws at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

BLOCK = 2**23  # numbers made at a time
PROBES = 128  # draws with which the spread of a start is measured


def moments(
    made: Callable[[slice], Tensor],  # some of the draws -> (n, m)
    count: int,
    size: int,
) -> tuple[Tensor, Tensor]:  # (m,), (m,)
    """Mean and standard deviation over `count` draws of `size` numbers each.

    >>> draws = torch.arange(6.0).reshape(3, 2)
    >>> moments(lambda some: draws[some], 3, 2)
    (tensor([2., 3.]), tensor([2., 2.]))
    """
    blocks = [slice(first, min(count, first + _rows(size))) for first in range(0, count, _rows(size))]
    if len(blocks) == 1:
        draws = made(blocks[0])
        return draws.mean(0), draws.std(0)
    shift = made(slice(0, 1))[0]  # of which the deviations are of their spread's size, so that squares do not cancel
    first, second = torch.zeros_like(shift), torch.zeros_like(shift)
    for block in blocks:
        deviation = made(block) - shift
        first += deviation.sum(0)
        second += deviation.square_().sum(0)
    mean = first / count
    return shift + mean, ((second - count * mean.square()) / (count - 1)).clamp_min(0.0).sqrt()


def bytes_of_moments(size: int, itemsize: int) -> int:
    """Bytes that `moments` holds at once: a block of draws, and their deviations."""
    return 2 * min(PROBES, _rows(size)) * size * itemsize


def _rows(size: int) -> int:
    return max(1, BLOCK // size)
