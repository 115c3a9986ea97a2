"""The cost of one pass of a module, counted in multiplications and not timed, so that it is the same everywhere."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.utils.flop_counter import FlopCounterMode

from livi.network.evaluation import Loop, Strategy, Vmap, apply_many, out_of_memory
from livi.network.parameters import Layout

# Multiplications of one pass from which convolutions are quicker one weight vector after the other than as one grouped
# convolution (docs/benchmarks/evaluation.md).
_GROUPED_TOO_SLOW = {"cpu": 2.5e6, "cuda": 1e9}


@torch.no_grad()
def multiplications(layout: Layout, *args: Any, strategy: Strategy | None = None, **kwargs: Any) -> int:
    """Multiplications that each theta takes: of matrix products, convolutions, attention, recurrent layers.

    At least one is counted for each weight and example. Under `Vmap` layers that come before all stochastic ones run
    once for all theta together and are not counted; else, and without a strategy, all of the forward pass is.

    >>> multiplications(Layout(nn.Linear(3, 2)), torch.ones(5, 3))  # with the bias
    40
    """
    examples = max(
        (len(leaf) for leaf in (*args, *kwargs.values()) if isinstance(leaf, Tensor) and leaf.ndim), default=1
    )
    least = examples * layout.num_params
    if isinstance(strategy, Vmap) and layout.fixed:
        counts = [_counted(layout, number, strategy, args, kwargs) for number in (2, 3)]
        return max(counts[1] - counts[0], least)
    recurrent = 0

    def count(layer: nn.Module, given: tuple[Any, ...], _: Any) -> None:
        nonlocal recurrent
        positions = given[0].numel() // given[0].shape[-1] if isinstance(given[0], Tensor) else examples
        recurrent += positions * sum(parameter.numel() for parameter in layer.parameters())

    handles = [layer.register_forward_hook(count) for layer in layout.module.modules() if isinstance(layer, nn.RNNBase)]
    try:
        counted = _counted(layout, 1, Loop(), args, kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return max(counted, recurrent, least)  # torch counts some recurrent layers, not all


def _counted(layout: Layout, number: int, strategy: Strategy, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The multiplications that torch counts in one call at so many theta."""
    theta = layout.flatten().expand(number, -1)
    with FlopCounterMode(display=False) as counter:
        apply_many(layout, theta, *args, batch_statistics=True, strategy=strategy, **kwargs)
    found: int = counter.get_total_flops() // 2
    return found


def suitable_strategy(layout: Layout, *args: Any, **kwargs: Any) -> Strategy:
    """How to evaluate many weight vectors on such inputs: by a rule, since a clock would change how a fit rounds.

    `Vmap`, except `Loop` for modules with an operation that cannot be batched and for large convolutions whose weights
    are stochastic; the latter get images in channels-last format on a GPU, if the module accepts them. Layers that come
    before all stochastic ones run once under `Vmap`, and at every theta under `Loop`.
    """
    theta = layout.flatten().expand(2, -1)
    try:
        with torch.no_grad():
            apply_many(layout, theta, *args, batch_statistics=True, strategy=Vmap(), **kwargs)
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        with torch.no_grad():  # an error of the module itself comes again
            apply_many(layout, theta[:1], *args, batch_statistics=True, strategy=Loop(), **kwargs)
        return Loop()
    limit = _GROUPED_TOO_SLOW.get(layout.device.type, math.inf)
    if not _convolves(layout) or multiplications(layout, *args, strategy=Vmap(), **kwargs) <= limit:
        return Vmap()
    return Loop(channels_last=layout.device.type == "cuda" and _takes_channels_last(layout, *args, **kwargs))


def _convolves(layout: Layout) -> bool:
    """Whether any convolution has stochastic weights; others are no grouped ones at many theta."""
    chosen = {id(layout.module.get_parameter(slot.name)) for slot in layout.slots}
    convolutions = [layer for layer in layout.module.modules() if isinstance(layer, _ConvNd)]
    return any(id(parameter) in chosen for layer in convolutions for parameter in layer.parameters())


@torch.no_grad()
def _takes_channels_last(layout: Layout, *args: Any, **kwargs: Any) -> bool:
    try:
        theta = layout.flatten()[None]
        apply_many(layout, theta, *args, batch_statistics=True, strategy=Loop(channels_last=True), **kwargs)
    except RuntimeError:  # a view of what is not laid out in its order
        return False
    return True
