"""Networks drawn from a posterior: weights with the BatchNorm statistics that belong to them, a block at a time.

A theta was trained with BatchNorm normalising by the batch, under statistics of its own. So every drawn theta gets its
own for prediction too, measured on calibration inputs: a few hundred training examples that a fitted posterior keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import debug_unwrap

from livi.family.ensemble import Ensemble
from livi.family.family import WeightSampler
from livi.network import Layout
from livi.posterior.prediction.chunks import measure_statistics, rows_of

BLOCK = 2**28  # bytes of weights held at a time


class Networks(NamedTuple):
    """Weight vectors, and the buffers that they are evaluated with: shared, or with one row per vector."""

    theta: Tensor  # (S, m)
    buffers: dict[str, Tensor]


@torch.inference_mode(mode=False)  # they are asked again, perhaps for gradients of their inputs
@torch.no_grad()
def draw_networks(
    sampler: WeightSampler,
    num_samples: int,
    rng: torch.Generator | None = None,
    *,
    buffers: Mapping[str, Tensor] | None = None,
    calibration: Any = None,
) -> Iterator[Networks]:
    """So many networks in all, in blocks of at most 256 MB of weights (but at least one vector of each component).

    Of a mixture all blocks but the last have as many of each component, so that its shares are equal over all of them.
    The blocks depend on the number of weights alone, so that the same random numbers give the same networks.

    Args:
        buffers: BatchNorm statistics; of an `Ensemble` also with one row per member.
        calibration: inputs to measure each network's own statistics on, in place of `buffers`.

    Raises:
        ValueError: the sampler gives another number of weights than it was asked for.
    """
    layout, shared = sampler.layout, dict(buffers or {})
    chosen = sampler.choose(num_samples, rng) if isinstance(sampler, Ensemble) else None
    size = max(1, BLOCK // (layout.num_params * layout.dtype.itemsize))
    if size < num_samples:
        components = getattr(sampler, "num_components", 1)  # samplers of one's own need not have it
        size = max(1, size // components) * components
    for start in range(0, num_samples, size):
        rows = slice(start, min(start + size, num_samples))
        if isinstance(sampler, Ensemble) and chosen is not None:
            theta, own = sampler.theta[chosen[rows]], rows_of(layout, shared, chosen[rows])
        else:
            theta, own = sampler.sample(rows.stop - rows.start, rng), shared
        expected = (rows.stop - rows.start, layout.num_params)
        if theta.shape != expected:
            raise ValueError(f"sampler: expected samples of shape {expected}, got {tuple(theta.shape)}.")
        yield with_statistics(layout, theta, own, calibration)


@torch.inference_mode(mode=False)
@torch.no_grad()
def with_statistics(
    layout: Layout,
    theta: Tensor,  # (S, m)
    buffers: Mapping[str, Tensor],
    calibration: Any,
) -> Networks:
    """These weights with their own BatchNorm statistics if there are calibration inputs, else with the given ones."""
    own = dict(buffers)
    if calibration is not None:
        own |= measure_statistics(layout, theta, calibration)
    # Constants, also where they were drawn inside a transform such as torch.func.grad, which wraps what is made there.
    return Networks(debug_unwrap(theta), {name: debug_unwrap(buffer) for name, buffer in own.items()})


def together(layout: Layout, blocks: Iterable[Networks]) -> Networks:
    """All networks of several blocks in one."""
    parts = list(blocks)
    known = {name: buffer.shape for name, buffer in layout.module.named_buffers()}
    buffers = {
        name: buffer if buffer.shape == known[name] else torch.cat([part.buffers[name] for part in parts])
        for name, buffer in parts[0].buffers.items()
    }
    return Networks(torch.cat([part.theta for part in parts]), buffers)
