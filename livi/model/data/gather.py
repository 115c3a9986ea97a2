"""Batches joined into one data set, where every epoch has the same examples."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from livi.model.data.batches import Batch
from livi.model.data.training import Data, TensorData

MEMORY = 256_000_000  # bytes of inputs and targets


class NotGatheredError(ValueError):
    """Why the batches of an epoch are not one data set that stays the same, in words that follow "because"."""


def check_size(data: Data) -> None:
    """All examples will fit in memory, judged by the first batch; nothing else is read.

    Raises:
        NotGatheredError: they will not.
    """
    inputs, targets = data.first()
    _check_rows(inputs, targets)
    expected = data.num_data * _bytes(inputs, targets) // max(1, len(targets))
    if expected > MEMORY:
        raise NotGatheredError(f"all batches together are {expected / 1e6:,.0f} MB, more than {MEMORY / 1e6:.0f}")


def gathered(data: Data) -> TensorData:
    """All examples of one epoch as one batch, read twice to see that they are the same.

    Where an epoch shuffles them, they come in an order that depends on their values alone.

    Raises:
        NotGatheredError: an epoch does not hold every example once, or holds others than the last one.
    """
    if isinstance(data, TensorData):
        if data.augment is not None:
            raise NotGatheredError("augmentation makes other examples at every epoch")
        return TensorData(data.inputs, data.targets, data.num_data)
    check_size(data)
    inputs, targets = _whole(data, 0)
    if len(targets) != data.num_data:
        raise NotGatheredError(f"an epoch has {len(targets):,} of {data.num_data:,} examples, and a step needs all")
    before, again = _digests(inputs, targets), _digests(*_whole(data, 1))
    if sorted(before) != sorted(again):
        raise NotGatheredError("the batches of another epoch hold other examples, as with augmentation or resampling")
    if before != again:
        order = torch.tensor(sorted(range(len(before)), key=before.__getitem__), device=targets.device)
        inputs, targets = pytree.tree_map(lambda leaf: leaf[order], (inputs, targets))
    return TensorData(inputs, targets, len(targets))


def _whole(data: Data, seed: int) -> Batch:
    """One epoch's batches as one batch."""
    parts: list[list[Tensor]] = []
    structures, size = set(), 0
    for batch in data.epoch(seed):
        _check_rows(*batch)
        leaves, structure = pytree.tree_flatten(batch)
        structures.add(str(structure))
        parts.append(leaves)
        size += _bytes(*batch)
        if size > 2 * MEMORY:
            raise NotGatheredError(f"all batches together are more than {MEMORY / 1e6:.0f} MB")
    if len(structures) != 1 or any(len({leaf.shape[1:] for leaf in column}) > 1 for column in zip(*parts, strict=True)):
        raise NotGatheredError("the batches are of several shapes")
    whole: Batch = pytree.tree_unflatten([torch.cat(column) for column in zip(*parts, strict=True)], structure)
    return whole


def _check_rows(inputs: Any, targets: Tensor) -> None:
    for leaf in pytree.tree_leaves(inputs):
        if not isinstance(leaf, Tensor) or leaf.shape[:1] != targets.shape[:1]:
            got = f"a tensor of shape {tuple(leaf.shape)}" if isinstance(leaf, Tensor) else f"a {type(leaf).__name__}"
            raise NotGatheredError(f"the inputs hold {got}, not a row per example")


def _digests(inputs: Any, targets: Tensor) -> list[bytes]:
    """A short fingerprint of each example."""
    leaves = [leaf.detach().cpu().contiguous() for leaf in (*pytree.tree_leaves(inputs), targets)]
    rows = [leaf.reshape(len(leaf), -1).view(torch.uint8).numpy() for leaf in leaves]
    return [
        hashlib.blake2b(b"".join(row[i].tobytes() for row in rows), digest_size=16).digest()
        for i in range(len(targets))
    ]


def _bytes(inputs: Any, targets: Tensor) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in (*pytree.tree_leaves(inputs), targets))
