"""The smallest eigenpair of a symmetric matrix that is only available through products (Knyazev, 2001)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

BlockMatvec = Callable[[Tensor], Tensor]  # (N, n, k) -> (N, n, k), one symmetric matrix for each of the N problems


@dataclass(frozen=True)
class EigenResult:
    """Smallest eigenpairs of N matrices. An eigenvalue of the matrix lies within `residual` of `value`.

    A Rayleigh quotient approaches the smallest eigenvalue from above, so an unconverged `value` is too large.
    """

    value: Tensor  # (N,)
    vector: Tensor  # (N, n), unit length
    residual: Tensor  # (N,)  |M v - value v|
    iterations: int
    converged: Tensor  # (N,) bool


@torch.no_grad()
def smallest_eigenpair(
    matvec: BlockMatvec,
    start: Tensor,  # (N, n, k): a block of start vectors for each problem
    *,
    tolerance: float = 1e-3,
    shift: float = 0.0,
    max_iterations: int = 300,
) -> EigenResult:
    """Locally optimal block preconditioned conjugate gradients, k products a step and O(n k) memory.

    The search space [X, W, P] of iterates, residuals and previous directions is kept orthonormal throughout (P by the
    small-matrix projection of Hetmaniuk and Lehoucq, 2006), so that no ill-conditioned Gram matrix is ever factorised.
    Problems too small for that space are solved densely.

    Args:
        tolerance: problem i has converged when residual_i <= tolerance * (shift + |value_i|).
        shift: what the caller will add to the eigenvalue; with M + shift I in mind, it makes the criterion relative.
    """
    if start.ndim != 3 or start.shape[2] < 1:
        raise ValueError(f"start: expected shape (N, n, k >= 1), got {tuple(start.shape)}.")
    batch, size, block = start.shape
    if size <= 5 * block:
        return _dense(matvec, batch, start)
    x = torch.linalg.qr(start).Q
    mx = matvec(x)
    x, mx, values = _rotate(x, mx)
    p, mp = x[..., :0], mx[..., :0]
    iterations = 0
    while iterations < max_iterations:
        gradient = mx - x * values[:, None, :]
        residual = gradient[..., 0].norm(dim=-1)
        if bool((residual <= tolerance * (shift + values[:, 0].abs())).all()):
            break
        iterations += 1
        held = torch.cat([x, p], -1)
        w = _orthonormal_against(gradient, held)
        basis, images = torch.cat([held, w], -1), torch.cat([mx, mp, matvec(w)], -1)
        values, x, mx, p, mp = _rayleigh_ritz(basis, images, block)
    mx = matvec(x)  # the running images carry rounding; the reported numbers do not
    value = (x[..., 0] * mx[..., 0]).sum(-1)
    residual = (mx[..., 0] - value[:, None] * x[..., 0]).norm(dim=-1)
    # The recomputed residual may sit a rounding error above the one that stopped the loop.
    converged = residual <= 1.1 * tolerance * (shift + value.abs())
    return EigenResult(value, x[..., 0], residual, iterations, converged)


def _dense(matvec: BlockMatvec, batch: int, start: Tensor) -> EigenResult:
    size = start.shape[1]
    identity = torch.eye(size, dtype=start.dtype, device=start.device).expand(batch, size, size)
    matrix = matvec(identity)
    values, vectors = torch.linalg.eigh(0.5 * (matrix + matrix.mT))
    vector = vectors[..., 0]
    residual = ((matrix @ vector[..., None])[..., 0] - values[:, :1] * vector).norm(dim=-1)
    return EigenResult(values[:, 0], vector, residual, 1, torch.ones_like(residual, dtype=torch.bool))


def _rotate(x: Tensor, mx: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    small = x.mT @ mx
    values, vectors = torch.linalg.eigh(0.5 * (small + small.mT))
    return x @ vectors, mx @ vectors, values


def _orthonormal_against(w: Tensor, held: Tensor) -> Tensor:
    """Columns of w made orthonormal, and orthogonal to the columns held; twice is enough."""
    for _ in range(2):
        w = w / w.norm(dim=-2, keepdim=True).clamp_min(torch.finfo(w.dtype).tiny)
        w = w - held @ (held.mT @ w)
        w = torch.linalg.qr(w).Q
    return w


def _rayleigh_ritz(basis: Tensor, images: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Best block in span(basis), and next directions P in the same span, orthonormal to it."""
    small = basis.mT @ images
    values, vectors = torch.linalg.eigh(0.5 * (small + small.mT))
    chosen, spare = vectors[..., :block], vectors[..., block : 2 * block]
    step = chosen.clone()
    step[:, :block] = 0.0  # the part of the new block that did not come from the old one
    # A converged column has no such part; a trace of the next Ritz vector keeps its direction defined.
    step = step - chosen @ (chosen.mT @ step) + 1e3 * torch.finfo(step.dtype).eps * spare
    directions = _orthonormal_against(step, chosen)
    return values[:, :block], basis @ chosen, images @ chosen, basis @ directions, images @ directions
