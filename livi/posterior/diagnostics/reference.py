"""References that a bound is compared with: the prior, a model without weights, a mean-field Gaussian."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from livi.draws import normal
from livi.family.entropy.estimate import gaussian_constants
from livi.family.implicit import ImplicitPosterior
from livi.family.noise import FixedNoise
from livi.model.likelihoods import Bernoulli, Categorical
from livi.model.problem import scaled_up
from livi.network import Strategy
from livi.posterior.diagnostics.bound import mean_log_likelihood, mean_over_examples
from livi.posterior.diagnostics.estimate import NO_PRIOR, NUM_BATCHES, Estimate, Skipped, from_batches
from livi.posterior.diagnostics.mean_field import MeanFieldBound, check_mean_field
from livi.posterior.diagnostics.subject import Effort, generators_of
from livi.posterior.fitted import Fitted


@dataclass(frozen=True)
class PriorBound:
    """The bound of q = prior: E_prior log p(D | theta), since KL(q || prior) is 0.

    The log-likelihood has a heavy lower tail under most priors. `worst_share` is the part of the single worst draw in
    how far all draws together fall short of the best: 1/num_draws where all are alike. Where it is large, draws that
    are worse still were missed, and the true value lies lower.
    """

    bound: Estimate
    num_draws: int
    worst_share: float
    exact_layer: bool = False  # whether the last layer is integrated out, so that draws are of the others alone


@dataclass(frozen=True)
class NoiseCost:
    """KL(N(0, noise^2) || prior): the nats that a posterior pays for so narrow a noise alone."""

    std: float  # root mean square over weights and components
    nats: float
    fixed: bool  # not learned


@dataclass(frozen=True)
class ReferenceCheck:
    """What the bound should exceed, in nats for the whole data set.

    `equal` is the log evidence, exact, of a model without weights to which all classes or labels are equally probable.
    """

    prior: PriorBound | Skipped
    equal: float | Skipped
    mean_field: MeanFieldBound | Skipped
    noise: NoiseCost | Skipped


@torch.no_grad()
def check_references(
    posterior: Fitted,
    inputs: Any,
    targets: Tensor,
    *,
    num_data: int,
    effort: Effort,
    strategy: Strategy | None,
    rng: torch.Generator | None,
) -> ReferenceCheck:
    """Cost: num_prior forward passes, and that of `check_mean_field`."""
    return ReferenceCheck(
        prior=_prior(posterior, inputs, targets, num_data, effort.num_prior, strategy, rng),
        equal=_equal(posterior, inputs, targets, num_data, strategy),
        mean_field=check_mean_field(
            posterior, inputs, targets, num_data=num_data, effort=effort, strategy=strategy, rng=rng
        ),
        noise=_noise_cost(posterior, rng),
    )


def _prior(
    posterior: Fitted,
    inputs: Any,
    targets: Tensor,
    num_data: int,
    num_draws: int,
    strategy: Strategy | None,
    rng: torch.Generator | None,
) -> PriorBound | Skipped:
    prior, layout = posterior.prior, posterior.sampler.layout
    if prior is None:
        return NO_PRIOR
    rows = -(-num_draws // NUM_BATCHES)
    batches = []
    for _ in range(NUM_BATCHES):
        try:
            theta = prior.sample(rows, layout.num_params, rng).to(layout.device, layout.dtype)
        except NotImplementedError:
            return Skipped(f"not applicable: {type(prior).__name__} cannot be drawn from")
        batches.append(scaled_up(mean_log_likelihood(posterior, theta, inputs, targets, strategy), num_data))
    values = torch.stack(batches)  # (batches, rows)
    broken = int((~torch.isfinite(values)).sum())
    if broken:
        return Skipped(f"not finite: {broken} of {values.numel()} draws from the prior give the data no probability")
    short = values.max() - values
    share = (short.max() / short.sum()).nan_to_num(1.0 / values.numel())
    exact_layer = posterior.likelihood.needs_all_examples
    return PriorBound(from_batches(values.mean(1)), values.numel(), share.item(), exact_layer)


def _equal(
    posterior: Fitted, inputs: Any, targets: Tensor, num_data: int, strategy: Strategy | None
) -> float | Skipped:
    likelihood = posterior.likelihood
    if not isinstance(likelihood, (Categorical, Bernoulli)):
        return Skipped(f"not applicable: {type(likelihood).__name__} is not one of classes or labels")

    def undecided(outputs: Tensor, answers: Tensor) -> Tensor:
        zeros = torch.zeros_like(outputs)
        chances = likelihood.probabilities(zeros)
        return likelihood.log_prob(zeros, answers).where(torch.isclose(chances, chances.flatten()[:1]).all(), math.nan)

    theta = posterior.sampler.layout.flatten()[None]
    value = scaled_up(mean_over_examples(undecided, posterior, theta, inputs, targets, strategy).item(), num_data)
    if math.isnan(value):
        return Skipped(f"not applicable: outputs of 0 are not equal probabilities to {type(likelihood).__name__}")
    return value


def _noise_cost(posterior: Fitted, rng: torch.Generator | None) -> NoiseCost | Skipped:
    sampler, prior = posterior.sampler, posterior.prior
    if not isinstance(sampler, ImplicitPosterior) or prior is None:
        return Skipped("not applicable: no noise and prior to compare")
    layout, count = sampler.layout, sampler.num_params
    costs, squares = [], []
    for _, std in generators_of(sampler):
        eps = normal((NUM_BATCHES, count), rng, layout.dtype, layout.device)
        costs.append(-prior.log_prob(std * eps).double().mean() - gaussian_constants(std.double(), count))
        squares.append(std.double().square().expand(count).mean())
    return NoiseCost(
        std=torch.stack(squares).mean().sqrt().item(),
        nats=torch.stack(costs).mean().item(),
        fixed=all(isinstance(noise, FixedNoise) for noise in sampler.noises),
    )
