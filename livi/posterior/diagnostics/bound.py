"""The terms of the bound with standard errors, and the draws behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from livi.family.entropy import EntropyEstimator
from livi.family.family import Draw, Estimation, Family
from livi.family.implicit import ImplicitPosterior
from livi.family.objective import BoundTerms
from livi.model.problem import scaled_up
from livi.network import Strategy, apply_many, as_call
from livi.posterior.diagnostics.estimate import NO_PRIOR, Estimate, Skipped, from_batches
from livi.posterior.diagnostics.layers import Layers
from livi.posterior.diagnostics.subject import batches
from livi.posterior.fitted import Fitted
from livi.posterior.prediction.chunks import Call, in_chunks, measure_statistics, rows_of


@dataclass(frozen=True)
class BoundCheck:
    """E_q log p(D | theta), E_q log p(theta), H[q] and their sum, in nats for the whole data set.

    The entropy is the linearised one, so the sum is L' (15), for a mixture with the mean of its components' entropies.
    Network outputs are those of prediction: BatchNorm uses statistics of each theta, not the batch's.
    """

    log_likelihood: Estimate
    log_prior: Estimate | Skipped
    entropy: Estimate | Skipped
    bound: Estimate | Skipped
    estimator: str  # of the entropy


@torch.no_grad()
def check_bound(
    posterior: Fitted,
    inputs: Any,
    targets: Tensor,
    layers: Layers,
    *,
    num_data: int,
    num_samples: int,
    estimator: EntropyEstimator,
    strategy: Strategy | None,
    rng: torch.Generator | None,
) -> tuple[BoundCheck, Tensor]:
    """The terms, and the draws' chosen weights (S, p), on the CPU. Cost: S forward passes, an entropy a batch."""
    terms, kept = [], []
    for batch in batches(posterior.sampler, num_samples, rng):
        fit = mean_log_likelihood(posterior, batch.theta, inputs, targets, strategy)
        prior = posterior.prior
        terms.append(
            BoundTerms(
                log_likelihood=scaled_up(fit.mean(), num_data),
                log_prior=_unknown(fit) if prior is None else prior.log_prob(batch.theta).mean(),
                entropy=_entropy(posterior, batch, estimator, rng, fit),
            )
        )
        kept.append(batch.theta[:, layers.columns.to(batch.theta.device)].cpu())
    return _summarise(posterior, terms, estimator), torch.cat(kept)


def _summarise(posterior: Fitted, terms: list[BoundTerms], estimator: EntropyEstimator) -> BoundCheck:
    no_entropy = Skipped(f"not applicable: {type(posterior.sampler).__name__} has no density")
    learned = isinstance(posterior.sampler, Family)
    log_prior = NO_PRIOR if posterior.prior is None else from_batches([term.log_prior for term in terms])
    entropy = from_batches([term.entropy for term in terms]) if learned else no_entropy
    missing = [part for part in (log_prior, entropy) if isinstance(part, Skipped)]
    return BoundCheck(
        log_likelihood=from_batches([term.log_likelihood for term in terms]),
        log_prior=log_prior,
        entropy=entropy,
        bound=missing[0] if missing else from_batches([term.bound for term in terms]),
        estimator=type(estimator).__name__ if isinstance(posterior.sampler, ImplicitPosterior) else "",
    )


def _entropy(
    posterior: Fitted, batch: Draw, estimator: EntropyEstimator, rng: torch.Generator | None, like: Tensor
) -> Tensor:
    """The entropy at one latent for each component, as its variance over z is small and its cost high.

    A posterior with generators is measured by the linearised entropy, however it was trained.
    """
    sampler = posterior.sampler
    if isinstance(sampler, ImplicitPosterior):
        estimates = sampler.entropy_at([z[:1] for z in batch.latents], estimator, rng)
    elif isinstance(sampler, Family):
        estimates = sampler.entropy(batch, Estimation(estimator, sampler.num_components, rng, posterior.prior))
    else:
        return _unknown(like)
    return torch.stack([estimate.nats.mean() for estimate in estimates]).mean()


def mean_log_likelihood(
    posterior: Fitted, theta: Tensor, inputs: Any, targets: Tensor, strategy: Strategy | None
) -> Tensor:  # (s,)
    """log p(y | x, theta) at each weight vector, averaged over examples as `mean_over_examples` does."""
    return mean_over_examples(posterior.likelihood.log_prob, posterior, theta, inputs, targets, strategy)


def mean_over_examples(
    density: Callable[[Any, Tensor], Tensor],  # outputs (s, b, ...), targets (b, ...) -> (s, b)
    posterior: Fitted,
    theta: Tensor,  # (s, m)
    inputs: Any,
    targets: Tensor,
    strategy: Strategy | None,
) -> Tensor:  # (s,)
    """A density's mean at each weight vector in double precision, chunk by chunk: a GiB of activations at a time.

    Examples of an integrated last layer depend on each other and stay together.
    """
    layout, buffers = posterior.sampler.layout, _buffers(posterior, theta, strategy)
    args, kwargs = as_call(inputs)

    def densities(rows: slice, part: Call) -> Tensor:
        (*some, answers), named = part
        own = rows_of(layout, buffers, rows)
        return density(apply_many(layout, theta[rows], *some, buffers=own, strategy=strategy, **named), answers)

    divisible = not posterior.likelihood.needs_all_examples
    chunks = in_chunks(densities, ((*args, targets), kwargs), len(theta), divisible=divisible)
    sums = [torch.stack([found.double().sum(1) for found in parts]).sum(0) for parts in chunks]
    return torch.cat(sums) / len(targets)


def log_likelihood(
    posterior: Fitted, theta: Tensor, inputs: Any, targets: Tensor, strategy: Strategy | None
) -> Tensor:  # (s, B)
    """log p(y | x, theta) of each example at each weight vector, all at once; BatchNorm as in prediction."""
    args, kwargs = as_call(inputs)
    buffers = _buffers(posterior, theta, strategy)
    outputs = apply_many(posterior.sampler.layout, theta, *args, buffers=buffers, strategy=strategy, **kwargs)
    return posterior.likelihood.log_prob(outputs, targets)


def _buffers(posterior: Fitted, theta: Tensor, strategy: Strategy | None) -> dict[str, Tensor]:
    """BatchNorm's buffers: measured on the calibration inputs, those of the member that theta is, or shared ones."""
    layout, calibration = posterior.sampler.layout, getattr(posterior, "calibration", None)
    if calibration is not None:
        return dict(posterior.buffers) | measure_statistics(layout, theta, calibration, strategy=strategy)
    members: Tensor | None = getattr(posterior.sampler, "theta", None)
    known = {name: buffer.shape for name, buffer in layout.module.named_buffers()}
    if members is None or all(buffer.shape == known[name] for name, buffer in posterior.buffers.items()):
        return dict(posterior.buffers)
    rows = torch.stack([(members == row).all(1).float().argmax() for row in theta])
    return {name: buffer if buffer.shape == known[name] else buffer[rows] for name, buffer in posterior.buffers.items()}


def _unknown(like: Tensor) -> Tensor:
    return like.new_full((), float("nan"))
