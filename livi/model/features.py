"""A fixed part of a network, computed once for all examples and not at every step of a fit.

Where all stochastic weights belong to one layer, such as the last one, whose output is the network's, what enters that
layer is the same at every step. A fit then takes it for its inputs; the posterior is that of the whole network.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from livi.draws import normal
from livi.model.data import Data, TensorData
from livi.model.problem import Problem
from livi.network import Layout, as_call
from livi.network.entered import Entered
from livi.network.entering import entries

MOST = 256e6  # bytes of what is kept, or the inputs' own if they are more
_ROWS = 256  # that pass through the network at a time
_TRIED = 8  # examples
_ROUNDING = 1e3  # units in the last place


class Features(TensorData):
    """Training data as they enter a layer, in batches of the same examples as the `original` ones."""

    def __init__(self, original: TensorData, entered: Entered) -> None:
        super().__init__(entered, original.targets, original.batch_size)
        self.original = original


def as_given(data: Data) -> Data:
    """The data that the user gave."""
    return data.original if isinstance(data, Features) else data


@torch.no_grad()
def on_features(problem: Problem) -> Problem:
    """The problem with `Features` for its data; the problem itself where it has to see the inputs at every step.

    So it has where weights of several layers are stochastic or BatchNorm normalises by the batch, with augmentation,
    with data in batches of their own, in several processes, where there would be too much to keep, and where a trial
    finds that the output is not that layer's, or that what enters it depends on the weights or on other examples.
    """
    layout, data = problem.layout, problem.data
    name = _common(layout)
    if not name or not layout.fixed or layout.batch_norms or problem.integrated is not None:
        return problem
    if type(data) is not TensorData or data.augment is not None:
        return problem
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return problem
    try:
        sizes = _bytes(_trial(layout, name, data)) * data.num_data / min(_TRIED, data.num_data)
        if sizes > max(MOST, _bytes(data.inputs)):
            return problem
        rows = range(0, data.num_data, _ROWS)
        values = torch.cat([_enters(layout, name, layout.flatten(), _some(data, i, i + _ROWS))[0] for i in rows])
    except Exception:  # whatever the module's forward may raise; a fit on the inputs says what it is
        return problem
    return replace(problem, data=Features(data, Entered(name, values)))


def _common(layout: Layout) -> str:
    """The innermost module that has all stochastic weights, under all of their names; "" for the network itself."""
    owners = [name.split(".")[:-1] for slot in layout.slots for name in slot.names]
    return ".".join(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*owners, strict=False)))


def _enters(layout: Layout, name: str, theta: Tensor, inputs: Any) -> tuple[Tensor, Tensor]:
    """What enters the layer, and the network's output."""
    args, kwargs = as_call(inputs)
    with entries(layout.module, [name]) as found:
        output = layout.apply(theta, *args, **kwargs)
    [(_, values)] = found
    return values, output


def _trial(layout: Layout, name: str, data: TensorData) -> Tensor:
    """What enters the layer for a few examples.

    Raises:
        ValueError: the layer's output is not the network's, or what enters it depends on the weights or on other
            examples.
    """
    count = min(_TRIED, data.num_data)
    rng = torch.Generator().manual_seed(0)
    own = layout.flatten()
    first, _ = _enters(layout, name, own, _some(data, 0, count))
    half, _ = _enters(layout, name, own, _some(data, 0, (count + 1) // 2))
    _same(half, first[: len(half)])
    for scale in (0.0, 1.0, 100.0):  # a clamp shows at large weights
        theta = own + scale * normal(tuple(own.shape), rng, own.dtype, own.device)
        values, output = _enters(layout, name, theta, _some(data, 0, count))
        _same(values, first)
        kept = values.clone()
        _same(layout.apply(theta, Entered(name, values)), output)
        _same(values, kept)  # not written over
    return first


def _same(one: Tensor, other: Tensor) -> None:
    """Raise unless these are equal up to rounding."""
    limit = _ROUNDING * torch.finfo(one.dtype).eps * other.abs().max()
    if one.shape != other.shape or not bool(((one - other).abs() <= limit).all()):
        raise ValueError("expected the same numbers")


def _some(data: TensorData, start: int, stop: int) -> Any:
    return pytree.tree_map(lambda leaf: leaf[start:stop], data.inputs)


def _bytes(tensors: Any) -> int:
    return sum(leaf.nbytes for leaf in pytree.tree_leaves(tensors))
