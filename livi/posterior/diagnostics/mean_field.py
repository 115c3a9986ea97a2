"""A mean-field Gaussian for comparison: the bound that a short optimisation of one reaches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from livi.draws import normal
from livi.family.entropy.estimate import gaussian_constants
from livi.family.family import Family
from livi.family.objective import BoundTerms
from livi.model.priors import Normal, Prior, Relevance
from livi.model.problem import scaled_up
from livi.network import Strategy
from livi.posterior.diagnostics.bound import log_likelihood, mean_log_likelihood
from livi.posterior.diagnostics.estimate import NO_PRIOR, NUM_BATCHES, Estimate, Skipped, from_batches
from livi.posterior.diagnostics.subject import Effort
from livi.posterior.fitted import Fitted

FULL_BATCH, MINIBATCH = 512, 128  # examples of a step: all up to the first number, else so many random ones
MAX_WHOLE = 2048  # most examples of a step where all are needed
MEAN_RATE, SPREAD_RATE = 1e-2, 5e-2  # Adam's, of means and of log standard deviations; they fall to zero by a cosine
WIDTHS = (1.0, 0.5, 0.25, 0.1, 0.03)  # starts, as shares of the posterior's own standard deviations
DRAWS_OF_START, DRAWS_OF_STEP, DRAWS_OF_BOUND = 32, 4, 4 * NUM_BATCHES


@dataclass(frozen=True)
class MeanFieldBound:
    """The bound of independent Gaussian weights, for the same likelihood and prior as they were learned.

    It is what so many steps reached from the posterior's first component: the best mean-field Gaussian's is at least
    as high. Exact but for the error of its draws, as no entropy is linearised.
    """

    bound: Estimate
    steps: int


@dataclass(frozen=True)
class _Problem:
    """The bound of N(mean, diag(std^2)) as a function of its draws."""

    posterior: Fitted
    prior: Prior
    num_data: int
    strategy: Strategy | None

    def terms(self, mean: Tensor, log_std: Tensor, eps: Tensor, inputs: Any, targets: Tensor) -> BoundTerms:
        std = log_std.exp()
        theta = mean + std * eps  # (s, m)
        averaged = log_likelihood if torch.is_grad_enabled() else mean_log_likelihood
        fit = averaged(self.posterior, theta, inputs, targets, self.strategy).mean()
        return BoundTerms(
            log_likelihood=scaled_up(fit, self.num_data),
            log_prior=_expected_log_prior(self.prior, mean, std, theta),
            entropy=gaussian_constants(std, len(mean)),
        )


def check_mean_field(
    posterior: Fitted,
    inputs: Any,
    targets: Tensor,
    *,
    num_data: int,
    effort: Effort,
    strategy: Strategy | None,
    rng: torch.Generator | None,
) -> MeanFieldBound | Skipped:
    """Cost: for each step a forward and backward pass of 4 weight vectors on 128 examples, or on all where there are no
    more than 512, and 64 forward passes on all."""
    sampler = posterior.sampler
    if not isinstance(sampler, Family):
        return Skipped(f"not applicable: {type(sampler).__name__} has no bound to compare")
    if posterior.prior is None:
        return NO_PRIOR
    if getattr(posterior, "temperature", 1.0) != 1.0:
        return Skipped("not applicable: the posterior is a tempered one, which has another bound")
    if effort.mean_field_steps == 0:
        return Skipped("left out by mean_field_steps=0")
    if sampler.num_params > effort.max_mean_field:
        limit = f"max_mean_field={effort.max_mean_field}"
        return Skipped(f"not affordable: {sampler.num_params:,} weights are above {limit}")
    if posterior.likelihood.needs_all_examples and len(targets) > MAX_WHOLE:
        return Skipped(f"not affordable: {len(targets):,} examples in every step, as they depend on each other")
    problem = _Problem(posterior, posterior.prior, num_data, strategy)

    def draw(rows: int) -> Tensor:
        half = normal((rows // 2, sampler.num_params), rng, sampler.layout.dtype, sampler.layout.device)
        return torch.cat([half, -half])  # antithetic

    with torch.no_grad():
        mean, log_std = _start(problem, sampler, draw, inputs, targets, rng)
    mean, log_std = _climb(problem, mean, log_std, draw, inputs, targets, effort.mean_field_steps, rng)
    with torch.no_grad():
        bounds = [
            problem.terms(mean, log_std, draw(DRAWS_OF_BOUND // NUM_BATCHES), inputs, targets).bound
            for _ in range(NUM_BATCHES)
        ]
    found = from_batches(bounds)
    if not math.isfinite(found.value):
        return Skipped(f"not finite after {effort.mean_field_steps} steps")
    return MeanFieldBound(found, effort.mean_field_steps)


def _start(
    problem: _Problem,
    sampler: Family,
    draw: Callable[[int], Tensor],
    inputs: Any,
    targets: Tensor,
    rng: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """The first component's means, and its standard deviations or a share of them, whichever has the highest bound.

    Weights that only vary together must vary less each where they vary independently.
    """
    theta = sampler.draw(DRAWS_OF_START * sampler.num_components, rng).theta[:DRAWS_OF_START]
    mean, std = theta.mean(0), theta.std(0)
    part = _choice(problem, inputs, targets, rng)
    eps = draw(DRAWS_OF_STEP)
    starts = [(width * std).log() for width in WIDTHS]
    bounds = [problem.terms(mean, log_std, eps, *part).bound.nan_to_num(-math.inf) for log_std in starts]
    return mean, starts[int(torch.stack(bounds).argmax())]


@torch.enable_grad()
def _climb(
    problem: _Problem,
    mean: Tensor,
    log_std: Tensor,
    draw: Callable[[int], Tensor],
    inputs: Any,
    targets: Tensor,
    steps: int,
    rng: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    mean, log_std = mean.clone().requires_grad_(), log_std.clone().requires_grad_()
    groups = [{"params": [mean], "lr": MEAN_RATE}, {"params": [log_std], "lr": SPREAD_RATE}]
    optimiser = torch.optim.Adam(groups, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        loss = -problem.terms(mean, log_std, draw(DRAWS_OF_STEP), *_choice(problem, inputs, targets, rng)).bound
        # Not backward(), which would leave gradients in the likelihood's and the prior's own parameters.
        mean.grad, log_std.grad = torch.autograd.grad(loss, (mean, log_std))
        optimiser.step()
        schedule.step()
    return mean.detach(), log_std.detach()


def _choice(problem: _Problem, inputs: Any, targets: Tensor, rng: torch.Generator | None) -> tuple[Any, Tensor]:
    """The examples of a step; all of them where a last layer is integrated out, as they then depend on each other."""
    count = len(targets)
    if count <= FULL_BATCH or problem.posterior.likelihood.needs_all_examples:
        return inputs, targets
    source = targets.device if rng is None else rng.device
    rows = torch.randint(count, (MINIBATCH,), generator=rng, device=source).to(targets.device)

    def some(leaf: Any) -> Any:
        whole = isinstance(leaf, Tensor) and leaf.ndim > 0 and len(leaf) == count
        return leaf[rows] if whole else leaf

    return pytree.tree_map(some, inputs), targets[rows]


def _expected_log_prior(prior: Prior, mean: Tensor, std: Tensor, theta: Tensor) -> Tensor:
    """E log p(theta): in closed form under Gaussian priors, of which the draws would add most of the error."""
    if type(prior) in (Normal, Relevance):  # not of a subclass, whose log_prob may be another
        assert isinstance(prior, (Normal, Relevance))
        return prior.log_prob(mean[None])[0] - 0.5 * (std / prior.scale()).square().sum()
    return prior.log_prob(theta).mean()
