"""Data of many shapes as batches of (inputs, targets) on one device, in an order that a seed determines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import SubsetRandomSampler

from livi import checks

Batch = tuple[Any, Tensor]  # inputs as a module takes them, and targets
Unpack = Callable[[Any], Batch]
TARGET_KEYS = ("targets", "target", "labels", "label", "y")
FULL_BATCH = 2048  # tensors of at most so many examples are one batch
MINIBATCH = 256  # examples a batch otherwise


class Data(Protocol):
    """Batches for training. `epoch(seed)` yields the same batches for the same seed."""

    num_data: int
    steps_per_epoch: int

    def epoch(self, seed: int) -> Iterator[Batch]: ...

    def first(self) -> Batch: ...


class TensorData:
    """Tensors held on the device: one full batch, or shuffled minibatches without a copy through the CPU."""

    def __init__(
        self, inputs: Any, targets: Tensor, batch_size: int | None = None, full_batch: int = FULL_BATCH
    ) -> None:
        self.inputs, self.targets = inputs, targets
        self.num_data = targets.shape[0]
        default = self.num_data if self.num_data <= full_batch else MINIBATCH
        wanted = default if batch_size is None else batch_size
        self.batch_size = min(checks.positive_int("batch_size", wanted), self.num_data)
        self.steps_per_epoch = math.ceil(self.num_data / self.batch_size)

    def epoch(self, seed: int) -> Iterator[Batch]:
        if self.batch_size == self.num_data:
            yield self.inputs, self.targets
            return
        order = torch.randperm(self.num_data, generator=torch.Generator().manual_seed(seed)).to(self.targets.device)
        for index in order.tensor_split(self.steps_per_epoch):  # sizes differ by one at most: no batch is a remnant
            yield self._rows(index)

    def first(self) -> Batch:
        return next(self.epoch(0))

    def _rows(self, index: Tensor) -> Batch:
        return pytree.tree_map(lambda tensor: tensor[index], self.inputs), self.targets[index]


class LoaderData:
    """A DataLoader or any iterable that can be iterated again and again.

    Each epoch draws from a stream of its own seed, so that a DataLoader which shuffles or augments with torch's random
    numbers (and has no generator or workers of its own) gives the same batches again when a run is resumed. The global
    stream is left as it was; numpy's and Python's are not covered.
    """

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
        batches = _length(loader)
        if examples is None or batches is None:
            examples_counted, batches = self._count()
            examples = examples_counted if examples is None else examples
        self.num_data = checks.positive_int("num_data", examples)
        self.steps_per_epoch = batches

    def epoch(self, seed: int) -> Iterator[Batch]:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            batches = iter(self.loader)
            batch = next(batches, None)
            stream = torch.get_rng_state()
        while batch is not None:
            yield self._move(self.unpack(batch))
            with torch.random.fork_rng(devices=[]):  # augmentation draws from the epoch's stream, not the user's
                torch.set_rng_state(stream)
                batch = next(batches, None)
                stream = torch.get_rng_state()

    def first(self) -> Batch:
        batch = next(self.epoch(0), None)
        if batch is None:
            raise ValueError("data: expected batches, got none; a DataLoader with drop_last needs a full one.")
        return batch

    def _count(self) -> tuple[int, int]:
        sizes = [self.unpack(batch)[1].shape[0] for batch in self.loader]
        if not sizes:
            raise ValueError(
                "data: expected batches, got none; pass a DataLoader or a list, which can be iterated more than once."
            )
        return sum(sizes), len(sizes)

    def _move(self, batch: Batch) -> Batch:
        moved: Batch = pytree.tree_map(lambda leaf: as_tensor(leaf, self.device, self.dtype), batch)
        return moved


def as_data(
    data: Any,
    *,
    device: torch.device,
    dtype: torch.dtype,
    unpack: Unpack | None = None,
    batch_size: int | None = None,
    full_batch: int = FULL_BATCH,
    num_data: int | None = None,
) -> Data:
    """Whatever the user has, as `Data`: (X, y) tensors or arrays, a DataLoader, any re-iterable of batches.

    Args:
        batch_size: for (X, y); by default everything up to `full_batch` examples, else 256.

    Raises:
        ValueError, TypeError: lengths that differ, no examples, an iterator that can be read only once, a batch
            that `unpack` is needed for.
    """
    if isinstance(data, (TensorData, LoaderData)):
        return data
    if isinstance(data, tuple) and len(data) == 2 and all(map(_is_array, pytree.tree_leaves(data))):
        if num_data is not None or unpack is not None:
            raise ValueError("num_data, unpack: expected only with batches; (X, y) data say it themselves.")
        inputs, targets = pytree.tree_map(lambda leaf: as_tensor(leaf, device, dtype), data)
        _check_lengths(inputs, targets)
        return TensorData(inputs, targets, batch_size, full_batch)
    if isinstance(data, Iterator):
        raise TypeError("data: expected something that can be iterated many times, got an iterator; pass a list of it.")
    if not isinstance(data, Iterable) or isinstance(data, (str, Tensor, Mapping)):
        raise TypeError(
            f"data: expected a DataLoader, an (X, y) tuple of tensors or arrays, or batches, got {type(data).__name__}."
        )
    if batch_size is not None:
        raise ValueError("batch_size: expected only with (X, y) data; a DataLoader has its own.")
    return LoaderData(data, unpack or default_unpack, device, dtype, num_data)


def default_unpack(batch: Any) -> Batch:
    """(x, y), (x1, ..., y), or a dict with one of the usual target names; everything else is the input."""
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[0], batch[1]
    if isinstance(batch, (tuple, list)) and len(batch) > 2:
        return tuple(batch[:-1]), batch[-1]
    if isinstance(batch, Mapping):
        key = next((key for key in TARGET_KEYS if key in batch), None)
        if key is not None:
            return {name: value for name, value in batch.items() if name != key}, batch[key]
    raise TypeError(
        f"batch: expected (inputs, targets) or a dict with one of {TARGET_KEYS}, got {type(batch).__name__}; "
        "pass unpack=lambda batch: (inputs, targets)."
    )


def as_tensor(leaf: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Arrays and tensors on the device; floating ones in the network's dtype, integers and the rest as they are."""
    if not _is_array(leaf):
        return leaf
    tensor = torch.as_tensor(leaf)
    return tensor.to(device, dtype if tensor.is_floating_point() else None)


