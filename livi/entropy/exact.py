"""L': the full log-determinant by factorisation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from livi.entropy.estimate import EntropyEstimate, EntropyReport, check_inputs, gaussian_constants, whitened
from livi.jacobian import Jacobian, RowFunction, dense_jacobian


@dataclass(frozen=True)
class Exact:
    """Equation (14) with the log-determinant exact: the bound L' of equation (15).

    H_z = m/2 (1 + log 2 pi) + sum log sigma + 1/2 log det(I_d + A^T A),  A = D^-1/2 J_g(z),

    by Cholesky of the d x d matrix in float64 (or of the m x m matrix I + A A^T where m < d). The matrix is at least
    I, so the factorisation cannot fail; what can be lost are singular values of A below about 1e-8 of the largest.
    When the condition number comes near that, the determinant is taken from a QR factorisation of [A; I] instead,
    which never squares it.

    For an affine g, averaging over z gives the exact entropy of N(b, W W^T + D), for every noise.

    Args:
        exact_terms: keep the quadratic and trace terms (A.12, A.16) that the paper replaces by their limit m/2. They
            come free with the factorisation and matter where singular values of J are not large against the noise:
            z^T (I - M^-1) z + tr((I + A A^T)^-1), M = I + A^T A.
        qr_above: condition number of M past which QR is used.
        chunk_size: without gradients, the number of Gram columns formed at a time; None forms J whole. A chunk takes
            O(m chunk_size) memory in place of O(m d), and so reaches d in the thousands, m in the hundred thousands.

    Cost: d forward-mode products, O(m d min(m, d)) arithmetic, O(S m d) memory with gradients.
    """

    exact_terms: bool = False
    qr_above: float = 1e12
    chunk_size: int | None = None

    def __call__(
        self,
        generator: RowFunction,
        z: Tensor,  # (S, d)
        noise_std: Tensor,  # () or (m,)
        rng: torch.Generator | None = None,  # noqa: ARG002 - nothing is random here
    ) -> EntropyEstimate:
        function = whitened(generator, noise_std)
        if self.chunk_size is not None and not torch.is_grad_enabled():
            jacobian = Jacobian(function, z)
            num_params = jacobian.shape[1]
            check_inputs(z, noise_std, num_params)
            log_det, terms, condition = self._from_gram(_gram(jacobian, self.chunk_size), z, num_params)
        else:
            a = dense_jacobian(function, z).double()  # (S, m, d)
            num_params = a.shape[1]
            check_inputs(z, noise_std, num_params)
            log_det, terms, condition = self._from_dense(a, z.double())
        nats = 0.5 * log_det.to(z.dtype) + gaussian_constants(noise_std, num_params)
        if self.exact_terms:
            nats = nats + 0.5 * (terms - num_params).to(z.dtype)
        return EntropyEstimate(nats, _report(condition, z.shape[1]))

    def _from_dense(self, a: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m, d = a.shape[1:]
        if m < d:
            factor = torch.linalg.cholesky(_plus_identity(a @ a.mT))
            half = torch.linalg.solve_triangular(factor, a @ z[..., None], upper=False)
            terms = half.square().sum((1, 2)) + _inverse_trace(factor)
            return 2.0 * factor.diagonal(dim1=1, dim2=2).log().sum(1), terms, _condition(factor)
        log_det, terms, condition = self._from_gram(a.mT @ a, z, m)
        if bool((condition <= self.qr_above).all()):
            return log_det, terms, condition
        identity = torch.eye(d, dtype=a.dtype, device=a.device).expand(a.shape[0], d, d)
        upper = torch.linalg.qr(torch.cat([a, identity], 1), mode="reduced").R
        # R^T R = I + A^T A, with R known to the accuracy of A itself; the sign of its rows is free.
        factor = (upper * upper.diagonal(dim1=1, dim2=2).sign()[..., None]).mT
        return 2.0 * factor.diagonal(dim1=1, dim2=2).log().sum(1), _terms(factor, z, m), condition.sqrt()

    def _from_gram(self, gram: Tensor, z: Tensor, num_params: int) -> tuple[Tensor, Tensor, Tensor]:
        factor = torch.linalg.cholesky(_plus_identity(gram.double()))
        terms = _terms(factor, z.double(), num_params)
        return 2.0 * factor.diagonal(dim1=1, dim2=2).log().sum(1), terms, _condition(factor)


def _terms(factor: Tensor, z: Tensor, num_params: int) -> Tensor:
    """z^T (I - M^-1) z + m - d + tr M^-1, for M = factor factor^T."""
    solved: Tensor = torch.linalg.solve_triangular(factor, z[..., None], upper=False)
    return z.square().sum(1) - solved.square().sum((1, 2)) + num_params - z.shape[1] + _inverse_trace(factor)


def _inverse_trace(factor: Tensor) -> Tensor:
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    inverse: Tensor = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
    return inverse.square().sum((1, 2))


def _plus_identity(gram: Tensor) -> Tensor:
    return gram + torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)


def _condition(factor: Tensor) -> Tensor:
    """A lower estimate of the condition number, from the spread of the Cholesky diagonal."""
    diagonal = factor.detach().diagonal(dim1=1, dim2=2)
    return (diagonal.amax(1) / diagonal.amin(1)).square()


def _gram(jacobian: Jacobian, chunk_size: int) -> Tensor:  # (S, d, d)
    samples, _, d = jacobian.shape
    identity = torch.eye(d, dtype=jacobian.value.dtype, device=jacobian.value.device)
    columns = [
        jacobian.rmatvec(jacobian.matvec(chunk[:, None, :].expand(-1, samples, -1)))
        for chunk in identity.split(chunk_size)
    ]
    return torch.cat(columns).permute(1, 2, 0)


def _report(condition: Tensor, latent_dim: int) -> EntropyReport:
    resolved = condition <= 1e14
    return EntropyReport(
        converged=resolved,
        products=latent_dim,
        condition=condition,
        remedy="" if bool(resolved.all()) else "The Jacobian is ill-conditioned: raise the noise or lower latent_dim.",
    )
