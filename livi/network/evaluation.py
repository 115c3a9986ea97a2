"""Evaluating a module at many parameter vectors at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import NoneType
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils import _pytree as pytree

from livi import checks
from livi.network.dense import apply_dense, dense_layers
from livi.network.parameters import Layout, as_layout


@dataclass(frozen=True)
class Vmap:
    """All samples in one vectorised call: batched matrix products, and grouped convolutions where there are any.

    Linear layers with elementwise activations between them, in an nn.Sequential, are written out as such products;
    anything else goes through torch's vmap. `chunk_size` bounds the samples in flight, and so the memory.
    """

    chunk_size: int | None = None


@dataclass(frozen=True)
class Loop:
    """One sample after the other: the least memory, and any module at all.

    `channels_last` hands images over in that memory format, in which a GPU convolves faster. A module that takes a
    `view` of what it convolved cannot have it.
    """

    channels_last: bool = field(default=False, repr=False)


Strategy = Vmap | Loop


def apply_many(
    layout: Layout,
    theta: Tensor,  # (S, m)
    *args: Any,
    batch_statistics: bool = False,
    buffers: Mapping[str, Tensor] | None = None,
    strategy: Strategy | None = None,
    **kwargs: Any,
) -> Any:
    """The module's outputs at every theta, with a leading sample axis: (S, B, ...).

    Both strategies give the same result (a test says so); `suitable_strategy` says which to use. Without one, Vmap is
    taken and Loop where the module has an operation that vmap cannot batch, such as an LSTM: where it fails under
    vmap, for another reason than want of memory, and runs without.

    Args:
        buffers: as in `Layout.apply`; a buffer with one more axis than the module's own is per sample.
    """
    checks.matrix("theta", theta, as_layout(layout).num_params)
    checks.same_kind("theta", theta, layout.dtype, layout.device)
    if not isinstance(strategy, (Vmap, Loop, NoneType)):
        raise TypeError(f"strategy: expected livi.Vmap(), livi.Loop() or None, got {strategy!r}.")
    args, kwargs = as_wanted(strategy, (args, kwargs))

    def outputs(row: Tensor, buffers: dict[str, Tensor]) -> Any:
        return layout.call(row, args, kwargs, shared | buffers)

    with layout.turn:
        shared, own = _split(layout, buffers or {}, theta.shape[0])
        layers = dense_layers(layout, args, kwargs) if len(theta) > 1 and not isinstance(strategy, Loop) else None
        if layers is not None:
            return _in_chunks(lambda rows: apply_dense(layout, layers, rows, *args), theta, strategy)
        with layout.evaluation(batch_statistics):
            return for_each(outputs, theta, own, strategy)


def _in_chunks(function: Callable[[Tensor], Tensor], theta: Tensor, strategy: Strategy | None) -> Tensor:
    size = strategy.chunk_size if isinstance(strategy, Vmap) else None
    if size is None:
        return function(theta)
    return torch.cat([function(rows) for rows in theta.split(checks.positive_int("chunk_size", size))])


def for_each(
    function: Callable[[Tensor, dict[str, Tensor]], Any],
    theta: Tensor,  # (S, m)
    own: dict[str, Tensor],  # buffers with S rows
    strategy: Strategy | None,
) -> Any:
    """The function of each row of theta and its own buffers, results stacked."""
    if isinstance(strategy, Loop) or len(theta) == 1:
        return _loop(function, theta, own)
    try:
        return vmap(function, chunk_size=None if strategy is None else strategy.chunk_size)(theta, own)
    except RuntimeError as error:
        if strategy is not None or out_of_memory(error):
            raise
    # Where vmap failed, an error of the module itself comes again at the first theta, with its own text alone.
    return _loop(function, theta, own)


def _loop(function: Callable[[Tensor, dict[str, Tensor]], Any], theta: Tensor, own: dict[str, Tensor]) -> Any:
    results = [function(row, {name: buffer[i] for name, buffer in own.items()}) for i, row in enumerate(theta)]
    return pytree.tree_map(lambda *leaves: torch.stack(leaves), *results)


def as_wanted(strategy: Strategy | None, call: Any) -> Any:
    """The arguments of a call, with images in the memory format of the strategy."""
    if not (isinstance(strategy, Loop) and strategy.channels_last):
        return call

    def converted(leaf: Any) -> Any:
        pictures = isinstance(leaf, Tensor) and leaf.ndim == 4
        return leaf.contiguous(memory_format=torch.channels_last) if pictures else leaf

    return pytree.tree_map(converted, call)


def _split(
    layout: Layout, buffers: Mapping[str, Tensor], num_samples: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Buffers shared by all samples, and those with one row per sample."""
    layout.check_buffers(buffers, num_samples)
    known = dict(layout.module.named_buffers())
    shared = {name: buffer for name, buffer in buffers.items() if buffer.shape == known[name].shape}
    own = {name: buffer for name, buffer in buffers.items() if name not in shared}
    return shared, own


def out_of_memory(error: RuntimeError) -> bool:
    """Whether memory ran out, on a GPU or, where torch has no error of its own for it, on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def as_call(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a module call from one batch of inputs."""
    if isinstance(batch, dict):
        return (), batch
    return (tuple(batch), {}) if isinstance(batch, (tuple, list)) else ((batch,), {})


def synchronise(tensor: Tensor) -> None:
    """Wait for the device that a tensor is on, before a clock is read."""
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


@cache
def wake_autograd(device: torch.device) -> None:
    """Create the CUDA context of the thread in which autograd computes a GPU's gradients.

    Where a matrix product is that thread's first work, torch warns that there is none.
    """
    if device.type == "cuda":
        torch.ones((), device=device, requires_grad=True).square().backward()
