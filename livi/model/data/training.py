"""Data of many shapes as batches of (inputs, targets) on one device, in an order that a seed determines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
)

from livi import checks
from livi.draws import permutation
from livi.model.data.augment import Augment, check_augment
from livi.model.data.batches import MINIBATCH, Batch, Unpack, default_unpack
from livi.model.data.conversion import (
    as_tensors,
    check_finite,
    detached,
    is_array,
    is_column,
    to_tensor,
)
from livi.model.data.loaders import LoaderData, compare_lengths
from livi.model.data.precision import lost_digits

FULL_BATCH = 2048  # tensors of at most so many examples are one batch
_SEEDS_APART = 1_000_033  # more than the epochs of a fit


class Data(Protocol):
    """Batches for training. `epoch(seed)` yields the same batches for the same seed.

    A step on a batch uses the average over its examples. So that all examples of an epoch count alike, also where
    batches differ in size, its gradient is multiplied by `emphasis`: the batch's examples over those of an average one.
    """

    num_data: int
    steps_per_epoch: int

    def epoch(self, seed: int) -> Iterator[Batch]: ...

    def first(self) -> Batch: ...

    def emphasis(self, batch: Batch) -> float: ...


class TensorData:
    """Tensors held on the device: one full batch, or shuffled minibatches without a copy through the CPU.

    Args:
        augment: what is done to the inputs of every batch, with random numbers that follow from the epoch's seed. The
            first batch, by which things are planned, is as it is.
        lost: what `lost_digits` says of the numbers that these tensors are made of.
    """

    def __init__(
        self,
        inputs: Any,
        targets: Tensor,
        batch_size: int | None = None,
        full_batch: int = FULL_BATCH,
        augment: Augment | None = None,
        lost: tuple[str, ...] = (),
    ) -> None:
        self.inputs, self.targets, self.augment, self.lost = inputs, targets, augment, lost
        self.num_data, self.size_given = targets.shape[0], batch_size is not None
        default = self.num_data if self.num_data <= full_batch else MINIBATCH
        wanted = default if batch_size is None else batch_size
        self.batch_size = min(checks.positive_int("batch_size", wanted), self.num_data)
        self.steps_per_epoch = math.ceil(self.num_data / self.batch_size)

    def epoch(self, seed: int) -> Iterator[Batch]:
        if self.augment is None:
            yield from self._batches(seed)
            return
        # Another stream than that of the order, one for the whole epoch: a resumed run draws it again from the start.
        rng = torch.Generator(self.targets.device).manual_seed(1_000_003 * (seed + 1))
        for inputs, targets in self._batches(seed):
            yield self.augment(inputs, rng), targets

    def first(self) -> Batch:
        return next(self._batches(0))

    def emphasis(self, batch: Batch) -> float:  # noqa: ARG002
        """1: all batches have one size."""
        return 1.0

    def within(self, examples: float) -> TensorData:
        """The same data, in minibatches if there are more than so many examples; unchanged if a size was given."""
        if self.size_given:
            return self
        return TensorData(self.inputs, self.targets, full_batch=min(FULL_BATCH, int(examples)), augment=self.augment)

    def plain(self) -> TensorData:
        """The same batches without augmentation."""
        return TensorData(self.inputs, self.targets, self.batch_size)

    def _batches(self, seed: int) -> Iterator[Batch]:
        if self.batch_size == self.num_data:
            yield self.inputs, self.targets
            return
        order = permutation(self.num_data, seed).to(self.targets.device)
        size = math.ceil(self.num_data / self.steps_per_epoch)
        # All of one size, for which a few examples come twice: a step is then the same computation every time.
        order = torch.cat([order, order[: size * self.steps_per_epoch - self.num_data]])
        for index in order.split(size):
            yield self._rows(index)

    def _rows(self, index: Tensor) -> Batch:
        return pytree.tree_map(lambda tensor: tensor[index], self.inputs), self.targets[index]


def as_data(
    data: Any,
    *,
    device: torch.device,
    dtype: torch.dtype,
    unpack: Unpack | None = None,
    batch_size: int | None = None,
    full_batch: int = FULL_BATCH,
    num_data: int | None = None,
    augment: Augment | None = None,
) -> TensorData | LoaderData:
    """Whatever the user has, as `Data`: (X, y), a Dataset, a DataLoader, any re-iterable of batches.

    X and y are tensors, arrays, tables of numbers or lists of numbers; X may be a tuple or dict of several.

    Args:
        batch_size: for (X, y), by default everything up to `full_batch` examples, else 256; for a Dataset 256.
        augment: for (X, y); a Dataset has transforms of its own.

    Raises:
        ValueError, TypeError: lengths that differ, no examples, words or NaN among the numbers, an iterator that can be
            read only once, a batch that `unpack` is needed for.
    """
    if augment is not None:
        check_augment(augment)
    if isinstance(data, (TensorData, LoaderData)):
        return data
    if type(data) is TensorDataset and len(data.tensors) > 1 and unpack is None and num_data is None:
        data = default_unpack(data.tensors)
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        data, batch_size = DataLoader(data, MINIBATCH if batch_size is None else batch_size, shuffle=True), None
    pairs = tuple if unpack else (tuple, list)  # a list of two tensors may be two batches to unpack
    if isinstance(data, pairs) and len(data) == 2 and is_column(data[1]):
        if num_data is not None or unpack is not None:
            raise ValueError("num_data, unpack: expected only with batches; (X, y) data say it themselves.")
        inputs = detached(pytree.tree_map(lambda leaf: to_tensor("inputs", leaf), data[0], is_leaf=is_column))
        targets = to_tensor("targets", data[1]).detach()
        _check_pair(inputs, targets)
        lost = tuple(lost_digits(inputs, targets, dtype))
        inputs, targets = as_tensors((inputs, targets), device, dtype)
        return TensorData(inputs, targets, batch_size, full_batch, augment, lost)
    _check_batches(data, unpack)
    if batch_size is not None:
        raise ValueError("batch_size: expected only with (X, y) data; a DataLoader has its own.")
    if augment is not None:
        raise ValueError("augment: expected only with (X, y) data; augment in the Dataset, or pass its tensors.")
    if num_data is not None:
        compare_lengths(checks.positive_int("num_data", num_data), data)
    return LoaderData(data, unpack or default_unpack, device, dtype, num_data)


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed of an epoch of a fit: no other epoch has it, of this fit or of one with a nearby seed.

    >>> epoch_seed(0, 1) in {epoch_seed(1, epoch) for epoch in range(1000)}
    False
    """
    return (_SEEDS_APART * (seed + 1) + epoch) % 2**32  # of which torch's generators on a CPU read no more


