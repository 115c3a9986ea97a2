"""A network cut off before one of its layers: what enters the layer is the output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from livi.network.parameters import Forward


@dataclass(frozen=True)
class Entering:
    """A `forward` of a `Layout` that returns what enters a layer. (A class, unlike a closure, can be pickled.)

    Args:
        last: the name of that layer, which must run once.
        beside: append the network's own output columns, from the second on.
        inner: the user's own forward function, if any.
    """

    last: str
    beside: bool = False
    inner: Forward | None = None

    def __call__(self, module: nn.Module, *args: Any, **kwargs: Any) -> Tensor:  # (B, H), or (B, H + 1) with a column
        with entries(module, [self.last]) as found:
            output = module(*args, **kwargs) if self.inner is None else self.inner(module, *args, **kwargs)
        if len(found) != 1:
            raise RuntimeError(
                f"{self.last}: expected it to run once, as on the first examples, got {len(found)} times; "
                "fit with last_layer='sampled'."
            )
        features = found[0][1]
        return torch.cat([features, output[:, 1:]], 1) if self.beside else features


@contextmanager
def entries(module: nn.Module, names: Iterable[str]) -> Iterator[list[tuple[str, Tensor]]]:
    """A context that yields a list, to which the name and input of each of these layers is added when it runs."""
    noted: list[tuple[str, Tensor]] = []

    def note(name: str) -> Any:
        return lambda _, args, kwargs: noted.append((name, args[0] if args else kwargs["input"]))

    handles = [module.get_submodule(name).register_forward_pre_hook(note(name), with_kwargs=True) for name in names]
    try:
        yield noted
    finally:
        for handle in handles:
            handle.remove()
