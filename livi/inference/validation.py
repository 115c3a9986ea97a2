"""Validation: how well the posterior predicts held-out examples while it is fitted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from livi import checks
from livi.draws import permutation
from livi.inference.ranks import Alone
from livi.inference.recipe import LOG_EVERY
from livi.model.data import Data, TensorData, Unpack, as_data, default_unpack, to_tensor
from livi.model.data.batches import length
from livi.model.data.conversion import is_column
from livi.posterior.metrics import METRICS
from livi.posterior.posterior import Posterior

TIMES = 20  # validations per fit by default
DRAWS = 32  # networks that predict together, drawn from the same random numbers at every validation
SCORES = ("nll", "accuracy", "rmse")
EXAMPLES = 8192  # at a time
PREFIX = "validation_"


class Validation:
    """Scores of a posterior on examples that are not fitted: `nll`, and `accuracy` of classes or `rmse` of numbers.

    Nothing of the fit is changed, random streams included: with or without validation it ends the same.

    Args:
        data: the examples.
        every: steps from one validation to the next; scores are taken at the first logged step (every tenth) from
            there on, and at the last step.
        ranks: the processes that divide the examples; all of them get the scores.
    """

    def __init__(self, data: Data, every: int, ranks: Alone | None = None) -> None:
        self.data, self.every = data, checks.positive_int("validate_every", every)
        self.ranks = ranks or Alone()

    def due(self, step: int, steps: int) -> bool:
        """Whether this logged step of so many is one to validate at: a function of its number alone."""
        logged_before = (step - 1) // LOG_EVERY * LOG_EVERY
        return step == steps or step // self.every > logged_before // self.every

    def scores(self, posterior: Posterior, batches: int | None = None) -> dict[str, float]:
        """Each score over all examples, or over those of so many batches.

        Cost: 32 forward passes over the examples.
        """
        totals, counts = [0.0] * len(SCORES), [0.0] * len(SCORES)
        # A likelihood with draws of its own takes their seed from torch's stream, which is the user's.
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for index, (inputs, targets, *part) in enumerate(self.ranks.part(self.data).epoch(0)):
                if index == batches:
                    break
                if part and not part[0]:  # an example that counts on another rank
                    continue
                prediction = posterior.predict(inputs, num_samples=DRAWS)
                for column, name in enumerate(SCORES):
                    metric, count = METRICS[name], _count(name, prediction, targets)
                    if not metric.applies_to(prediction):
                        continue
                    if not metric.applies_to(prediction, targets):
                        counts[column] = -math.inf  # a score of some of the examples alone would mislead
                    elif count:
                        value = metric(prediction, targets)
                        totals[column] += count * (value**2 if name == "rmse" else value)
                        counts[column] += count
        sums = zip(SCORES, self.ranks.total(totals), self.ranks.total(counts), strict=True)
        means = {name: total / count for name, total, count in sums if count > 0.0}
        return {name: math.sqrt(value) if name == "rmse" else value for name, value in means.items()}


def _count(name: str, prediction: Any, targets: Tensor) -> int:
    """The number of values that a batch's score is the mean of."""
    ignored = getattr(prediction, "ignore_index", None)
    if ignored is not None and (name == "accuracy" or (name == "nll" and targets.ndim == 1)):
        return int((targets != ignored).sum())
    return len(targets)


