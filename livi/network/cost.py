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
def multiplications(layout: Layout, *args: Any, **kwargs: Any) -> int:
    """Multiplications of a forward pass at one theta: matrix products, convolutions, attention, recurrent layers.

    At least one is counted for each weight and example.

    >>> multiplications(Layout(nn.Linear(3, 2)), torch.ones(5, 3))  # with the bias
    40
    """
    examples = max(
        (len(leaf) for leaf in (*args, *kwargs.values()) if isinstance(leaf, Tensor) and leaf.ndim), default=1
    )
    recurrent = 0

    def count(layer: nn.Module, given: tuple[Any, ...], _: Any) -> None:
        nonlocal recurrent
        positions = given[0].numel() // given[0].shape[-1] if isinstance(given[0], Tensor) else examples
        recurrent += positions * sum(parameter.numel() for parameter in layer.parameters())

    handles = [layer.register_forward_hook(count) for layer in layout.module.modules() if isinstance(layer, nn.RNNBase)]
    try:
        with FlopCounterMode(display=False) as counter:
            layout.apply(layout.flatten(), *args, batch_statistics=True, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    counted: int = counter.get_total_flops() // 2
    return max(counted, recurrent, examples * layout.num_params)  # torch counts some recurrent layers, not all


def suitable_strategy(layout: Layout, *args: Any, **kwargs: Any) -> Strategy:
    """How to evaluate many weight vectors on such inputs: by a rule, since a clock would change how a fit rounds.

    `Vmap`, except `Loop` for modules with an operation that cannot be batched and for large convolutions; the latter
    get images in channels-last format on a GPU, if the module accepts them.
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
    convolves = any(isinstance(layer, _ConvNd) for layer in layout.module.modules())
    limit = _GROUPED_TOO_SLOW.get(layout.device.type, math.inf)
    if not convolves or multiplications(layout, *args, **kwargs) <= limit:
        return Vmap()
    return Loop(channels_last=layout.device.type == "cuda" and _takes_channels_last(layout, *args, **kwargs))


@torch.no_grad()
def _takes_channels_last(layout: Layout, *args: Any, **kwargs: Any) -> bool:
    try:
        theta = layout.flatten()[None]
        apply_many(layout, theta, *args, batch_statistics=True, strategy=Loop(channels_last=True), **kwargs)
    except RuntimeError:  # a view of what is not laid out in its order
        return False
    return True
