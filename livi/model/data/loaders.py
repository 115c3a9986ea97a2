"""A DataLoader, or any other re-iterable of batches, as `Data`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DistributedSampler, SubsetRandomSampler

from livi import checks
from livi.model.data.batches import Batch, Unpack, length, seeded
from livi.model.data.conversion import (
    as_tensor,
    as_tensors,
    check_finite,
    detached,
    holds_numbers,
    is_column,
    to_tensor,
)
from livi.model.data.merging import known_sizes, merged, merged_sizes
from livi.model.data.precision import lost_digits
from livi.model.warning import warn


class LoaderData:
    """A DataLoader or any iterable that can be iterated again and again.

    Each epoch draws from a stream of its own seed, so that a DataLoader which shuffles or augments with torch's random
    numbers (and has no generator or workers of its own) gives the same batches again when a run is resumed. The global
    stream is left as it was; numpy's and Python's are not covered.

    Attributes:
        fewest: examples of a batch; smaller ones are put together with others, see `at_least`.
        average_size: of a batch; None where it is unknown until one is loaded, whose size is then taken for it.
    """

    fewest = 1

    def __init__(
        self,
        loader: Iterable[Any],
        unpack: Unpack,
        device: torch.device,
        dtype: torch.dtype,
        num_data: int | None = None,
    ) -> None:
        self.loader, self.unpack, self.device, self.dtype = loader, unpack, device, dtype
        examples = _examples(loader) if num_data is None else num_data
        batches, sizes = length(loader), known_sizes(loader)
        if sizes is None and (examples is None or batches is None or isinstance(loader, list | tuple)):
            sizes = self._counted()
        if sizes is not None:
            batches, examples = len(sizes), sum(sizes) if examples is None else examples
        assert batches is not None
        assert examples is not None  # else the batches were counted
        self.num_data, self.steps_per_epoch = checks.positive_int("num_data", examples), batches
        self.average_size = None if not sizes else sum(sizes) / len(sizes)
        self._first: Batch | None = None
        self.lost: tuple[str, ...] = ()  # as far as the first batch shows
        self.check: Callable[[Tensor], None] | None = None  # that raises a ValueError about targets
        self.check_inputs: Callable[[Any], None] | None = None  # likewise about inputs

    def epoch(self, seed: int) -> Iterator[Batch]:
        batches = (self._checked(batch, index) for index, batch in enumerate(seeded(self.loader, seed)))
        yield from batches if self.fewest == 1 else merged(batches, self.fewest)

    def at_least(self, fewest: int) -> LoaderData:
        """The same examples in batches of at least so many; itself where all are large enough."""
        known = known_sizes(self.loader)
        sizes = [self._rows(batch) for batch in seeded(self.loader, 0)] if known is None else known
        always = known is not None or isinstance(self.loader, list | tuple)  # those of every epoch
        if always and min(sizes, default=fewest) >= fewest:
            return self
        found = LoaderData(self.loader, self.unpack, self.device, self.dtype, self.num_data)
        joined = merged_sizes(sizes, fewest)
        found.fewest, found.steps_per_epoch = fewest, len(joined)
        found.average_size = sum(joined) / len(joined)
        return found

    def emphasis(self, batch: Batch) -> float:
        if self.average_size is None:
            self.average_size = float(len(self.first()[1]))
        return len(batch[1]) / self.average_size

    def first(self) -> Batch:
        """The first batch of epoch 0, kept: a DataLoader may take long to start."""
        if self._first is None:
            self._first = next(self.epoch(0), None)
        if self._first is None:
            raise ValueError("data: expected batches, got none; a DataLoader with drop_last needs a full one.")
        return self._first

    def _counted(self) -> list[int]:
        """The sizes of the first epoch's batches."""
        sizes = [self._rows(batch) for batch in seeded(self.loader, 0)]
        if not sizes:
            raise ValueError(
                "data: expected batches, got none; pass a DataLoader or a list, which can be iterated more than once."
            )
        return sizes

    def _rows(self, batch: Any) -> int:
        return len(_targets(self.unpack(batch)[1]))

    def _checked(self, batch: Any, index: int) -> Batch:
        """Inputs and targets on the device. Batches on a GPU are checked in the first one alone, as reading waits."""
        inputs, targets = detached(self.unpack(batch))
        leaves = pytree.tree_leaves(inputs, is_leaf=holds_numbers)
        for name, leaf in (("targets", _targets(targets)), *(("inputs", leaf) for leaf in leaves)):
            if holds_numbers(leaf) and (index == 0 or not getattr(leaf, "is_cuda", False)):
                check_finite(f"batch {index}: {name}", to_tensor(name, leaf))
                if name == "targets":
                    _named(index, self.check, to_tensor(name, leaf))
        if index == 0 and self._first is None:
            self.lost = tuple(lost_digits(inputs, targets, self.dtype, "batch 0: "))
        found = as_tensors(inputs, self.device, self.dtype), as_tensor(targets, self.device, self.dtype)
        if index == 0 or self.device.type != "cuda":
            _named(index, self.check_inputs, found[0])
        return found


def _named(index: int, check: Callable[[Any], None] | None, given: Any) -> None:
    """Check what a batch holds; an error says of which batch."""
    try:
        if check is not None:
            check(given)
    except ValueError as error:
        raise type(error)(f"batch {index}: {error}") from None


def _examples(loader: Iterable[Any]) -> int | None:
    """The number of examples that one epoch of a DataLoader is drawn from; of the subset, if its sampler has one."""
    examples, sampler = length(getattr(loader, "dataset", None)), getattr(loader, "sampler", None)
    drawn = length(sampler)
    if isinstance(sampler, DistributedSampler):
        raise ValueError(
            "data: expected a DataLoader over all examples, got one with a DistributedSampler; leave the sampler out "
            "and pass shuffle=True: livi.fit divides every batch among the processes itself."
        )
    if isinstance(sampler, SubsetRandomSampler):
        return drawn
    if examples is not None and drawn is not None and drawn != examples:
        raise ValueError(
            f"data: expected a sampler over all {examples} examples, got one that draws {drawn}; "
            "say how many examples the likelihood stands for with num_data."
        )
    return examples


def compare_lengths(num_data: int, loader: Iterable[Any]) -> None:
    """Warn of a number of examples that neither the dataset nor the sampler nor the batches of a DataLoader have."""
    examples, drawn = length(getattr(loader, "dataset", None)), length(getattr(loader, "sampler", None))
    if examples and num_data not in (examples, drawn, sum(known_sizes(loader) or ())):
        sampled = "" if drawn in (None, examples) else f", of which a sampler draws {drawn:,}"
        warn(
            f"num_data: expected {examples:,}, the length of the DataLoader's dataset{sampled}, got {num_data:,}: the "
            f"likelihood will count {num_data / examples:.3g} times as much; leave num_data out unless that is meant."
        )


def _targets(targets: Any) -> Tensor:
    """The targets of a batch, one row an example."""
    if not is_column(targets):
        raise TypeError(
            f"batch: expected targets as a tensor or array with a row for each example, got {type(targets).__name__}; "
            "put single examples into a DataLoader, or pass unpack=lambda batch: (inputs, targets)."
        )
    tensor = to_tensor("targets", targets)
    if not tensor.ndim:
        raise ValueError("batch: expected targets with a row for each example, got a single number; use a DataLoader.")
    return tensor
