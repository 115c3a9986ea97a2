"""The sizes up to which a network counts as small, middle or large, and the default prior of each."""

from __future__ import annotations

import math

import torch

from livi.model.priors import Normal, Prior
from livi.network import Layout

SMALL, MIDDLE, LARGE = 300, 5_000, 1_000_000


def default_prior(layout: Layout, *, classes: bool) -> Prior:
    """N(0, 1) for small networks; for larger ones by the fan-in of each layer, within limits.

    `inference/rules.py` has the table. N(0, 0.2^2) is what a weight decay of 5e-4 means for 50,000 examples.
    """
    m = layout.num_params
    if m <= SMALL:
        return Normal(1.0)
    if m > LARGE:
        return Normal(0.2)
    last = layout.groups[-1].slots
    least, most = (1.0, math.inf) if m <= MIDDLE else (0.3, 1.0)
    gains = [8.0 if m <= MIDDLE and classes and slot in last else 3.0 for slot in layout.slots]
    scales = [
        max(least, min(most, gain / math.sqrt(slot.fan_in))) for gain, slot in zip(gains, layout.slots, strict=True)
    ]
    each = zip(layout.slots, scales, strict=True)
    return Normal(torch.cat([torch.full((slot.numel,), scale) for slot, scale in each]))
