"""What enters a layer, in place of a network's inputs, where it has been computed before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class Entered:
    """Inputs by which `Layout.apply` runs one layer alone, whose output is the network's.

    Args:
        layer: its name.
        values: what enters it, with a row for each example.
    """

    layer: str
    values: Tensor

    def inside(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Of the network's tensors by name those of the layer, by their names there."""
        before = f"{self.layer}."
        return {name.removeprefix(before): tensor for name, tensor in named.items() if name.startswith(before)}


def _rebuilt(leaves: Iterable[Tensor], layer: str) -> Entered:
    [values] = leaves
    return Entered(layer, values)


pytree.register_pytree_node(Entered, lambda one: ([one.values], one.layer), _rebuilt)
