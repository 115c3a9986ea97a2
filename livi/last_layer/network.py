"""Where a network's last layer is, and the network without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from livi.layout import Layout, has_batch_norm


def find_last(layout: Layout, inputs: Tensor, *, beside: bool = False) -> str | None:
    """The name of the layer whose output is the network's, if it is an nn.Linear that can be integrated out.

    All of its weights must be stochastic and its own, it must run once, and something stochastic must come before it.

    Args:
        inputs: a few examples.
        beside: the network returns another column beside that layer's one, which does not depend on it.
    """
    if has_batch_norm(layout.module) or layout.forward is not None:
        return None
    calls: dict[str, list[_Call]] = {}

    def keep(name: str) -> Callable[..., None]:
        return lambda _, given, output: calls.setdefault(name, []).append(_Call(given[0], output))

    linear = {name: part for name, part in layout.module.named_modules() if type(part) is nn.Linear and name}
    handles = [part.register_forward_hook(keep(name)) for name, part in linear.items()]
    with torch.no_grad(), layout.evaluation(False):
        try:
            made = layout.module(inputs)
        finally:
            for handle in handles:
                handle.remove()
        once = {name: seen[0] for name, seen in calls.items() if len(seen) == 1 and linear[name].bias is not None}
        if beside:
            found = [name for name, call in once.items() if _stands_beside(layout.module, name, call, inputs, made)]
        else:
            found = [name for name, call in once.items() if call.output is made]
    if len(found) != 1:
        return None
    own = {f"{found[0]}.weight", f"{found[0]}.bias"}
    slots = {slot.name: slot for slot in layout.slots}
    alone = own <= slots.keys() and all(len(slots[name].names) == 1 for name in own)
    return found[0] if alone and len(slots) > len(own) else None


class _Call(NamedTuple):
    given: Tensor  # (B, ..., H)
    output: Tensor  # (B, ..., T)


def _stands_beside(module: nn.Module, name: str, call: _Call, inputs: Tensor, made: Any) -> bool:
    """Whether the network returns [this layer's column, another], and [its inputs, the same other] without it."""
    if not isinstance(made, Tensor) or made.shape != (len(inputs), 2) or call.output.shape != (len(inputs), 1):
        return False
    try:
        bare = _Without(name)(module, inputs)
    except RuntimeError:  # what follows expects one column
        return False
    pairs = ((made[:, :1], call.output), (bare[:, :-1], call.given), (bare[:, -1:], made[:, 1:]))
    return all(torch.equal(one, other) for one, other in pairs)


def earlier_layout(layout: Layout, last: str) -> Layout:
    """The same network as a function of its earlier weights: what enters the last layer comes out in its place."""
    names = [slot.name for slot in layout.slots if slot.name.rpartition(".")[0] != last]
    return Layout(layout.module, include=names, forward=_Without(last))


@dataclass(frozen=True)
class _Without:
    """A module's forward with its last layer, by name, passed over. (A class, unlike a closure, can be pickled.)"""

    last: str

    def __call__(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        parent, _, leaf = self.last.rpartition(".")
        modules = module.get_submodule(parent)._modules
        own = modules[leaf]
        modules[leaf] = nn.Identity()
        try:
            return module(*args, **kwargs)
        finally:
            modules[leaf] = own
