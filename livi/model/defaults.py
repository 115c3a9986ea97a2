"""The sizes up to which a network counts as small, middle or large, and the default prior of each."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any

import torch

from livi.model.priors import Normal, Prior
from livi.network import Layout, Slot, as_call

SMALL, MIDDLE, LARGE = 300, 5_000, 1_000_000
PART = 2.0  # of a part of a classifier, the prior's scale times the root of a layer's inputs


def default_prior(layout: Layout, *, classes: bool, inputs: Any = None) -> Prior:
    """N(0, 1) for small networks; for larger ones by the fan-in of each layer, within limits; for parts see below.

    `inference/rules.py` has the table. N(0, 0.2^2) is what a weight decay of 5e-4 means for 50,000 examples.

    Args:
        inputs: a few examples, by which the last layer is found.
    """
    if has_fixed_matrices(layout):
        return _of_a_part(layout, classes)
    m = layout.num_params
    if m <= SMALL or m > LARGE:
        return Normal(_scale(m, 1))
    last = _last(layout, inputs) if m <= MIDDLE and classes else ()
    gains = [8.0 if slot in last else 3.0 for slot in layout.slots]
    scales = [_scale(m, slot.fan_in, gain) for gain, slot in zip(gains, layout.slots, strict=True)]
    each = zip(layout.slots, scales, strict=True)
    return Normal(torch.cat([torch.full((slot.numel,), scale) for slot, scale in each]))


@torch.no_grad()
def _last(layout: Layout, inputs: Any) -> tuple[Slot, ...]:
    """The weights of the layer that begins last in a forward pass; without inputs, of the one that was made last."""
    if inputs is None:
        return layout.groups[-1].slots
    begun = [layout.groups[-1].slots]
    args, kwargs = as_call(inputs)
    with ExitStack() as hooks:
        for group in layout.groups:
            owner = layout.module.get_submodule(group.slots[0].name.rpartition(".")[0])
            note = lambda *_, own=group.slots: begun.append(own)  # noqa: E731
            hooks.callback(owner.register_forward_pre_hook(note).remove)
        layout.apply(layout.flatten(), *args, batch_statistics=True, **kwargs)
    return begun[-1]


def has_fixed_matrices(layout: Layout) -> bool:
    """Whether weight matrices stay fixed, so that the others are a part of the network."""
    return any(layout.module.get_parameter(name).ndim > 1 for name in layout.fixed)


def _scale(size: int, fan_in: int, gain: float = 3.0) -> float:
    """The scale of a weight of a network with so many weights."""
    if size <= SMALL:
        return 1.0
    if size > LARGE:
        return 0.2
    least, most = (1.0, math.inf) if size <= MIDDLE else (0.3, 1.0)
    return max(least, min(most, gain / math.sqrt(fan_in)))


def _of_a_part(layout: Layout, classes: bool) -> Prior:
    """The prior where weight matrices are fixed, which does not depend on how many are, nor on which.

    Biases are as wide as the weights of their layer. Of a classifier both have N(0, 4 / inputs of the layer): what is
    fixed was most often trained on the same rows, so that its features tell classes apart better there than on new
    rows, and a wide prior lets the rest believe them. Of numbers, whose noise is learned, they have the prior of a
    whole network of that size. What has no matrix in its layer, such as a norm, has N(0, 1).
    """
    parameters = dict(layout.module.named_parameters())
    inputs: dict[str, int] = {}
    for name, parameter in parameters.items():
        if parameter.ndim > 1:
            owner = name.rpartition(".")[0]
            inputs[owner] = max(inputs.get(owner, 1), parameter.numel() // parameter.shape[0])
    m, parts = sum(parameter.numel() for parameter in parameters.values()), []
    for slot in layout.slots:
        fan_in = slot.fan_in if len(slot.shape) > 1 else inputs.get(slot.name.rpartition(".")[0])
        if fan_in is None:
            scale = 1.0
        elif classes:
            scale = PART / math.sqrt(fan_in)
        else:
            scale = _scale(m, fan_in)
        parts.append(torch.full((slot.numel,), scale))
    return Normal(torch.cat(parts))
