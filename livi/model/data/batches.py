"""Batches from a DataLoader or a list: which part of them is input, and which is target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from livi.model.data.conversion import is_array, is_column

Batch = tuple[Any, Tensor]  # inputs as a module takes them, and targets
Unpack = Callable[[Any], Batch]
TARGET_KEYS = ("targets", "target", "labels", "label", "y")
MINIBATCH = 256  # examples per batch where nothing is said


def holds_batches(data: Any) -> bool:
    """Whether data are batches to go through, as against the inputs of one call.

    Batches are a DataLoader, a Dataset, a list of pairs or dicts, or anything else that can be iterated. Inputs are
    tensors, arrays, tables, lists of those or of numbers, tuples, dicts, and objects that move to a device by `.to`.
    """
    if isinstance(data, Dataset):
        return True
    if isinstance(data, list):
        return bool(data) and not is_column(data) and all(isinstance(entry, (tuple, list, Mapping)) for entry in data)
    if is_array(data) or isinstance(data, (tuple, str, bytes, Mapping)) or hasattr(data, "to"):
        return False
    return isinstance(data, Iterable)


def input_batches(data: Any, unpack: Unpack | None = None) -> Iterator[Any]:
    """The inputs of each batch, in the order in which they come; targets are left out.

    Of a batch (x, y), (x1, ..., y) or a dict with one of the usual target names that is everything but the target, by
    `default_unpack`, as when fitting: two inputs without a target need `unpack`. Anything else, such as a tensor, a
    list of one, or a dict without such a name, is input as a whole. A Dataset comes in batches of 256.

    >>> [x.tolist() for x in input_batches([(torch.tensor([1.0, 2.0]), torch.zeros(2)), [torch.tensor([3.0])]])]
    [[1.0, 2.0], [3.0]]

    Raises:
        ValueError: there are no batches, or a DataLoader shuffles or leaves examples out, so that results could not be
            matched with examples.
    """
    batches = DataLoader(data, MINIBATCH) if isinstance(data, Dataset) else data
    if isinstance(batches, DataLoader):
        _check_order(batches)
    empty = True
    for batch in seeded(batches, 0):
        empty = False
        yield _inputs(batch, unpack)
    if empty:
        raise ValueError("inputs: expected batches, got none; an iterator that was read once is empty: pass a list.")


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


def seeded(batches: Iterable[Any], seed: int) -> Iterator[Any]:
    """The batches, drawn with a seed of their own; the global random stream is restored after each of them."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        remaining = iter(batches)
        batch = next(remaining, None)
        stream = torch.get_rng_state()
    while batch is not None:
        yield batch
        with torch.random.fork_rng(devices=[]):  # augmentation draws from this stream, not the user's
            torch.set_rng_state(stream)
            batch = next(remaining, None)
            stream = torch.get_rng_state()


def _inputs(batch: Any, unpack: Unpack | None) -> Any:
    if unpack is not None:
        return unpack(batch)[0]
    if isinstance(batch, (tuple, list)) and not is_column(batch):
        return batch[0] if len(batch) == 1 else default_unpack(batch)[0]
    labelled = isinstance(batch, Mapping) and any(key in batch for key in TARGET_KEYS)
    return default_unpack(batch)[0] if labelled else batch


def _check_order(loader: DataLoader[Any]) -> None:
    """Raise where a loader would shuffle or leave out examples, so that answers would not match its rows."""
    if isinstance(loader.sampler, (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)):
        raise ValueError("inputs: expected examples in order, got a DataLoader that shuffles; use shuffle=False.")
    examples = length(loader.sampler)
    if loader.drop_last and examples is not None and loader.batch_size and examples % loader.batch_size:
        left_out = examples % loader.batch_size
        raise ValueError(f"inputs: expected all {examples} examples, got all but {left_out}; pass drop_last=False.")


def length(sized: Any) -> int | None:
    """The length, or None where it is unknown, as for a loader over a stream."""
    try:
        return len(sized)
    except TypeError:
        return None