def remaining_batches(data: Data, seed: int, step: int, steps: int) -> Iterator[Batch]:
    """The batches of steps `step` to `steps`, epoch after epoch, entering an epoch where a run left it."""
    epoch, position = divmod(step, data.steps_per_epoch)
    while step < steps:
        index = -1
        for index, batch in enumerate(data.epoch(epoch_seed(seed, epoch))):
            if index < position:
                continue
            yield batch
            step += 1
            if step >= steps:
                return
        if index < position:
            raise ValueError(f"data: expected {data.steps_per_epoch} batches per epoch, got {index + 1}.")
        epoch, position = epoch + 1, 0


def some_inputs(data: Data, count: int) -> Any:
    """Inputs of the first epoch's first examples, as a fit sees them, joined into one batch where possible."""
    found: list[Any] = []
    seen = 0
    for inputs, targets in data.epoch(0):
        found.append(inputs)
        seen += len(targets)
        if seen >= count:
            break
    try:
        joined = pytree.tree_map(lambda *leaves: torch.cat(leaves), *found)
    except (TypeError, RuntimeError, ValueError):  # padded to different lengths, or not tensors alone
        return found[0]
    return pytree.tree_map(lambda leaf: leaf[:count].clone(), joined)


def _check_batches(data: Any, unpack: Unpack | None) -> None:
    """Raise for things that can be iterated but do not hold batches, or only once: streams, iterators, tables."""
    kind = type(data).__name__
    if isinstance(data, IterableDataset):
        raise TypeError(f"data: expected batches, got {kind}, which gives examples; wrap it in a DataLoader.")
    if isinstance(data, Iterator):
        raise TypeError("data: expected something that can be iterated many times, got an iterator; pass a list of it.")
    if hasattr(data, "columns"):
        raise TypeError(f"data: expected (X, y), got a {kind}; pass (table[features], table[target]).")
    if isinstance(data, (tuple, list)) and unpack is None and any(map(is_array, data)):
        raise TypeError(
            f"data: expected (X, y) or batches, got a {kind} of {len(data)} with an array in it; "
            "several inputs are a tuple: ((x1, x2), y), several targets the columns of one array."
        )
    if not isinstance(data, Iterable) or is_array(data) or isinstance(data, (str, bytes, Mapping)):
        raise TypeError(
            f"data: expected a DataLoader, an (X, y) tuple of tensors or arrays, or batches, got {kind}; "
            "read files and take inputs and targets apart first."
        )


def _check_pair(inputs: Any, targets: Tensor) -> None:
    leaves = pytree.tree_leaves(inputs)
    sizes = {leaf.shape[0] if leaf.ndim else 0 for leaf in (targets, *leaves)}
    if len(sizes) != 1 or 0 in sizes or not leaves:
        shapes = ", ".join(str(tuple(leaf.shape)) for leaf in leaves)
        raise ValueError(
            f"data: expected inputs and targets of one length >= 1, got inputs {shapes or 'of nothing'} and targets "
            f"{tuple(targets.shape)}; the first axis counts examples."
        )
    for name, leaf in (("targets", targets), *(("inputs", leaf) for leaf in leaves)):
        check_finite(name, leaf)
