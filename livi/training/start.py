"""Where a fit starts: maximum a posteriori weights, the best of a few short runs trained side by side."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from livi.data import Data
from livi.latents import normal
from livi.layout import Layout, Strategy, apply_many, as_call
from livi.likelihoods import Gaussian, Likelihood
from livi.priors import Prior
from livi.training.recipe import Recipe


def map_weights(
    layout: Layout,
    likelihood: Likelihood,
    prior: Prior,
    data: Data,
    recipe: Recipe,
    *,
    seed: int,
    strategy: Strategy | None = None,
) -> tuple[Tensor, Tensor]:  # (R, m), (R,)
    """`map_restarts` MAP fits as rows of one tensor, best first, with their log joint densities.

    Row 0 starts at the module's own weights, the others at fresh initialisations of it. Only the weights and the
    likelihood's parameters are fitted: a MAP estimate of the prior's scale would shrink it to nothing.
    """
    theta = initial_weights(layout, recipe.map_restarts, seed).requires_grad_()
    optimiser = torch.optim.Adam([theta, *likelihood.parameters()], recipe.map_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, recipe.map_steps))
    step, epoch = 0, 0
    joint = theta.new_full((theta.shape[0],), float("-inf"))
    floor = noise_floor(likelihood)
    while step < recipe.map_steps:
        for inputs, targets in data.epoch(seed + epoch):
            joint = log_joint(layout, theta, likelihood, prior, inputs, targets, data.num_data, strategy)
            optimiser.zero_grad()
            (-joint.sum() / data.num_data).backward()
            optimiser.step()
            schedule.step()
            hold_above(likelihood, floor)
            step += 1
            if step == recipe.map_steps:
                break
        epoch += 1
    with torch.no_grad():
        inputs, targets = data.first()
        joint = log_joint(layout, theta, likelihood, prior, inputs, targets, data.num_data, strategy)
        joint = torch.where(torch.isfinite(joint), joint, float("-inf"))
        order = joint.argsort(descending=True)
    if not bool(torch.isfinite(joint).any()):
        raise ValueError(
            "start: expected a finite log joint density after the MAP fit, got none; "
            "standardise inputs and targets, or lower Recipe.map_rate."
        )
    return theta.detach()[order], joint[order]


def log_joint(
    layout: Layout,
    theta: Tensor,  # (R, m)
    likelihood: Likelihood,
    prior: Prior,
    inputs: Any,
    targets: Tensor,
    num_data: int,
    strategy: Strategy | None = None,
) -> Tensor:  # (R,)
    """log p(D | theta) + log p(theta), the first scaled up from the batch."""
    args, kwargs = as_call(inputs)
    outputs = apply_many(layout, theta, *args, batch_statistics=True, strategy=strategy, **kwargs)
    return num_data * likelihood.log_prob(outputs, targets).mean(1) + prior.log_prob(theta)


def initial_weights(layout: Layout, count: int, seed: int) -> Tensor:  # (count, m)
    """The module's weights, then fresh draws from its layers' own initialisers (or, without one, perturbed weights)."""
    rows = [layout.flatten()]
    with torch.random.fork_rng(devices=[layout.device] if layout.device.type == "cuda" else []):
        torch.manual_seed(1_000_003 * (seed + 1))  # a user's own manual_seed(seed) made the module: draw others
        rows += [_reinitialised(layout) for _ in range(count - 1)]
    return torch.stack(rows).clone()


def _reinitialised(layout: Layout) -> Tensor:
    module = copy.deepcopy(layout.module)
    fresh: set[str] = set()
    for prefix, layer in module.named_modules():
        reset = getattr(layer, "reset_parameters", None)
        if callable(reset):
            reset()
            fresh |= {f"{prefix}.{name}" if prefix else name for name, _ in layer.named_parameters(recurse=False)}
    tensors = dict(module.named_parameters())
    for slot in layout.slots:
        if slot.name not in fresh:
            kept = tensors[slot.name].detach()
            noise = normal(tuple(kept.shape), None, kept.dtype, kept.device)
            tensors[slot.name] = nn.Parameter(kept + 0.1 * kept.square().mean().sqrt().clamp_min(0.1) * noise)
    return layout.flatten(tensors)


def noise_floor(likelihood: Likelihood) -> float | None:
    """A tenth of the observation noise at the start: a MAP fit alone would drive it to zero with its residuals."""
    if isinstance(likelihood, Gaussian) and isinstance(likelihood.log_std, nn.Parameter):
        return 0.1 * float(likelihood.obs_std().detach())
    return None


def hold_above(likelihood: Likelihood, floor: float | None) -> None:
    if floor is not None and isinstance(likelihood, Gaussian):
        with torch.no_grad():
            likelihood.log_std.clamp_(min=torch.tensor(floor).log().item())
