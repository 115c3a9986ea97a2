"""log q(theta) by importance sampling: the check that L' is not above the ELBO.

Where a generator folds, several latents explain one theta, and a density from one of them alone is too small by just
the amount that the linearised entropy is too large: a check that used it would acquit every fold. So the search may
begin at several places, and the proposal is the mixture of the Gaussians around all the modes it finds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from livi import checks
from livi.draws import normal
from livi.family.jacobian import RowFunction, dense_jacobian

CHUNK_ENTRIES = 2**22  # numbers in the Jacobians held at a time
HALVINGS = 12
AT_REST = 0.03  # standard deviations: the search for a mode ends with a step shorter than this
SAME_MODE = 1.0  # modes closer than so many standard deviations are one
NEGLIGIBLE = 1e-4  # share of the mass below which a mode is not sampled


@dataclass(frozen=True)
class DensityEstimate:
    """log q(theta) for each row. Its exponential is unbiased for the modes found, so it is too low (Jensen) by about
    half the squared standard error, and by every mode that was not found."""

    log_prob: Tensor  # (S,)
    standard_error: Tensor  # (S,) of log_prob, by the delta method
    effective: Tensor  # (S,) effective number of importance samples
    preimages: Tensor  # (S,) effective number of separate latents that explain theta, of those found


@torch.no_grad()
def importance_log_density(
    generator: RowFunction,
    theta: Tensor,  # (S, m)
    noise_std: Tensor,  # () or (m,)
    *,
    latent_dim: int,
    starts: Tensor | None = None,  # (S, d) or (R, S, d)
    num_importance: int = 256,
    inflation: float = 1.05,
    newton_steps: int = 20,
    own: Tensor | None = None,  # (S, d)
    rng: torch.Generator | None = None,
) -> DensityEstimate:
    """log q(theta) = log E_{z ~ r(z | theta)} [N(theta; g(z), D) N(z; 0, I) / r(z | theta)].

    From each start damped Gauss-Newton steps lead to a mode z_r of q(z | theta), where g is linearised: with
    M_r = I + A^T A, the proposal r is the mixture of N(z_r, inflation^2 M_r^-1), weighted by the modes' mass. For an
    affine g there is one mode, and with inflation 1 every importance weight is the same and the answer exact.

    Args:
        starts: where the search begins for each row, once or R times; the origin if not given. Best is the z that theta
            was drawn from, and others besides: a theta that several distant z explain is covered only near those found.
        inflation: how much wider the proposal is than the modes it covers.
        own: the z that each theta was drawn from, to be one of the importance samples. It makes 1 / q unbiased in place
            of q, over draws of theta, if `starts` know nothing of it: what weights p / q need. For p / q is then
            the weight of theta and of which z was its own, among K of which all others were drawn from r, under
            p(theta) r(z_1) ... r(z_K) (Sobolev and Vetrov 2019, "Importance weighted hierarchical variational
            inference"). A mode that is not found costs draws, and no longer makes them count too much.

    Cost: for each theta R times at most newton_steps + 1 dense Jacobians, and num_importance evaluations of g.
    """
    checks.positive_int("num_importance", num_importance)
    model = _Latents(generator, noise_std, theta, latent_dim)
    begin = theta.new_zeros(len(theta), latent_dim) if starts is None else starts
    each = begin.double().reshape(-1, len(theta), latent_dim)
    modes = torch.stack([model.modes(start, newton_steps) for start in each])  # (R, S, d)
    factors = torch.stack([model.factors(mode) for mode in modes])  # (R, S, d, d), M = L L^T
    half_log_dets = factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    log_joints = torch.stack([model.log_joint(mode) for mode in modes])
    shares = _shares(modes, factors, log_joints - half_log_dets)
    proposals = _propose(modes, factors / inflation, shares, num_importance, rng)
    if own is not None:
        proposals[-1] = own.double()
    log_r = _log_proposal(proposals, modes, factors / inflation, shares)
    log_weights = torch.stack([model.log_joint(row) for row in proposals]) - log_r
    return _summarise(log_weights, shares, model.constant())


class _Latents:
    """q(z | theta) of one generator, for fixed theta: its unnormalised density, its modes, its curvature."""

    def __init__(self, generator: RowFunction, noise_std: Tensor, theta: Tensor, latent_dim: int) -> None:
        self.generator, self.noise_std = generator, noise_std.double()
        self.target = theta.double() / self.noise_std
        parameters = generator.parameters() if isinstance(generator, nn.Module) else iter(())
        self.kind = next((parameter.dtype for parameter in parameters), theta.dtype)
        self.rows = max(1, CHUNK_ENTRIES // (latent_dim * theta.shape[1]))

    def log_joint(self, z: Tensor, rows: Tensor | None = None) -> Tensor:  # (n, d) -> (n,)
        """log N(theta; g(z), D) + log N(z; 0, I) without their constants."""
        target = self.target if rows is None else self.target[rows]
        return -0.5 * ((target - self._whitened(z)).square().sum(1) + z.square().sum(1))

    def modes(self, start: Tensor, most: int) -> Tensor:  # (S, d)
        """Climb from each start; rows that have converged are not evaluated again."""
        z = start.clone()
        moving = torch.arange(len(z), device=z.device)
        for _ in range(most):
            steps, lengths = zip(*[self._step(z[rows], rows) for rows in moving.split(self.rows)], strict=True)
            z[moving] += torch.cat(steps)
            moving = moving[torch.cat(lengths) > AT_REST]
            if len(moving) == 0:
                break
        return z

    def factors(self, z: Tensor) -> Tensor:  # (S, d, d)
        return torch.cat([torch.linalg.cholesky(self._curvature(rows)[0]) for rows in z.split(self.rows)])

    def constant(self) -> Tensor:
        m = self.target.shape[1]
        return self.noise_std.log().expand(m).sum() + 0.5 * m * math.log(2.0 * math.pi)

    def _step(self, z: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:  # (n, d), (n,)
        """A Gauss-Newton step, halved for each row until it does not go down, zero where it never does; and its length
        in standard deviations of q(z | theta)."""
        matrix, a = self._curvature(z)
        gradient = (a.mT @ (self.target[rows] - self._whitened(z))[..., None])[..., 0] - z
        step = torch.cholesky_solve(gradient[..., None], torch.linalg.cholesky(matrix))[..., 0]
        length = (step * gradient).sum(1).clamp_min(0.0).sqrt()
        before = self.log_joint(z, rows)
        size = torch.ones_like(before)
        for _ in range(HALVINGS):
            worse = ~(self.log_joint(z + size[:, None] * step, rows) >= before)
            if not bool(worse.any()):
                break
            size = torch.where(worse, 0.5 * size, size)
        else:
            size = torch.where(self.log_joint(z + size[:, None] * step, rows) >= before, size, 0.0)
        return size[:, None] * step, size * length

    def _curvature(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """M = I + A^T A and A."""
        jacobian = dense_jacobian(self.generator, z.to(self.kind)).double()
        a = jacobian / self.noise_std.expand(jacobian.shape[1])[:, None]
        return a.mT @ a + torch.eye(z.shape[1], dtype=a.dtype, device=a.device), a

    def _whitened(self, z: Tensor) -> Tensor:
        return self.generator(z.to(self.kind)).double() / self.noise_std


def _shares(modes: Tensor, factors: Tensor, log_mass: Tensor) -> Tensor:  # (R, S)
    """Each mode's share of the mass by Laplace's approximation; 0 for one that another start has found too."""
    log_mass = log_mass.clone()
    for later in range(1, len(modes)):
        for earlier in range(later):
            offset = factors[earlier].mT @ (modes[later] - modes[earlier])[..., None]
            again = (offset[..., 0].norm(dim=1) < SAME_MODE) & torch.isfinite(log_mass[earlier])
            log_mass[later] = torch.where(again, -torch.inf, log_mass[later])
    shares = log_mass.softmax(0)
    shares = torch.where(shares < NEGLIGIBLE, 0.0, shares)
    return shares / shares.sum(0)


def _propose(
    modes: Tensor, factors: Tensor, shares: Tensor, num_importance: int, rng: torch.Generator | None
) -> Tensor:  # (K, S, d)
    """Draws from the mixture, each mode getting its share of them up to one draw (systematic sampling)."""
    samples, device = modes.shape[1], modes.device
    source = device if rng is None else rng.device
    offset = torch.rand((1, samples), generator=rng, dtype=modes.dtype, device=source).to(device)
    ladder = (torch.arange(num_importance, device=device)[:, None] + offset) / num_importance
    chosen = (ladder[:, None] > shares.cumsum(0)[None, :-1]).sum(1)  # (K, S)
    white = normal((num_importance, samples, modes.shape[2]), rng, modes.dtype, device).permute(1, 2, 0)  # (S, d, K)
    proposals = torch.zeros(num_importance, *modes.shape[1:], dtype=modes.dtype, device=device)
    for index in _sampled(shares):
        offsets = torch.linalg.solve_triangular(factors[index].mT, white, upper=True).permute(2, 0, 1)
        proposals = torch.where((chosen == index)[..., None], modes[index] + offsets, proposals)
    return proposals


def _log_proposal(z: Tensor, modes: Tensor, factors: Tensor, shares: Tensor) -> Tensor:  # (K, S)
    """Log density of the proposals, without (2 pi)^(-d/2), which is left out of the prior of z too."""
    parts = []
    for index in _sampled(shares):
        unit = torch.einsum("sij,ksi->ksj", factors[index], z - modes[index])
        half_log_det = factors[index].diagonal(dim1=-2, dim2=-1).log().sum(-1)
        parts.append(shares[index].log() + half_log_det - 0.5 * unit.square().sum(-1))
    return torch.stack(parts).logsumexp(0)


def _sampled(shares: Tensor) -> list[int]:
    """Which starts have led to a mode with a share for some theta."""
    return [index for index, share in enumerate(shares) if bool((share > 0).any())]


def _summarise(log_weights: Tensor, shares: Tensor, constant: Tensor) -> DensityEstimate:
    count = len(log_weights)
    log_mean = torch.logsumexp(log_weights, 0) - math.log(count)
    relative = torch.exp(log_weights - log_mean)
    variance = relative.var(0) if count > 1 else torch.full_like(log_mean, float("nan"))
    return DensityEstimate(
        log_prob=log_mean - constant,
        standard_error=(variance / count).sqrt(),
        effective=relative.sum(0).square() / relative.square().sum(0),
        preimages=torch.special.entr(shares).sum(0).exp(),
    )
