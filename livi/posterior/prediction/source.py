"""Which networks answer: drawn anew, or the same ones every time, until what they are drawn from changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi.family.family import WeightSampler
from livi.posterior.prediction.networks import BLOCK, Networks, draw_networks


class Source(NamedTuple):
    """What networks are drawn from; see `draw_networks`."""

    sampler: WeightSampler
    buffers: Mapping[str, Tensor]
    calibration: Any

    def networks(self, num_samples: int, rng: torch.Generator | None) -> Iterable[Networks]:
        """So many networks: a list if they fit into one block, else drawn block by block."""
        layout, (sampler, buffers, calibration) = self.sampler.layout, self
        drawn = draw_networks(sampler, num_samples, rng, buffers=buffers, calibration=calibration)
        return list(drawn) if num_samples * layout.num_params * layout.dtype.itemsize <= BLOCK else drawn

    def state(self) -> tuple[Any, ...]:
        """A key that changes with the sampler or any tensor behind the networks: their addresses and versions."""
        layout = self.sampler.layout
        modules = [part for part in (self.sampler, layout.module) if isinstance(part, nn.Module)]
        held = [tensor for part in modules for tensor in (*part.parameters(), *part.buffers())]
        held += [leaf for leaf in pytree.tree_leaves((self.buffers, self.calibration)) if isinstance(leaf, Tensor)]
        versions = ((each.data_ptr(), None if each.is_inference() else each._version) for each in held)
        return id(self.sampler), layout.device, layout.dtype, *versions


class SameNetworks:
    """The same networks every time, until their source changes; kept if they fit into one block."""

    def __init__(self) -> None:
        self.kept: dict[Any, list[Networks]] = {}

    def of(self, source: Source, num_samples: int) -> Iterable[Networks]:
        key = (num_samples, *source.state())
        if key not in self.kept:
            drawn = source.networks(num_samples, torch.Generator(source.sampler.layout.device).manual_seed(0))
            if not isinstance(drawn, list):
                return drawn
            self.kept = {key: drawn}
        return self.kept[key]

    def __getstate__(self) -> dict[str, Any]:
        return {"kept": {}}  # networks that can be drawn again, and would be most of a pickle
