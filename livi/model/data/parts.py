"""Batches divided among several processes: each gets its own examples of every batch, with their weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
        fewest: examples that the network and its likelihood need at once, if several. Every part of a batch that has
            not as many for each is the whole batch, as 1 / count of it.

    >>> import torch
    >>> from livi.model.data import as_data
    >>> data = as_data((torch.zeros(5, 2), torch.arange(5.0)), device=torch.device("cpu"), dtype=torch.float32)
    >>> for index in range(2):
    ...     for inputs, targets, weight, emphasis in Part(data, index, 2).epoch(0):
    ...         print(targets, weight)
    tensor([0., 1.]) 0.4
    tensor([2., 3., 4.]) 0.6
    """

    def __init__(self, data: Data, index: int, count: int, *, fewest: int = 1) -> None:
        self.data, self.cut = data, _Cut(index, count, fewest)
        self.num_data, self.steps_per_epoch = data.num_data, data.steps_per_epoch
        self._own = _own_loader(data, self.cut)

    def epoch(self, seed: int) -> Iterator[Piece]:
        if self._own is not None:
            sizes = known_sizes(self.data.loader)  # type: ignore[attr-defined]
            assert sizes is not None
            average = sum(sizes) / len(sizes)
            for (inputs, targets), size in zip(self._own.epoch(seed), sizes, strict=True):
                yield inputs, targets, self.cut.weight(size), size / average
            return
        for inputs, targets in self.data.epoch(seed):
            yield self._piece(inputs, targets)

    def emphasis(self, batch: Piece) -> float:
        return batch[3]

    def _piece(self, inputs: Any, targets: Tensor) -> Piece:
        emphasis, leaves = self.data.emphasis((inputs, targets)), pytree.tree_leaves(inputs)
        if not all(isinstance(leaf, Tensor) and leaf.shape[:1] == targets.shape[:1] for leaf in leaves):
            return inputs, targets, 1.0 / self.cut.count, emphasis
        rows, weight = self.cut.rows(len(targets)), self.cut.weight(len(targets))
        return pytree.tree_map(lambda leaf: leaf[rows], inputs), targets[rows], weight, emphasis


@dataclass(frozen=True)
class _Cut:
    """How a batch of some size is divided."""

    index: int
    count: int
    fewest: int

    def rows(self, size: int) -> slice:
        start, stop = self._limits(size)
        return slice(start, stop) if stop > start else slice(0, 1)

    def weight(self, size: int) -> float:
        """How much of the batch this part counts for."""
        start, stop = self._limits(size)
        return 1.0 / self.count if self._whole(size) else (stop - start) / size

    def _limits(self, size: int) -> tuple[int, int]:
        if self._whole(size):
            return 0, size
        return size * self.index // self.count, size * (self.index + 1) // self.count

    def _whole(self, size: int) -> bool:
        return self.fewest > 1 and size // self.count < self.fewest


class _PartOfEachBatch(Sampler[list[int]]):
    """A batch sampler that yields one part of every batch."""

    def __init__(self, batches: BatchSampler, cut: _Cut) -> None:
        self.batches, self.cut = batches, cut

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.batches:
            yield batch[self.cut.rows(len(batch))]

    def __len__(self) -> int:
        return len(self.batches)


def _own_loader(data: Data, cut: _Cut) -> LoaderData | None:
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
    own = DataLoader(loader.dataset, batch_sampler=_PartOfEachBatch(loader.batch_sampler, cut), **kept)
    found = LoaderData(own, data.unpack, data.device, data.dtype, data.num_data)
    found.check, found.check_inputs = data.check, data.check_inputs
    return found
