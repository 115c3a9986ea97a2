"""The learned parameters of a bound, by name: copied, put back, averaged."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

ASIDE = 2**25  # bytes: larger copies of what is on a GPU are kept on the CPU
MOST_PINNED = 2**32  # bytes: up to this size in pinned memory, which is ten times as fast


def values(module: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters."""
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


@torch.no_grad()
def assign(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Set all parameters, in place; the values may be on another device."""
    for name, parameter in module.named_parameters():
        parameter.copy_(values[name])


@torch.no_grad()
def blend(average: Mapping[str, Tensor], module: nn.Module, decay: float) -> None:
    """One step of an exponential moving average of the parameters."""
    for name, parameter in module.named_parameters():
        average[name].lerp_(parameter, 1.0 - decay)


def copied(state: Any) -> Any:
    """A deep copy of a nested state; its tensors go to the CPU where a copy on the GPU would be large."""
    leaves = [leaf for leaf in pytree.tree_leaves(state) if isinstance(leaf, Tensor) and leaf.is_cuda]
    size = sum(leaf.numel() * leaf.element_size() for leaf in leaves)
    if size <= ASIDE:
        return copy.deepcopy(state)

    def put_aside(leaf: Any) -> Any:
        if not (isinstance(leaf, Tensor) and leaf.is_cuda):
            return copy.deepcopy(leaf)
        room = torch.empty_like(leaf, device="cpu", pin_memory=size <= MOST_PINNED, requires_grad=False)
        return room.copy_(leaf.detach(), non_blocking=True)

    found = pytree.tree_map(put_aside, state)
    torch.cuda.synchronize(leaves[0].device)
    return found
