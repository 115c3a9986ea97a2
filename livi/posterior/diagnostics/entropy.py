"""Whether L' lies above the ELBO: the linearised entropy against -E log q by importance sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from livi.draws import normal
from livi.family.entropy import DensityEstimate, Exact, importance_log_density
from livi.family.generators import Generator
from livi.family.implicit import ImplicitPosterior
from livi.family.jacobian import dense_jacobian
from livi.posterior.diagnostics.estimate import Estimate, Skipped
from livi.posterior.diagnostics.log_det import largest_latent_dim
from livi.posterior.diagnostics.subject import Effort, generators_of

MAX_ENTRIES = 2**22
"""Numbers in one Jacobian up to which log q is affordable."""

MIN_DENSITIES = 12  # a component: four degrees of freedom go into the regression on the control variates


@dataclass(frozen=True)
class EntropyCheck:
    """The entropy of q, or of one component of a mixture, in two ways, nats.

    `sampled` is -E log q and unbiased up to `bias` (too high by about that much) and up to latents that the search has
    missed (too high again). So a `gap` above zero convicts: L' then lies above the ELBO by that much. A gap of zero
    acquits only as far as `preimages` and `effective` go.
    """

    linearised: Estimate
    sampled: Estimate
    gap: Estimate  # linearised - sampled, at the same draws
    bias: float  # of sampled, from the finite number of importance samples
    effective: float  # effective share of the importance samples, median over draws
    lowest_effective: float
    preimages: float  # separate latents that explain one weight vector, mean over draws
    num_densities: int


@dataclass(frozen=True)
class DensityCheck:
    """Entropies of the components, their mean, and how far a mixture's own entropy lies above that mean."""

    mean: EntropyCheck
    components: tuple[EntropyCheck, ...]
    mixture: Estimate | Skipped  # H[q] - mean_k H[q_k], between 0 and log K, nats


def check_densities(
    posterior: ImplicitPosterior, effort: Effort, rng: torch.Generator | None
) -> DensityCheck | Skipped:
    """Cost: see `importance_log_density`, for num_densities weight vectors, and K times that for a mixture of K."""
    latent_dim = largest_latent_dim(posterior)
    if latent_dim > effort.max_density_dim:
        return Skipped(f"not affordable: latent_dim {latent_dim:,} is above max_density_dim={effort.max_density_dim}")
    if latent_dim * posterior.num_params > MAX_ENTRIES:
        return Skipped(f"not affordable: a Jacobian of {posterior.num_params:,} x {latent_dim} numbers for each step")
    components = posterior.num_components
    share = max(MIN_DENSITIES, -(-effort.num_densities // components))
    with torch.no_grad():
        theta, latents = posterior.draw(share * components, rng)
        own, checked = [], []
        for (generator, std), z, rows in zip(generators_of(posterior), latents, theta.split(share), strict=True):
            starts = torch.cat([z[None], -z[None], _random_starts(z, effort, rng)])
            density = _log_density(generator, std, rows, starts, effort, rng)
            own.append(density.log_prob)
            checked.append(_check(generator, std, rows, z, density, effort))
        mixture = _mixture(posterior, theta.split(share), own, effort, rng)
    return DensityCheck(_averaged(checked), tuple(checked), mixture)


def _log_density(
    generator: Generator,
    noise_std: Tensor,  # () or (m,)
    theta: Tensor,  # (S, m)
    starts: Tensor,  # (R, S, d)
    effort: Effort,
    rng: torch.Generator | None,
) -> DensityEstimate:
    return importance_log_density(
        generator,
        theta,
        noise_std,
        latent_dim=generator.latent_dim,
        starts=starts,
        num_importance=effort.num_importance,
        rng=rng,
    )


def _check(
    generator: Generator, noise_std: Tensor, theta: Tensor, z: Tensor, density: DensityEstimate, effort: Effort
) -> EntropyCheck:
    effective = density.effective / effort.num_importance
    linearised = torch.cat([Exact()(generator, row[None], noise_std).nats for row in z]).double()
    controls = _controls(generator, noise_std, theta, z)
    plain = linearised.std() / math.sqrt(len(z))
    return EntropyCheck(
        linearised=Estimate(linearised.mean().item(), plain.item()),
        sampled=_controlled(-density.log_prob, controls),
        gap=_controlled(linearised + density.log_prob, controls),
        bias=0.5 * density.standard_error.square().mean().item(),
        effective=effective.median().item(),
        lowest_effective=effective.min().item(),
        preimages=density.preimages.mean().item(),
        num_densities=len(z),
    )


def _controls(generator: Generator, noise_std: Tensor, theta: Tensor, z: Tensor) -> Tensor:  # (S, 3)
    """Quantities whose means are known to be zero and that -log q(theta) moves with.

    Were g affine, -log q would be a constant plus Q/2, Q = u^T (I + A A^T)^-1 u, u = A z + eps: a standard deviation of
    sqrt(m/2) nats, which would drown the gap. Whatever g is, Q - E[Q | z], |z|^2 - d and z^T B z - tr B have mean zero,
    B being I - M^-1 at z = 0. For an affine g they explain all of it.
    """
    noise_std = noise_std.double()

    def whitened_jacobian(rows: Tensor) -> Tensor:
        return dense_jacobian(generator, rows).double() / noise_std.expand(theta.shape[1])[:, None]

    eps = (theta - generator(z)).double() / noise_std
    surprises = []
    for row, noise in zip(z.split(1), eps, strict=True):
        a = whitened_jacobian(row)[0]
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(_with_identity(a)))
        mean = a @ row[0].double()
        expected = _form(a, inverse, mean) + len(noise) - len(inverse) + inverse.trace()
        surprises.append(_form(a, inverse, mean + noise) - expected)
    a = whitened_jacobian(torch.zeros_like(z[:1]))[0]
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(_with_identity(a)))
    kept = torch.eye(len(inverse), dtype=a.dtype, device=a.device) - inverse
    radial = z.double().square().sum(1) - z.shape[1]
    resolved = ((z.double() @ kept) * z.double()).sum(1) - kept.trace()
    return 0.5 * torch.stack([torch.stack(surprises), radial, resolved], 1)


