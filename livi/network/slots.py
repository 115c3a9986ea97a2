"""Where each parameter stands in theta, and which of them make up a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Slot:
    """One stochastic parameter: theta[start:stop] reshaped to `shape`. Tied names share one slot."""

    name: str
    names: tuple[str, ...]
    shape: torch.Size
    start: int
    stop: int

    @property
    def numel(self) -> int:
        return self.stop - self.start

    @property
    def fan_in(self) -> int:
        """Inputs that feed one output unit: 1 for vectors such as biases and norm scales."""
        return max(1, self.numel // self.shape[0]) if len(self.shape) > 1 else 1


@dataclass(frozen=True)
class Group:
    """The slots of one layer (one submodule), contiguous in theta."""

    name: str
    slots: tuple[Slot, ...]

    @property
    def start(self) -> int:
        return self.slots[0].start

    @property
    def stop(self) -> int:
        return self.slots[-1].stop

    @property
    def numel(self) -> int:
        return self.stop - self.start


def grouped(slots: Sequence[Slot]) -> tuple[Group, ...]:
    """Neighbouring slots whose names share everything before the last dot."""
    layers: list[tuple[str, list[Slot]]] = []
    for slot in slots:
        owner = slot.name.rpartition(".")[0]
        if layers and layers[-1][0] == owner:
            layers[-1][1].append(slot)
        else:
            layers.append((owner, [slot]))
    return tuple(Group(owner or "(root)", tuple(members)) for owner, members in layers)
