"""The optimiser of a fit: Adam that a CUDA graph can record, with a learning rate for each kind of parameter."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from livi.family.objective import Bound
from livi.inference.recipe import Recipe


def make_optimiser(bound: Bound, recipe: Recipe, *, sharded: bool = False) -> torch.optim.Optimizer:
    """Adam with three learning rates: affine, nonlinear, and the hyper-parameters of noise, likelihood and prior.

    Args:
        sharded: each rank keeps the moments of some parameters, updates those, and sends them to the others.
    """
    affine, nonlinear, scales = bound.family.rates()
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
    return _sharded(groups, recipe.betas) if sharded else adam(groups, betas=recipe.betas)


def adam(parameters: Any, **options: Any) -> torch.optim.Adam:
    """Adam, fused into one call for each learning rate, and such that a CUDA graph can record it on a GPU.

    Change its learning rates by `set_rate`.
    """
    optimiser = torch.optim.Adam(parameters, **options)
    for group in optimiser.param_groups:
        device = group["params"][0].device
        if device.type == "cuda":
            group["lr"], group["capturable"] = torch.tensor(group["lr"], device=device, dtype=torch.float32), True
        if device.type in ("cpu", "cuda"):
            group["fused"], group["foreach"] = True, False
    return optimiser


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Change a learning rate in place, so that a recorded step sees it."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def clip(parameters: Iterable[Tensor], factor: float, usual_norm: Tensor) -> None:
    """Scale the gradient down to `factor` times the running average of its norm, and update that average.

    Reads no value back from the device.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    allowed = torch.where(usual_norm > 0, factor * usual_norm, norm)
    scale = torch.clamp(allowed / norm.clamp_min(1e-30), max=1.0)
    torch._foreach_mul_(gradients, scale)
    kept = torch.where(torch.isfinite(norm), norm * scale, usual_norm)
    usual_norm.copy_(torch.where(usual_norm > 0, 0.98 * usual_norm + 0.02 * kept, kept))


def _sharded(groups: list[dict[str, Any]], betas: tuple[float, float]) -> torch.optim.Optimizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's, about itself
        from torch.distributed.optim import ZeroRedundancyOptimizer
    optimiser = ZeroRedundancyOptimizer(groups, torch.optim.Adam, betas=betas)
    for whole, own in zip(optimiser.param_groups, optimiser.optim.param_groups, strict=True):
        whole |= {name: value for name, value in own.items() if name not in whole}  # Adam's own defaults
    return optimiser


def own_state(optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """The state of this rank's part of the optimiser; all of it where it is not sharded."""
    return getattr(optimiser, "optim", optimiser).state_dict()


def load_state(optimiser: torch.optim.Optimizer, state: dict[str, Any], *, own: bool) -> None:
    """Load what `own_state` gave on this rank (`own`), or `whole_state` on the first."""
    part = getattr(optimiser, "optim", optimiser) if own else optimiser
    part.load_state_dict(for_optimiser(state, part))


def whole_state(optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """The state that an optimiser which is not sharded would have. Of a sharded one, only the first rank gets it."""
    if hasattr(optimiser, "consolidate_state_dict"):
        optimiser.consolidate_state_dict(to=0)
        return optimiser.state_dict() if optimiser.rank == 0 else {}  # type: ignore[attr-defined]
    return optimiser.state_dict()


def for_optimiser(state: dict[str, Any], optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """An optimiser's saved state, made to fit this optimiser, which may live on another kind of device."""
    pairs = zip(state["param_groups"], optimiser.param_groups, strict=True)
    kept = ("lr", "capturable", "fused", "foreach")
    groups = [group | {name: mine[name] for name in kept} for group, mine in pairs]
    return state | {"state": dict(state["state"]), "param_groups": groups}
