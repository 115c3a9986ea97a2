"""The smallest eigenpair of a symmetric matrix that is only available through products (Knyazev, 2001)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

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
    memory: int = 12,
) -> EigenResult:
    """Locally optimal block preconditioned conjugate gradients, k products per step and O(n k memory) memory.

    Each step adds the residuals W to an orthonormal basis and takes the best block X from its span. Once the basis
    holds `memory` blocks it shrinks to X, the next best Ritz vectors, and the previous direction P. With memory 3
    that is LOBPCG proper, [X, W, P]; a longer memory (the GD+k scheme of Stathopoulos, 2007) costs as many products a
    step and takes far fewer steps when the spectrum has outliers. P is made orthonormal to the rest inside the small
    projected problem (Hetmaniuk and Lehoucq, 2006), so that no ill-conditioned Gram matrix is ever factorised.
    Problems too small for that are solved densely.

    Args:
        tolerance: problem i has converged when residual_i <= tolerance * (shift + |value_i|).
        shift: what the caller will add to the eigenvalue; with M + shift I in mind, it makes the criterion relative.
    """
    if start.ndim != 3 or start.shape[2] < 1:
        raise ValueError(f"start: expected shape (N, n, k >= 1), got {tuple(start.shape)}.")
    if memory < 3:
        raise ValueError(f"memory: expected room for at least X, W and P, that is 3, got {memory}.")
    batch, size, block = start.shape
    basis = torch.linalg.qr(start).Q
    images = matvec(basis)
    if not bool(torch.isfinite(images).all()):  # eigh would raise; the caller wants to know which term failed
        lost = torch.full_like(images[:, 0, 0], float("nan"))
        return EigenResult(lost, start[..., 0] * lost[:, None], lost, 0, torch.zeros_like(lost, dtype=torch.bool))
    if size <= (memory + 2) * block:
        return _dense(matvec, batch, start)
    ritz = _ritz(basis, images)
    previous = ritz.vectors
    iterations = 0
    while True:
        best = ritz.vectors[..., :block]  # X in the basis' coordinates
        x = basis @ best
        gradient = images @ best - x * ritz.values[:, None, :block]
        residual = gradient[..., 0].norm(dim=-1)
        if iterations == max_iterations or bool((residual <= tolerance * (shift + ritz.values[:, 0].abs())).all()):
            break
        iterations += 1
        if basis.shape[2] >= memory * block:
            kept = _restart(ritz, previous, block * max(1, memory // 2 - 1))
            basis, images, best = basis @ kept, images @ kept, kept.mT @ best
        w = _orthonormal_against(gradient, basis)
        basis, images = torch.cat([basis, w], -1), torch.cat([images, matvec(w)], -1)
        previous = torch.nn.functional.pad(best, (0, 0, 0, block))  # the same vectors, W's coordinates zero
        ritz = _ritz(basis, images)
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


class _Ritz(NamedTuple):
    """Eigenpairs of the projected problem, in the basis' own coordinates."""

    values: Tensor  # (N, b)
    vectors: Tensor  # (N, b, b)


def _ritz(basis: Tensor, images: Tensor) -> _Ritz:
    small = basis.mT @ images
    values, vectors = torch.linalg.eigh(0.5 * (small + small.mT))
    return _Ritz(values, vectors)


def _restart(ritz: _Ritz, previous: Tensor, keep: int) -> Tensor:
    """Coordinates of the basis to go on with: the `keep` best Ritz vectors, and the previous block beside them."""
    best, spare = ritz.vectors[..., :keep], ritz.vectors[..., keep : keep + previous.shape[-1]]
    # A converged column has not moved since; a trace of the next Ritz vector keeps its direction defined.
    moved = previous - best @ (best.mT @ previous) + 1e3 * torch.finfo(best.dtype).eps * spare
    return torch.cat([best, _orthonormal_against(moved, best)], -1)


def _orthonormal_against(w: Tensor, held: Tensor) -> Tensor:
    """Columns of w made orthonormal, and orthogonal to the columns held; twice is enough."""
    for _ in range(2):
        w = w / w.norm(dim=-2, keepdim=True).clamp_min(torch.finfo(w.dtype).tiny)
        w = w - held @ (held.mT @ w)
        w = torch.linalg.qr(w).Q
    return w
