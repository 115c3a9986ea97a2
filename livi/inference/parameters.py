"""The learned parameters of a bound, by name: copied, put back, averaged."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def values(module: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters."""
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


@torch.no_grad()
def assign(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Set all parameters, in place; the values may be on another device."""
    for name, parameter in module.named_parameters():
        parameter.copy_(values[name])


@torch.no_grad()
def blend(average: Mapping[str, Tensor], module: nn.Module, decay: float) -> None:
    """One step of an exponential moving average of the parameters."""
    for name, parameter in module.named_parameters():
        average[name].lerp_(parameter, 1.0 - decay)
