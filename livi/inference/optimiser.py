"""The optimiser of a fit: Adam that a CUDA graph can record, with a learning rate for each kind of parameter."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from livi.family.objective import Bound
from livi.inference.recipe import Recipe


def make_optimiser(bound: Bound, recipe: Recipe) -> torch.optim.Adam:
    """Adam with three learning rates: affine, nonlinear, and the hyper-parameters of noise, likelihood and prior."""
    affine, nonlinear, scales = bound.posterior.rates()
    hyper = [*scales, *bound.likelihood.parameters(), *bound.prior.parameters()]
    groups = [
        {"params": list(dict.fromkeys(parameters)), "lr": rate, "peak": rate}
        for parameters, rate in (
            (affine, recipe.affine_rate),
            (nonlinear, recipe.nonlinear_rate),
            (hyper, recipe.hyper_rate),
        )
        if parameters
    ]
    return adam(groups, betas=recipe.betas)


def adam(parameters: Any, **options: Any) -> torch.optim.Adam:
    """Adam whose step can be recorded where its parameters are on a GPU. Change its learning rates by `set_rate`."""
    optimiser = torch.optim.Adam(parameters, **options)
    for group in optimiser.param_groups:
        device = group["params"][0].device
        if device.type == "cuda":
            group["lr"], group["capturable"] = torch.tensor(group["lr"], device=device), True
            group["fused"], group["foreach"] = True, False
    return optimiser


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Change a learning rate where a recording looks for it."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def for_optimiser(state: dict[str, Any], optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """An optimiser's saved state for this one, which may live on another kind of device."""
    pairs = zip(state["param_groups"], optimiser.param_groups, strict=True)
    kept = ("lr", "capturable", "fused", "foreach")
    return state | {"param_groups": [group | {name: mine[name] for name in kept} for group, mine in pairs]}
