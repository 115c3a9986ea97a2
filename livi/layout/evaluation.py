"""Evaluating a module at many parameter vectors at once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils import _pytree as pytree

from livi import checks
from livi.layout.parameters import Layout


@dataclass(frozen=True)
class Vmap:
    """All samples in one vectorised call: batched matrix products, and grouped convolutions where there are any.

    `chunk_size` bounds the samples in flight, and so the memory.
    """

    chunk_size: int | None = None


@dataclass(frozen=True)
class Loop:
    """One sample after the other: the least memory, and any module at all."""


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

    Both strategies give the same result (a test says so); `fastest` measures which to use. Without one, Vmap is taken
    and Loop where the module has an operation that vmap cannot batch, such as an LSTM: where it fails under vmap, for
    another reason than want of memory, and runs without.

    Args:
        buffers: as in `Layout.apply`; a buffer with one more axis than the module's own is per sample.
    """
    checks.matrix("theta", theta, layout.num_params)
    checks.same_kind("theta", theta, layout.dtype, layout.device)
    if not isinstance(strategy, (Vmap, Loop, NoneType)):
        raise TypeError(f"strategy: expected livi.Vmap(), livi.Loop() or None, got {strategy!r}.")
    shared, own = _split(layout, buffers or {}, theta.shape[0])
    with layout.evaluation(batch_statistics):
        if not isinstance(strategy, Loop):
            try:
                return _vmap(
                    layout, theta, args, kwargs, shared, own, None if strategy is None else strategy.chunk_size
                )
            except RuntimeError as error:
                if strategy is not None or out_of_memory(error):
                    raise
        # Where vmap failed, an error of the module itself comes again at the first theta, with its own text alone.
        return _loop(layout, theta, args, kwargs, shared, own)


def fastest(
    layout: Layout,
    num_samples: int,
    *args: Any,
    batch_statistics: bool = True,
    repeats: int = 3,
    **kwargs: Any,
) -> Strategy:
    """Measure a forward and backward pass of each strategy on these inputs and return the quicker one.

    Where they are about as quick it is always Vmap, so that chance does not decide how a fit rounds. A module that
    vmap cannot batch gets Loop; one that runs out of memory raises its error.
    """
    theta = layout.flatten().expand(num_samples, -1)
    seconds: dict[Strategy, float] = {}
    for strategy in (Vmap(), Loop()):
        try:
            seconds[strategy] = min(
                _step_seconds(layout, theta, args, kwargs, batch_statistics, strategy) for _ in range(repeats + 1)
            )
        except RuntimeError as error:
            if isinstance(strategy, Loop) or out_of_memory(error):
                raise
    return Loop() if seconds.get(Vmap(), float("inf")) > 1.25 * seconds[Loop()] else Vmap()


def _vmap(
    layout: Layout,
    theta: Tensor,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    shared: dict[str, Tensor],
    own: dict[str, Tensor],
    chunk_size: int | None,
) -> Any:
    def one(row: Tensor, buffers: dict[str, Tensor]) -> Any:
        return layout.call(row, args, kwargs, shared | buffers)

    return vmap(one, chunk_size=chunk_size)(theta, own)


def _loop(
    layout: Layout,
    theta: Tensor,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    shared: dict[str, Tensor],
    own: dict[str, Tensor],
) -> Any:
    outputs = [
        layout.call(row, args, kwargs, shared | {name: buffer[i] for name, buffer in own.items()})
        for i, row in enumerate(theta)
    ]
    return pytree.tree_map(lambda *leaves: torch.stack(leaves), *outputs)


def _split(
    layout: Layout, buffers: Mapping[str, Tensor], num_samples: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Buffers shared by all samples, and those with one row per sample."""
    layout.check_buffers(buffers, num_samples)
    known = dict(layout.module.named_buffers())
    shared = {name: buffer for name, buffer in buffers.items() if buffer.shape == known[name].shape}
    own = {name: buffer for name, buffer in buffers.items() if name not in shared}
    return shared, own


def _step_seconds(
    layout: Layout,
    theta: Tensor,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    batch_statistics: bool,
    strategy: Strategy,
) -> float:
    leaf = theta.detach().clone().requires_grad_()
    synchronise(leaf)
    started = time.perf_counter()
    outputs = apply_many(layout, leaf, *args, batch_statistics=batch_statistics, strategy=strategy, **kwargs)
    total = sum(out.float().square().sum() for out in pytree.tree_leaves(outputs) if out.is_floating_point())
    torch.autograd.grad(total, leaf)
    synchronise(leaf)
    return time.perf_counter() - started


def out_of_memory(error: RuntimeError) -> bool:
    """Whether memory ran out, on a GPU or, where torch has no error of its own for it, on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def synchronise(tensor: Tensor) -> None:
    """Wait for the device that a tensor is on, before a clock is read."""
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
