"""Up to how many weights a network is small, middle or large, and the prior of each where the user has none."""

from __future__ import annotations

import math

import torch

from livi.model.priors import Normal, Prior
from livi.network import Layout

SMALL, MIDDLE, LARGE = 300, 5_000, 1_000_000


def default_prior(layout: Layout, *, classes: bool) -> Prior:
    """N(0, 1), wider in narrow layers of a middle-sized network, narrower beyond a million weights.

    `inference/rules.py` has the table. N(0, 0.2^2) is what a weight decay of 5e-4 means for 50,000 examples.
    """
    if layout.num_params > LARGE:
        return Normal(0.2)
    if layout.num_params <= SMALL or layout.num_params > MIDDLE:
        return Normal(1.0)
    last = layout.groups[-1].slots
    gains = [8.0 if classes and slot in last else 3.0 for slot in layout.slots]
    scales = [max(1.0, gain / math.sqrt(slot.fan_in)) for gain, slot in zip(gains, layout.slots, strict=True)]
    each = zip(layout.slots, scales, strict=True)
    return Normal(torch.cat([torch.full((slot.numel,), scale) for slot, scale in each]))