def validation_of(
    data: Any,
    every: int | str | None,
    *,
    steps: int,
    steps_per_epoch: int,
    device: torch.device,
    dtype: torch.dtype,
    unpack: Unpack | None = None,
    ranks: Alone | None = None,
) -> Validation:
    """The validation of a fit, from what the user gave: (X, y), a DataLoader, a Dataset, batches.

    Raises:
        ValueError, TypeError: `every` is neither a number of steps nor "epoch"; as from `as_data`.
    """
    if isinstance(every, str) and every != "epoch":
        raise ValueError(f"validate_every: expected a number of steps or 'epoch', got {every!r}.")
    chosen = max(LOG_EVERY, steps // TIMES) if every is None else steps_per_epoch if isinstance(every, str) else every
    how: dict[str, Any] = {"batch_size": EXAMPLES} if _is_pair(data) else {"unpack": unpack}
    try:
        read = as_data(data, device=device, dtype=dtype, **how)
    except (ValueError, TypeError) as error:
        raise type(error)(f"validation: {error}") from error
    return Validation(read, chosen, ranks)


def split_off(data: Any, share: float, seed: int) -> tuple[Any, Any]:
    """Split a random share of the examples off: the others, then that share, each in the order of the data.

    A DataLoader becomes two, with its batch size, `collate_fn` and workers: the first shuffles if it does.

    >>> kept, held = split_off((torch.arange(10.0), torch.arange(10.0)), 0.2, seed=0)
    >>> len(kept[1]), len(held[1])
    (8, 2)

    Raises:
        ValueError: the share is not between 0 and 1, or leaves nothing on one side.
        TypeError: the data come in batches that cannot be taken apart, as a DataLoader with a sampler of its own.
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"validation: expected a share strictly between 0 and 1, got {share}; or pass (X, y).")
    if isinstance(data, TensorDataset) and len(data.tensors) > 1:
        data = default_unpack(data.tensors)
    if isinstance(data, TensorData):
        data = (data.inputs, data.targets)
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        kept, held = _rows(len(data), share, seed)  # type: ignore[arg-type]
        return Subset(data, kept.tolist()), Subset(data, held.tolist())
    if _goes_through_a_dataset(data):
        kept, held = _rows(len(data.dataset), share, seed)
        shuffled = isinstance(data.sampler, RandomSampler)
        return (
            _like(data, kept, shuffle=shuffled, drop_last=data.drop_last),
            _like(data, held, shuffle=False, drop_last=False),
        )
    if not _is_pair(data):
        custom = " with a sampler of its own or examples of no known number" if isinstance(data, DataLoader) else ""
        raise TypeError(
            f"validation={share:g}: expected (X, y) data, a Dataset, or a DataLoader over all of one, to split a share "
            f"off, got {type(data).__name__}{custom}, which comes in batches; split its examples beforehand and pass "
            "validation=(X, y) or another DataLoader."
        )
    pair = pytree.tree_map(lambda leaf: to_tensor("data", leaf), (data[0], data[1]), is_leaf=is_column)
    parts = _rows(len(pair[1]), share, seed)
    kept, held = (pytree.tree_map(lambda leaf, rows=rows: leaf[rows.to(leaf.device)], pair) for rows in parts)
    return kept, held


def _rows(count: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    held = round(share * count)
    if not 0 < held < count:
        raise ValueError(
            f"validation={share:g}: expected at least one example on each side, got {held} of {count}; "
            "pass another share, or validation=(X, y)."
        )
    order = permutation(count, seed)
    return order[held:].sort().values, order[:held].sort().values


def _goes_through_a_dataset(data: Any) -> bool:
    """Whether this is a plain DataLoader that gives every example of a dataset once, in order or shuffled."""
    if type(data) is not DataLoader or type(data.batch_sampler) is not BatchSampler:
        return False
    examples, sampler = length(data.dataset), data.sampler
    if examples is None or isinstance(data.dataset, IterableDataset):
        return False
    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples == examples
    return type(sampler) is SequentialSampler


def _like(loader: DataLoader[Any], rows: Tensor, *, shuffle: bool, drop_last: bool) -> DataLoader[Any]:
    """A loader of these rows of another one's dataset, in batches made as its are."""
    return DataLoader(
        Subset(loader.dataset, rows.tolist()),
        loader.batch_size,
        shuffle=shuffle,
        drop_last=drop_last,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )


def _is_pair(data: Any) -> bool:
    return isinstance(data, (tuple, list)) and len(data) == 2 and is_column(data[1])


def named(scores: Mapping[str, float]) -> dict[str, float]:
    """The scores under the names that they have in a row of history."""
    return {f"{PREFIX}{name}": value for name, value in scores.items()}
