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
    """`map_restarts` MAP fits as rows of one tensor, best first, with the log likelihood of each.

    Row 0 starts at the module's own weights, the others at fresh initialisations of it. Only the weights and the
    likelihood's parameters are fitted: a MAP estimate of the prior's scale would shrink it to nothing.
    """
    theta = initial_weights(layout, recipe.map_restarts, seed).requires_grad_()
    optimiser = torch.optim.Adam([theta, *likelihood.parameters()], recipe.map_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, recipe.map_steps))
    step, epoch = 0, 0
    floor = noise_floor(likelihood)
    while step < recipe.map_steps:
        for inputs, targets in data.epoch(seed + epoch):
            fit, penalty = log_joint(layout, theta, likelihood, prior, inputs, targets, data.num_data, strategy)
            joint = fit + penalty
            optimiser.zero_grad()
            (-joint.sum() / data.num_data).backward()
            _forget_non_finite(optimiser)
            optimiser.step()
            schedule.step()
            hold_above(likelihood, floor)
            step += 1
            if step % 50 == 0:
                _replace_lost(theta, joint)
            if step == recipe.map_steps:
                break
        epoch += 1
    log_likelihood, log_prior = over_data(layout, theta.detach(), likelihood, prior, data, strategy)
    score = (log_likelihood + log_prior).nan_to_num(nan=float("-inf"))
    if not bool(torch.isfinite(score).any()):
        raise ValueError(
            "start: expected a finite log joint density after the MAP fit, got none; "
            "standardise inputs and targets, or lower Recipe.map_rate."
        )
    order = score.argsort(descending=True) if recipe.map_steps else torch.arange(len(score), device=score.device)
    return theta.detach()[order], log_likelihood[order]


@torch.no_grad()
def over_data(
    layout: Layout,
    theta: Tensor,  # (R, m)
    likelihood: Likelihood,
    prior: Prior,
    data: Data,
    strategy: Strategy | None = None,
    most: int = 40,
) -> tuple[Tensor, Tensor]:  # (R,), (R,)
    """log p(D | theta) and log p(theta), the first from one epoch's batches, at most so many, the same for all rows."""
    total, seen, log_prior = torch.zeros_like(theta[:, 0]), 0, torch.zeros_like(theta[:, 0])
    for (inputs, targets), _ in zip(data.epoch(0), range(most), strict=False):
        values, log_prior = log_joint(layout, theta, likelihood, prior, inputs, targets, len(targets), strategy)
        total, seen = total + values, seen + len(targets)
    return total * (data.num_data / max(1, seen)), log_prior


def _forget_non_finite(optimiser: torch.optim.Optimizer) -> None:
    """One restart that ran away must not take the others along through what they share."""
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.grad.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


@torch.no_grad()
def _replace_lost(theta: Tensor, joint: Tensor) -> None:
    """Rows with a non-finite density go on from the best row."""
    score = joint.nan_to_num(nan=float("-inf"))
    theta.copy_(torch.where(torch.isfinite(score)[:, None], theta, theta[score.argmax()]))


def log_joint(
    layout: Layout,
    theta: Tensor,  # (R, m)
    likelihood: Likelihood,
    prior: Prior,
    inputs: Any,
    targets: Tensor,
    num_data: int,
    strategy: Strategy | None = None,
) -> tuple[Tensor, Tensor]:  # (R,), (R,)
    """log p(D | theta), scaled up from the batch to num_data examples, and log p(theta)."""
    args, kwargs = as_call(inputs)
    outputs = apply_many(layout, theta, *args, batch_statistics=True, strategy=strategy, **kwargs)
    return num_data * likelihood.log_prob(outputs, targets).mean(1), prior.log_prob(theta)


def initial_weights(layout: Layout, count: int, seed: int) -> Tensor:  # (count, m)
    """The module's weights, then fresh draws from its layers' own initialisers (or, without one, perturbed weights)."""
    rows = [layout.flatten()]
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
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
