"""Sizing a generator to a budget of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable

from livi.family.generators.generator import Extras

Shape = tuple[int, int]
FOR_SMALL = "for so small a network use MLP.for_layout or Affine.for_layout, or give this for_layout a larger budget"


def widest(count: Callable[[int], int], limit: float, unit: str, remedy: str = FOR_SMALL) -> int:
    """The largest width whose parameter count, increasing in the width, stays within the limit.

    Args:
        remedy: what to do where none does.

    Raises:
        ValueError: even a width of 1 exceeds it.
    """
    if count(1) > limit:
        raise ValueError(
            f"for_layout: one {unit} takes {count(1):,} generator weights, more than the {int(limit):,} that its "
            f"budget, a multiple of the network's weights, allows; {remedy}."
        )
    low, high = 1, 2
    while count(high) <= limit:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= limit else (low, middle)
    return low


ALIGNED = 8  # numbers: matrices whose sides are multiples of it are multiplied several times as fast on a GPU


def square_enough(size: int, *, aligned: bool = False) -> Shape:
    """The most nearly square matrix shape with at least `size` entries and the least surplus for its height.

    >>> square_enough(44_426), square_enough(44_426, aligned=True)
    ((210, 212), (208, 216))
    """
    rows = max(1, math.isqrt(size))
    if not aligned or rows < ALIGNED:
        return rows, -(-size // rows)
    rows = align(rows)
    return rows, -(-size // (rows * ALIGNED)) * ALIGNED


def align(side: int) -> int:
    """The largest multiple of 8 up to this side of a matrix; a smaller side as it is."""
    return side if side < ALIGNED else side - side % ALIGNED


def latent_side(num_params: int, latent_dim: int | None) -> int:
    """Side of a square latent matrix: given by latent_dim, or 0.31 sqrt(m) as in the paper's MNIST run, at most 128."""
    if latent_dim is not None:
        side = math.isqrt(latent_dim)
        if side * side != latent_dim or side < 1:
            raise ValueError(f"latent_dim: expected a square number for a matrix latent, got {latent_dim}.")
        return side
    return max(1, min(128, round(0.31 * math.sqrt(num_params))))


def extra_weights(latent_dim: int, num_params: int, extras: Extras) -> int:
    """Weights that skip, offset and per-layer scale add to a branch."""
    return (
        num_params * latent_dim * extras.get("skip", False)
        + num_params * extras.get("offset", False)
        + len(extras.get("scale_sizes") or ())
    )
