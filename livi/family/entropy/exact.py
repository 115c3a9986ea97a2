"""L': the full log-determinant by factorisation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from livi.family.entropy.estimate import (
    EntropyEstimate,
    EntropyReport,
    Whitened,
    check_inputs,
    gaussian_constants,
    whitened,
)
from livi.family.jacobian import RowFunction, dense_jacobian

ROUNDING = 0.01  # largest rounding error of the ones on the diagonal for which a Gram matrix is trusted


@dataclass(frozen=True)
class Exact:
    """Equation (14) with the log-determinant exact: the bound L' of equation (15).

    H_z = m/2 (1 + log 2 pi) + sum log sigma + 1/2 log det(I_d + A^T A),  A = D^-1/2 J_g(z),

    by Cholesky of the d x d matrix in float64 (or of the m x m matrix I + A A^T where m < d). Squaring A loses singular
    values below about 1e-8 of the largest; when the condition number comes near that, the determinant is taken from a
    QR factorisation of [A; I] instead, which never squares it. The gradient is <A M^-1, dA>, M = I + A^T A.

    For an affine g, averaging over z gives the exact entropy of N(b, W W^T + D), for every noise.

    Args:
        exact_terms: keep the quadratic and trace terms (A.12, A.16) that the paper replaces by their limit m/2. They
            come free with the factorisation and matter where singular values of J are not large against the noise:
            z^T (I - M^-1) z + tr((I + A A^T)^-1), M = I + A^T A.
        qr_above: condition number of M past which QR is used; infinity never does, and never waits to know.
        chunk_size: without gradients, the number of Gram columns formed at a time; None forms J whole. A chunk takes
            O(m chunk_size) memory in place of O(m d), and so reaches d in the thousands, m in the hundred thousands.

    Cost: d forward-mode products, O(m d min(m, d)) arithmetic, O(S m d) memory with gradients.
    """

    exact_terms: bool = False
    qr_above: float = 1e12
    chunk_size: int | None = None

    def of_rows(self, rows: range) -> Exact:  # noqa: ARG002 - nothing is random here
        """The same estimator, which needs no random numbers; see `Divisible`."""
        return self

    def captured(self, products: int) -> Exact:  # noqa: ARG002 - always latent_dim
        """The estimator without its choice of QR over Cholesky: unconverged where QR would have been needed."""
        return replace(self, qr_above=math.inf)

    def __call__(
        self,
        generator: RowFunction,
        z: Tensor,  # (S, d)
        noise_std: Tensor,  # () or (m,)
        rng: torch.Generator | None = None,  # noqa: ARG002 - nothing is random here
    ) -> EntropyEstimate:
        if self.chunk_size is not None and not torch.is_grad_enabled():
            return self._without_jacobian(generator, z, noise_std)
        jacobian = dense_jacobian(generator, z)  # (S, m, d)
        num_params = jacobian.shape[1]
        check_inputs(z, noise_std, num_params)
        a = jacobian / noise_std.expand(num_params)[:, None]
        if self.exact_terms:
            half, condition = self._every_term(a.double(), z.double())
        else:
            half, condition = self._log_det(a)
        nats = (half + gaussian_constants(noise_std, num_params)).to(z.dtype)
        return EntropyEstimate(nats, self._report(condition, z.shape[1]))

    def _log_det(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """1/2 log det(I + A^T A), with the gradient <A M^-1, dA> in place of one through the factorisation."""
        with torch.no_grad():
            wide = a.double() if a.shape[1] >= a.shape[2] else a.double().mT  # the smaller side is factorised
            factor, condition = self._factorise(wide)
            half = factor.diagonal(dim1=1, dim2=2).log().sum(1)
        if not a.requires_grad:
            return half, condition
        with torch.no_grad():
            identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
            inverse = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
            # A M^-1: quicker than solving for m right-hand sides; torch.cholesky_inverse would wait for a GPU
            pulled = wide @ (inverse.mT @ inverse)
            pulled = (pulled if a.shape[1] >= a.shape[2] else pulled.mT).to(a.dtype)
        surrogate = (pulled * a).sum((1, 2))
        return half + (surrogate - surrogate.detach()).double(), condition

    def _every_term(self, a: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """1/2 [log det(I + A^T A) + z^T (I - M^-1) z + tr((I + A A^T)^-1) - m], through the factorisation."""
        m, d = a.shape[1:]
        factor, condition = self._factorise(a if m >= d else a.mT)
        half = factor.diagonal(dim1=1, dim2=2).log().sum(1)
        if m >= d:
            return half + 0.5 * (_terms(factor, z, m) - m), condition
        pushed: Tensor = torch.linalg.solve_triangular(factor, a @ z[..., None], upper=False)
        return half + 0.5 * (pushed.square().sum((1, 2)) + _inverse_trace(factor) - m), condition

    def _factorise(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Lower L with L L^T = I + A^T A for A with at least as many rows as columns, and a condition number."""
        identity = torch.eye(a.shape[2], dtype=a.dtype, device=a.device)
        factor, condition = _cholesky(a.mT @ a + identity)
        if self.qr_above == math.inf or bool(((condition <= self.qr_above) & torch.isfinite(condition)).all()):
            return factor, condition
        upper = torch.linalg.qr(torch.cat([a, identity.expand(a.shape[0], -1, -1)], 1), mode="reduced").R
        # R^T R = I + A^T A, with R known to the accuracy of A itself; the sign of its rows is free.
        lower = (upper * upper.diagonal(dim1=1, dim2=2).sign()[..., None]).mT
        return lower, _spread(lower)

    def _without_jacobian(self, generator: RowFunction, z: Tensor, noise_std: Tensor) -> EntropyEstimate:
        """The value alone, from d x d products: J is never held whole."""
        assert self.chunk_size is not None
        a = whitened(generator, z, noise_std)
        num_params = a.shape[1]
        gram = _gram(a, z, self.chunk_size).double()
        identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        factor, condition = _cholesky(gram + identity)
        lost = gram.diagonal(dim1=1, dim2=2).amax(1) * torch.finfo(z.dtype).eps  # of ones on the diagonal, by rounding
        if self.qr_above < math.inf and not bool((condition < 1e15).all()):
            raise ValueError(
                "the Gram matrix is singular to working precision; drop chunk_size to factorise the Jacobian itself, "
                "or raise the noise."
            )
        half = factor.diagonal(dim1=1, dim2=2).log().sum(1)
        if self.exact_terms:
            half = half + 0.5 * (_terms(factor, z.double(), num_params) - num_params)
        nats = (half + gaussian_constants(noise_std, num_params)).to(z.dtype)
        return EntropyEstimate(nats, self._report(condition, z.shape[1], lost <= ROUNDING))

    def _report(self, condition: Tensor, latent_dim: int, sound: Tensor | bool = True) -> EntropyReport:
        return EntropyReport(
            converged=(condition <= (1e12 if self.qr_above == math.inf else 1e14)) & sound,
            products=latent_dim,
            condition=condition,
            remedy="The Jacobian is ill-conditioned: raise the noise or lower latent_dim.",
        )


