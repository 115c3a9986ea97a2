"""Batches divided among several processes: each gets its own examples of every batch, with their weight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import BatchSampler, DataLoader, Sampler

from livi.model.data.batches import length
from livi.model.data.loaders import LoaderData
from livi.model.data.merging import known_sizes
from livi.model.data.training import Data

Piece = tuple[Any, Tensor, float, float]  # inputs, targets, how much of the batch they are, and its emphasis


class Part:
    """One of `count` parts of all batches of the data, which must come alike in every process.

    Of tensors, and of a DataLoader that batches by size, only its own examples are read; of other batches the rest is
    left out once they are there. A part of a batch with fewer examples than parts may be one example with the weight 0.

    Args:
        divisible: False gives every part the whole of each batch, as 1 / count of it.

    >>> import torch
    >>> from livi.model.data import as_data
    >>> data = as_data((torch.zeros(5, 2), torch.arange(5.0)), device=torch.device("cpu"), dtype=torch.float32)
    >>> for index in range(2):
    ...     for inputs, targets, weight, emphasis in Part(data, index, 2).epoch(0):
    ...         print(targets, weight)
    tensor([0., 1.]) 0.4
    tensor([2., 3., 4.]) 0.6
    """

    def __init__(self, data: Data, index: int, count: int, *, divisible: bool = True) -> None:
        self.data, self.index, self.count, self.divisible = data, index, count, divisible
        self.num_data, self.steps_per_epoch = data.num_data, data.steps_per_epoch
        self._own = _own_loader(data, index, count) if divisible else None

    def epoch(self, seed: int) -> Iterator[Piece]:
        if self._own is not None:
            sizes = known_sizes(self.data.loader)  # type: ignore[attr-defined]
            assert sizes is not None
            average = sum(sizes) / len(sizes)
            for (inputs, targets), size in zip(self._own.epoch(seed), sizes, strict=True):
                yield inputs, targets, self._weight(size), size / average
            return
        for inputs, targets in self.data.epoch(seed):
            yield self._cut(inputs, targets)

    def emphasis(self, batch: Piece) -> float:
        return batch[3]

    def _cut(self, inputs: Any, targets: Tensor) -> Piece:
        emphasis, leaves = self.data.emphasis((inputs, targets)), pytree.tree_leaves(inputs)
        by_row = all(isinstance(leaf, Tensor) and leaf.shape[:1] == targets.shape[:1] for leaf in leaves)
        if not self.divisible or not by_row:
            return inputs, targets, 1.0 / self.count, emphasis
        rows = _rows(len(targets), self.index, self.count)
        return pytree.tree_map(lambda leaf: leaf[rows], inputs), targets[rows], self._weight(len(targets)), emphasis

    def _weight(self, size: int) -> float:
        start, stop = _limits(size, self.index, self.count)
        return (stop - start) / size


class _PartOfEachBatch(Sampler[list[int]]):
    """A batch sampler that yields one part of every batch."""

    def __init__(self, batches: BatchSampler, index: int, count: int) -> None:
        self.batches, self.index, self.count = batches, index, count

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.batches:
            yield batch[_rows(len(batch), self.index, self.count)]

    def __len__(self) -> int:
        return len(self.batches)


def _own_loader(data: Data, index: int, count: int) -> LoaderData | None:
    """The data through a DataLoader that reads only this part; None where it is unknown which examples those are."""
    if not isinstance(data, LoaderData) or type(data.loader) is not DataLoader or data.fewest > 1:
        return None
    loader = data.loader
    if type(loader.batch_sampler) is not BatchSampler or length(loader.batch_sampler.sampler) is None:
        return None
    kept = {
        name: getattr(loader, name)
        for name in (
            "num_workers",
            "collate_fn",
            "pin_memory",
            "timeout",
            "worker_init_fn",
            "multiprocessing_context",
            "generator",
            "prefetch_factor",
            "persistent_workers",
        )
    }
    own = DataLoader(loader.dataset, batch_sampler=_PartOfEachBatch(loader.batch_sampler, index, count), **kept)
    found = LoaderData(own, data.unpack, data.device, data.dtype, data.num_data)
    found.check = data.check
    return found


def _limits(size: int, index: int, count: int) -> tuple[int, int]:
    return size * index // count, size * (index + 1) // count


def _rows(size: int, index: int, count: int) -> slice:
    start, stop = _limits(size, index, count)
    return slice(start, stop) if stop > start else slice(0, 1)
