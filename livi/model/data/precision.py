"""Warnings about digits that data lose in the network's dtype."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from livi.model.data.conversion import holds_numbers, to_tensor

TOLERATED = 1e-3  # rounding, in standard deviations of a column
FEWEST = 8  # examples for which a standard deviation is computed
NUMBERS = 2**23  # numbers of a tensor that are examined, of evenly spaced examples


def lost_digits(inputs: Any, targets: Any, dtype: torch.dtype, where: str = "") -> Iterator[str]:
    """Warnings about inputs and targets whose spread is hardly more than what the dtype rounds away, with a remedy.

    Targets of whole numbers count too, since likelihoods subtract; inputs of whole numbers stay as they are. Cost: a
    few passes over at most eight million numbers of each tensor.

    >>> dates = 2_460_000 + torch.linspace(-50, 50, 100, dtype=torch.float64)[:, None]
    >>> [text.partition(";")[0] for text in lost_digits(dates, dates - 2_460_000, torch.float32)]
    ['inputs: expected ... standard deviation of 29.16, rounded by up to 0.1237 in float32']
    """
    leaves, _ = pytree.tree_flatten_with_path(inputs, is_leaf=holds_numbers)
    for path, leaf in leaves:
        if holds_numbers(leaf):
            yield from _lost(f"{where}inputs{pytree.keystr(path)}", to_tensor("inputs", leaf), dtype)
    answers = to_tensor("targets", targets)
    yield from _lost(f"{where}targets", answers if answers.is_floating_point() else _large(answers), dtype)


def _large(whole: Tensor) -> Tensor:
    """Whole numbers in double precision, if any is beyond those that single precision represents exactly."""
    if whole.dtype not in (torch.int32, torch.int64) or not whole.numel() or int(whole.abs().max()) <= 2**24:
        return whole
    return whole.double()


@torch.no_grad()
def _lost(name: str, values: Tensor, dtype: torch.dtype) -> Iterator[str]:  # (N, ...)
    if values.dtype != torch.float64 or dtype == torch.float64 or values.ndim == 0 or len(values) < FEWEST:
        return
    columns = values[:: _stride(values)].cpu().flatten(1) if values.ndim > 1 else values[:: _stride(values), None].cpu()
    off = (columns - columns.to(dtype).double()).abs().amax(0)
    spread, size = columns.std(0, correction=0), columns.abs().amax(0)
    constant = spread <= 1e-12 * size  # but for rounding in double precision
    worst = torch.where(constant, 0.0, off / spread)
    if not bool((worst > TOLERATED).any()):
        return
    place, count = int(worst.argmax()), int((worst > TOLERATED).sum())
    others = f" and {count - 1} other column{'s' if count > 2 else ''}" if count > 1 else ""
    yield (
        f"{name}{_index(values, place)}{others}: expected a spread that {_word(dtype)} resolves, got a mean of "
        f"{float(columns[:, place].mean()):.10g} and a standard deviation of {float(spread[place]):.4g}, rounded by up "
        f"to {float(off[place]):.4g} in {_word(dtype)}; subtract an offset first, in float64, or fit `net.double()`."
    )


def _stride(values: Tensor) -> int:
    rows = max(64, NUMBERS * len(values) // max(1, values.numel()))
    return -(-len(values) // rows)


def _index(values: Tensor, place: int) -> str:
    """The index of a column, as [:, 3], or [:, 0, 5] in tensors with more axes; empty where there is only one."""
    if values[0].numel() == 1:
        return ""
    axes: list[int] = []
    for size in reversed(values.shape[1:]):
        place, position = divmod(place, size)
        axes.insert(0, position)
    return f"[:, {', '.join(map(str, axes))}]"


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