def _terms(factor: Tensor, z: Tensor, num_params: int) -> Tensor:
    """z^T (I - M^-1) z + m - d + tr M^-1, for M = factor factor^T."""
    solved: Tensor = torch.linalg.solve_triangular(factor, z[..., None], upper=False)
    return z.square().sum(1) - solved.square().sum((1, 2)) + num_params - z.shape[1] + _inverse_trace(factor)


def _inverse_trace(factor: Tensor) -> Tensor:
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    inverse: Tensor = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
    return inverse.square().sum((1, 2))


def _cholesky(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The factor, and a lower estimate of the condition number from its diagonal: infinite where rounding wins."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    return factor, torch.where(failed == 0, _spread(factor).square(), float("inf"))


def _spread(factor: Tensor) -> Tensor:
    """Largest over smallest diagonal entry: a lower estimate of the factor's own condition number."""
    diagonal = factor.detach().diagonal(dim1=1, dim2=2)
    return diagonal.amax(1) / diagonal.amin(1)


def _gram(a: Whitened, z: Tensor, chunk_size: int) -> Tensor:  # (S, d, d)
    samples, d = z.shape
    identity = torch.eye(d, dtype=z.dtype, device=z.device)
    columns = [a.gram(chunk[:, None, :].expand(-1, samples, -1)) for chunk in identity.split(chunk_size)]
    return torch.cat(columns).permute(1, 2, 0)
