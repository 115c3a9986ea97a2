"""The modes in which the user's module runs while theta is evaluated; afterwards all its flags are restored."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

Function = TypeVar("Function", bound=Callable[..., Any])


def with_gradients(function: Function) -> Function:
    """Decorate what takes gradients of its own, whether or not its caller is in `torch.no_grad` or `inference_mode`."""
    return torch.inference_mode(mode=False)(torch.enable_grad()(function))


def all_batch_norms(module: nn.Module) -> dict[str, _BatchNorm]:
    """Every BatchNorm layer of a module, by its name there."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, _BatchNorm)}


@contextmanager
def evaluation_mode(module: nn.Module, by_batch: Collection[_BatchNorm] = ()) -> Iterator[None]:
    """Make `module` a deterministic function of its parameters, and restore every flag afterwards.

    - Everything runs in eval mode: dropout is off, since the posterior over weights takes its place.
    - The BatchNorm layers `by_batch` normalise by the batch and do not touch their buffers. (Writing to shared buffers
      would also be wrong under vmap, where every sample of theta has its own statistics.)
    - Recurrent layers stay in training mode without dropout: cuDNN offers their backward pass in no other.
    - Fused attention is off: it has no rule for many parameter vectors at once, and no second derivative.

    The flags are the module's own, so that it takes its turn to be inside (`livi.network.turns`). Those of fused
    attention belong to the whole process: meanwhile modules of one's own with attention do without it in other threads.
    """
    training = [(layer, layer.training) for layer in module.modules()]
    tracking = [(layer, layer.track_running_stats) for layer in by_batch]
    recurrent = [(layer, layer.dropout) for layer in module.modules() if isinstance(layer, nn.RNNBase)]
    try:
        for layer, _ in training:
            layer.training = False
        for layer, _ in recurrent:
            layer.training, layer.dropout = True, 0.0
        for layer in by_batch:
            layer.training, layer.track_running_stats = True, False
        with _UNFUSED:
            yield
    finally:
        for layer, tracks in tracking:
            layer.track_running_stats = tracks
        for layer, dropout in recurrent:
            layer.dropout = dropout
        for layer, was_training in training:
            layer.training = was_training


@contextmanager
def attributes_kept(module: nn.Module) -> Iterator[None]:
    """Take back what a pass writes to the module, such as an attention map for its user to look at.

    It would be of other weights at the next pass, and hold on to a graph, or to a tensor that vmap is done with.
    """
    before = [(own, own.copy()) for own in map(vars, module.modules())]
    try:
        yield
    finally:
        for now, then in before:
            if len(now) != len(then) or not all(map(operator.is_, now.values(), then.values())):
                now.clear()
                now.update(then)


class _Unfused:
    """Turns fused attention off while any thread is inside; the last one to leave turns it on again."""

    def __init__(self) -> None:
        self._counting, self._inside, self._before = Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._counting:
            if not self._inside:
                fused = torch.backends.mha.get_fastpath_enabled()
                self._before.callback(torch.backends.mha.set_fastpath_enabled, fused)
                torch.backends.mha.set_fastpath_enabled(False)
                self._before.enter_context(sdpa_kernel(SDPBackend.MATH))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._counting:
            self._inside -= 1
            if not self._inside:
                self._before.close()


_UNFUSED = _Unfused()
