"""How far the weights vary, layer by layer, and in how many directions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from livi.family.implicit import ImplicitPosterior
from livi.family.jacobian import dense_jacobian
from livi.model.priors import Prior
from livi.posterior.diagnostics.correlation import (
    MIN_SAMPLES,
    squared_covariances,
    squared_variances,
    standardised,
    too_few,
)
from livi.posterior.diagnostics.estimate import Estimate, Skipped, jackknife
from livi.posterior.diagnostics.layers import Layers
from livi.posterior.diagnostics.log_det import exact_for
from livi.posterior.diagnostics.subject import Effort, generators_of


@dataclass(frozen=True)
class LayerSpread:
    """Root mean square over a layer's weights of their posterior standard deviation."""

    name: str
    num_weights: int
    std: Estimate
    relative: Estimate | None  # to the prior's standard deviation, where that is known
    mean: float  # root mean square of the weights' posterior means


@dataclass(frozen=True)
class RankCheck:
    """Effective ranks: participation ratios (tr C)^2 / tr C^2 of covariance matrices, between 1 and num_params.

    k equally wide independent directions give k. `covariance` is dominated by the widest layers, `correlation` counts
    every weight alike. `local` is that of J J^T + D, averaged over some latents: it differs from `covariance` where the
    posterior is curved or has several parts. `noise_share` is the part of a weight's variance that comes from D,
    averaged over weights: near 1 for a posterior that is all but mean-field.
    """

    covariance: Estimate
    correlation: Estimate
    local: Estimate | Skipped
    noise_share: float | Skipped


def check_spread(samples: Tensor, layers: Layers, prior: Prior | None) -> tuple[LayerSpread, ...] | Skipped:  # (S, p)
    """Cost: O(S p)."""
    if len(samples) < 3:
        return Skipped(f"too few samples: needs 3 distinct weight vectors, got {len(samples)}")
    scale = _prior_std(prior, layers)

    def statistic(rows: Tensor) -> Tensor:  # (2, L)
        variance = rows.double().var(0)
        relative = variance / scale.square() if scale is not None else variance
        return torch.stack(
            [torch.stack([values[part].mean() for part in layers.slices]) for values in (variance, relative)]
        ).sqrt()

    (absolute, relative), errors = jackknife(statistic, samples)
    centre = samples.double().mean(0)
    return tuple(
        LayerSpread(
            name=name,
            num_weights=layers.totals[i],
            std=Estimate(absolute[i].item(), errors[0, i].item()),
            relative=None if scale is None else Estimate(relative[i].item(), errors[1, i].item()),
            mean=centre[layers.slices[i]].square().mean().sqrt().item(),
        )
        for i, name in enumerate(layers.names)
    )


def check_rank(
    samples: Tensor,  # (S, p)
    layers: Layers,
    sampler: object,
    effort: Effort,
    rng: torch.Generator | None,
) -> RankCheck | Skipped:
    """Cost: O(S p min(S, p)), and for each latent a dense Jacobian and O(m d^2)."""
    if len(samples) < MIN_SAMPLES:
        return too_few(samples)
    local: Estimate | Skipped = Skipped("not applicable: no generator")
    noise_share: float | Skipped = Skipped("not applicable: no generator")
    if isinstance(sampler, ImplicitPosterior):
        local = _local_rank(sampler, effort, rng)
        noise_share = _noise_share(samples, layers, sampler)
    return RankCheck(
        covariance=_participation(samples.double(), layers),
        correlation=_participation(standardised(samples), layers),
        local=local,
        noise_share=noise_share,
    )


def _participation(samples: Tensor, layers: Layers) -> Estimate:
    value, error = jackknife(lambda rows: _trace(rows, layers).square() / _squared_trace(rows, layers), samples)
    return Estimate(value.item(), error.item())


def _trace(samples: Tensor, layers: Layers) -> Tensor:
    """tr C, from the weights that were kept of each layer."""
    variance = samples.var(0)
    return torch.stack(
        [
            variance[part].sum() * (total / kept)
            for part, total, kept in zip(layers.slices, layers.totals, layers.kept, strict=True)
        ]
    ).sum()


def _squared_trace(samples: Tensor, layers: Layers) -> Tensor:
    """tr C^2, unbiased, estimated from the kept weights: pairs for all pairs of their layers, singles for singles."""
    kept = samples.new_tensor(layers.kept)
    total = samples.new_tensor(layers.totals)
    ratio = total / kept
    own = torch.stack([squared_variances(samples[:, part]).sum() for part in layers.slices])
    squares = squared_covariances(samples, layers)
    pairs = torch.where(total == kept, 1.0, total * (total - 1.0) / (kept * (kept - 1.0)))  # within a layer
    within = (squares.diagonal() - own) * pairs + own * ratio
    across = squares - torch.diag(squares.diagonal())
    return ratio @ across @ ratio + within.sum()


def _noise_share(samples: Tensor, layers: Layers, posterior: ImplicitPosterior) -> float:
    variances = [std.double().square().expand(posterior.num_params) for _, std in generators_of(posterior)]
    noise = torch.stack(variances).mean(0).cpu()[layers.columns]
    shares = noise / samples.double().var(0).maximum(noise)  # a part of it: its estimate may lie below
    sizes = shares.new_tensor(layers.totals)
    means = torch.stack([shares[part].mean() for part in layers.slices])
    return ((means * sizes).sum() / sizes.sum()).item()


@torch.no_grad()
def _local_rank(posterior: ImplicitPosterior, effort: Effort, rng: torch.Generator | None) -> Estimate | Skipped:
    exact = exact_for(posterior, effort, 1)
    if exact is None or exact.chunk_size is not None:
        return Skipped("not affordable: its Jacobian is too large")
    latents = posterior.draw(effort.num_latents * posterior.num_components, rng).latents
    ranks = []
    for (generator, std), z in zip(generators_of(posterior), latents, strict=True):
        noise = std.double().square().expand(posterior.num_params)
        for row in z.split(1):
            jacobian = dense_jacobian(generator, row)[0].double()
            trace = jacobian.square().sum() + noise.sum()
            # tr (J J^T + D)^2 = |J^T J|^2 + 2 tr(J^T D J) + tr D^2
            gram = jacobian.T @ jacobian if jacobian.shape[0] > jacobian.shape[1] else jacobian @ jacobian.T
            mixed = (jacobian.square() * noise[:, None]).sum()
            ranks.append(trace.square() / (gram.square().sum() + 2.0 * mixed + noise.square().sum()))
    values = torch.stack(ranks)
    error = values.std().item() / math.sqrt(len(values)) if len(values) > 1 else float("nan")
    return Estimate(values.mean().item(), error)


def _prior_std(prior: Prior | None, layers: Layers) -> Tensor | None:  # (p,)
    std = None if prior is None else prior.std(layers.layout.num_params)
    return None if std is None else std.double().cpu()[layers.columns]