def _examples(loader: Iterable[Any]) -> int | None:
    """How many examples one epoch of a DataLoader is drawn from: the subset's, where its sampler has one."""
    examples, sampler = _length(getattr(loader, "dataset", None)), getattr(loader, "sampler", None)
    drawn = _length(sampler)
    if isinstance(sampler, SubsetRandomSampler):
        return drawn
    if examples is not None and drawn is not None and drawn != examples:
        raise ValueError(
            f"data: expected a sampler over all {examples} examples, got one that draws {drawn}; "
            "say how many examples the likelihood stands for with num_data."
        )
    return examples


def _length(sized: Any) -> int | None:
    """How many, or None for what does not know, such as a loader over a stream."""
    try:
        return len(sized)
    except TypeError:
        return None


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) or hasattr(leaf, "__array__")


def _check_lengths(inputs: Any, targets: Tensor) -> None:
    sizes = {leaf.shape[0] if leaf.ndim else 0 for leaf in pytree.tree_leaves(inputs)} | {len(targets)}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"data: expected inputs and targets of one length >= 1, got lengths {sorted(sizes)}.")
    for name, leaf in (("targets", targets), *(("inputs", leaf) for leaf in pytree.tree_leaves(inputs))):
        if leaf.is_floating_point() and not bool(torch.isfinite(leaf).all()):
            raise ValueError(f"{name}: expected finite numbers, got NaN or inf; clean or impute the data first.")
