"""Merging of batches that are too small for the network with their neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.data import BatchSampler, DataLoader

from livi.model.data.batches import Batch, length


def merged(batches: Iterable[Batch], fewest: int) -> Iterator[Batch]:
    """The same examples in batches of at least so many: a smaller one joins the next, and the last the one before it.

    >>> sizes = [3, 1, 4, 1]
    >>> batches = [(torch.zeros(size, 2), torch.zeros(size)) for size in sizes]
    >>> [len(targets) for _, targets in merged(batches, 2)], merged_sizes(sizes, 2)
    ([3, 6], [3, 6])
    """
    ready: Batch | None = None
    small: Batch | None = None
    for batch in batches:
        whole = batch if small is None else _joined(small, batch)
        small = whole if len(whole[1]) < fewest else None
        if small is None:
            if ready is not None:
                yield ready
            ready = whole
    if small is not None:
        ready = small if ready is None else _joined(ready, small)
    if ready is not None:
        yield ready


def merged_sizes(sizes: Sequence[int], fewest: int) -> list[int]:
    """The sizes of what `merged` gives for batches of these."""
    found, small = [], 0
    for size in sizes:
        small += size
        if small >= fewest:
            found.append(small)
            small = 0
    if small and found:
        found[-1] += small
    return found or [small]


def known_sizes(loader: Iterable[Any]) -> list[int] | None:
    """The sizes of a DataLoader's batches, the same at every epoch, without loading one; None if unknown."""
    batches = loader.batch_sampler if isinstance(loader, DataLoader) else None
    examples = length(batches.sampler) if type(batches) is BatchSampler else None
    if not isinstance(batches, BatchSampler) or examples is None:
        return None
    whole, rest = divmod(examples, batches.batch_size)
    return [batches.batch_size] * whole + [rest] * (rest > 0 and not batches.drop_last)


def _joined(one: Batch, other: Batch) -> Batch:
    try:
        both: Batch = pytree.tree_map(lambda first, second: torch.cat([first, second]), one, other)
    except (TypeError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"data: expected at least 2 examples in a batch, for the network's BatchNorm normalises by the batch, got "
            f"one of {min(len(one[1]), len(other[1]))} that cannot be put together with another ({error}); pass "
            "drop_last=True to the DataLoader, or other batches."
        ) from error
    return both
