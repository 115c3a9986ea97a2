"""log q(theta) by importance sampling: the check that L' is not above the ELBO."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from livi import checks
from livi.entropy.estimate import whitened
from livi.jacobian import RowFunction, dense_jacobian
from livi.latents import normal


@dataclass(frozen=True)
class DensityEstimate:
    """log q(theta) for each row. Its exponential is unbiased, so it errs low (Jensen), less as `effective` grows."""

    log_prob: Tensor  # (S,)
    standard_error: Tensor  # (S,) of log_prob, by the delta method
    effective: Tensor  # (S,) effective number of importance samples


@torch.no_grad()
def importance_log_density(
    generator: RowFunction,
    theta: Tensor,  # (S, m)
    noise_std: Tensor,  # () or (m,)
    *,
    latent_dim: int,
    start: Tensor | None = None,  # (S, d)
    num_importance: int = 256,
    inflation: float = 1.05,
    newton_steps: int = 20,
    rng: torch.Generator | None = None,
) -> DensityEstimate:
    """log q(theta) = log E_{z ~ r(z | theta)} [N(theta; g(z), D) N(z; 0, I) / r(z | theta)].

    The proposal r is the posterior of z given theta under g linearised at a point z*: N(mu, inflation^2 M^-1) with
    M = I + A^T A, found from `start` (best: the z that theta was drawn from) by damped Gauss-Newton steps. For an
    affine g and inflation 1 every importance weight is the same and the answer exact. A theta that several distant
    z explain is covered only near `start`, and its density then underestimated.

    Cost: newton_steps + 1 dense Jacobians and num_importance evaluations of g for each theta.
    """
    checks.positive_int("num_importance", num_importance)
    theta = theta.double()
    noise_std = noise_std.double()

    def function(z: Tensor) -> Tensor:
        return whitened(generator, noise_std)(z.to(kind)).double()

    kind = next((p.dtype for p in _parameters(generator)), torch.float64)
    target = theta / noise_std
    z = torch.zeros(theta.shape[0], latent_dim, dtype=torch.float64, device=theta.device)
    z = z if start is None else start.double()
    for _ in range(newton_steps):
        z, moved = _gauss_newton(function, target, z)
        if not moved:
            break
    a = dense_jacobian(function, z)
    factor = torch.linalg.cholesky(a.mT @ a + torch.eye(latent_dim, dtype=a.dtype, device=a.device))
    white = normal((num_importance, *z.shape), rng, torch.float64, z.device)
    offsets = torch.linalg.solve_triangular(factor.mT, white[..., None], upper=True)[..., 0]
    proposals = z + inflation * offsets  # (K, S, d)
    half_log_det = factor.diagonal(dim1=1, dim2=2).log().sum(1)
    log_r = half_log_det - latent_dim * math.log(inflation) - 0.5 * white.square().sum(-1)
    log_joint = torch.stack([_log_joint(function, target, row) for row in proposals])
    log_weights = log_joint - log_r  # the (2 pi)^(-d/2) of prior and proposal cancel
    constant = noise_std.log().expand(theta.shape[1]).sum() + 0.5 * theta.shape[1] * math.log(2.0 * math.pi)
    return _summarise(log_weights, constant)


def _log_joint(function: RowFunction, target: Tensor, z: Tensor) -> Tensor:
    """log N(theta; g(z), D) + log N(z; 0, I) up to constants."""
    return -0.5 * ((target - function(z)).square().sum(-1) + z.square().sum(-1))


def _gauss_newton(function: RowFunction, target: Tensor, z: Tensor) -> tuple[Tensor, bool]:
    """One step of z towards the mode of q(z | theta), halved until it does not go down."""
    a = dense_jacobian(function, z)
    gradient = (a.mT @ (target - function(z))[..., None])[..., 0] - z
    matrix = a.mT @ a + torch.eye(z.shape[1], dtype=a.dtype, device=a.device)
    step = torch.cholesky_solve(gradient[..., None], torch.linalg.cholesky(matrix))[..., 0]
    before = _log_joint(function, target, z)
    size = torch.ones_like(before)
    better = torch.zeros_like(before, dtype=torch.bool)
    for _ in range(12):
        after = _log_joint(function, target, z + size[:, None] * step)
        better = after >= before
        if bool(better.all()):
            break
        size = torch.where(better, size, 0.5 * size)
    moved = torch.where(better[:, None], size[:, None] * step, 0.0)
    return z + moved, bool((moved.norm(dim=1) > 1e-8 * (1.0 + z.norm(dim=1))).any())


def _summarise(log_weights: Tensor, constant: Tensor) -> DensityEstimate:
    count = log_weights.shape[0]
    log_mean = torch.logsumexp(log_weights, 0) - math.log(count)
    relative = torch.exp(log_weights - log_mean)
    variance = relative.var(0) if count > 1 else torch.full_like(log_mean, float("nan"))
    effective = relative.sum(0).square() / relative.square().sum(0)
    return DensityEstimate(log_mean - constant, (variance / count).sqrt(), effective)


def _parameters(generator: RowFunction) -> list[Tensor]:
    return list(generator.parameters()) if isinstance(generator, torch.nn.Module) else []
