"""A copy of the user's network, which nobody else changes."""

from __future__ import annotations

import copy

from torch import Tensor, nn
from torch.func import debug_unwrap
from torch.utils import _pytree as pytree


def copied(net: nn.Module) -> nn.Module:
    """A deep copy. Tensors of its last pass that it holds, such as attention maps, are copied without their gradient.

    Torch refuses to copy those, since they are results and not parameters.
    """
    held = [leaf for part in net.modules() for leaf in pytree.tree_leaves(list(vars(part).values()))]
    results = [leaf for leaf in held if isinstance(leaf, Tensor) and not leaf.is_leaf]
    return copy.deepcopy(net, {id(each): debug_unwrap(each).detach().clone() for each in results})