def _form(a: Tensor, inverse: Tensor, u: Tensor) -> Tensor:
    """u^T (I + A A^T)^-1 u, from inverse = (I + A^T A)^-1."""
    pulled = u @ a
    return u @ u - pulled @ inverse @ pulled


def _with_identity(a: Tensor) -> Tensor:
    return a.mT @ a + torch.eye(a.shape[1], dtype=a.dtype, device=a.device)


def _controlled(values: Tensor, controls: Tensor) -> Estimate:  # (n,), (n, c)
    """The mean by regression on controls of mean zero: the intercept of least squares, with its standard error."""
    design = torch.cat([torch.ones_like(values)[:, None], controls], 1)
    inverse = torch.linalg.pinv(design)
    coefficients = inverse @ values
    residuals = values - design @ coefficients
    variance = residuals.square().sum() / (len(values) - design.shape[1])
    return Estimate(coefficients[0].item(), (variance * inverse[0].square().sum()).sqrt().item())


def _averaged(checked: Sequence[EntropyCheck]) -> EntropyCheck:
    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    def both(estimates: Sequence[Estimate]) -> Estimate:
        squares = sum(estimate.standard_error**2 for estimate in estimates)
        return Estimate(mean([estimate.value for estimate in estimates]), math.sqrt(squares) / len(estimates))

    return EntropyCheck(
        linearised=both([one.linearised for one in checked]),
        sampled=both([one.sampled for one in checked]),
        gap=both([one.gap for one in checked]),
        bias=mean([one.bias for one in checked]),
        effective=mean([one.effective for one in checked]),
        lowest_effective=min(one.lowest_effective for one in checked),
        preimages=mean([one.preimages for one in checked]),
        num_densities=sum(one.num_densities for one in checked),
    )


def _mixture(
    posterior: ImplicitPosterior,
    theta: Sequence[Tensor],  # K of (S, m)
    own: Sequence[Tensor],  # K of (S,): log q_k of the draws from component k
    effort: Effort,
    rng: torch.Generator | None,
) -> Estimate | Skipped:
    """E_k E_{theta ~ q_k} [log q_k(theta) - log q(theta)], the information that theta has about its component."""
    pairs = generators_of(posterior)
    if len(pairs) < 2:
        return Skipped("not applicable: one component")
    means, errors = [], []
    for k, (rows, log_own) in enumerate(zip(theta, own, strict=True)):
        logs = [log_own]
        for generator, std in pairs[:k] + pairs[k + 1 :]:
            centre = rows.new_zeros(len(rows), generator.latent_dim)
            starts = torch.cat([centre[None], _random_starts(centre, effort, rng)])
            logs.append(_log_density(generator, std, rows, starts, effort, rng).log_prob)
        excess = log_own - torch.stack(logs).logsumexp(0) + math.log(len(pairs))
        means.append(excess.mean().item())
        errors.append(excess.std().item() / math.sqrt(len(rows)))
    return Estimate(sum(means) / len(means), math.hypot(*errors) / len(errors))


def _random_starts(z: Tensor, effort: Effort, rng: torch.Generator | None) -> Tensor:  # (R, S, d)
    return normal((effort.num_starts, *z.shape), rng, z.dtype, z.device)
