"""Which weights a diagnosis examines, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch

from livi.network import Layout


class Layers:
    """Which weights are examined: all of a small network, random ones from each layer of a large one.

    A layer keeps max_weights times its share of the weights, and at least 64 (all, where it has no more).
    """

    def __init__(self, layout: Layout, max_weights: int, also: Sequence[int] = ()) -> None:
        self.layout = layout
        self.names = tuple(group.name for group in layout.groups)
        self.totals = tuple(layout.group_sizes)
        rng = torch.Generator().manual_seed(0)  # a choice of weights, not of draws: the same for every posterior
        chosen, self.kept = [], []
        for group in layout.groups:
            share = max(64, round(max_weights * group.numel / layout.num_params))
            inside = torch.arange(group.start, group.stop, device=rng.device)
            if layout.num_params > max_weights and share < group.numel:
                inside = group.start + torch.randperm(group.numel, generator=rng, device=rng.device)[:share]
            named = [i for i in also if group.start <= i < group.stop]
            inside = torch.cat([inside, inside.new_tensor(named)]).unique()
            chosen.append(inside)
            self.kept.append(len(inside))
        self.columns = torch.cat(chosen)  # (p,) places in theta
        stops = [0, *accumulate(self.kept)]
        self.slices = tuple(slice(start, stop) for start, stop in pairwise(stops))

    @property
    def num_kept(self) -> int:
        return len(self.columns)

    @property
    def complete(self) -> bool:
        return self.num_kept == self.layout.num_params


def weight_name(layout: Layout, place: int) -> str:
    """The name of theta[place].

    >>> from torch import nn
    >>> weight_name(Layout(nn.Linear(2, 3)), 3)
    'weight[1, 1]'
    """
    slot = next(slot for slot in layout.slots if slot.start <= place < slot.stop)
    index, rest = [], place - slot.start
    for size in reversed(slot.shape):
        rest, here = divmod(rest, size)
        index.append(here)
    return f"{slot.name}[{', '.join(map(str, reversed(index)))}]" if index else slot.name
