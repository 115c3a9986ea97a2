"""Conjugate gradients that keep the Lanczos coefficients they generate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Matvec = Callable[[Tensor], Tensor]  # (..., n) -> (..., n), one symmetric matrix for each leading index


@dataclass(frozen=True)
class CGResult:
    """Solution of M x = b for a batch of systems, with what the run says about its own accuracy.

    The k-th iteration's coefficients are the k-th row of the Lanczos tridiagonal matrix of M started at b, so one run
    serves both M^-1 b and quadratic forms b^T f(M) b (see `quadrature.py`). Entries past `steps` are padding.
    """

    solution: Tensor  # (..., n)
    residual: Tensor  # (...)  |b - M x| / |b|
    steps: Tensor  # (...)  iterations used by each system
    converged: Tensor  # (...)  bool
    diagonal: Tensor  # (..., K)
    off_diagonal: Tensor  # (..., K)  the last valid entry couples to the step not taken


@torch.no_grad()
def fixed_conjugate_gradient(matvec: Matvec, b: Tensor, iterations: int) -> tuple[Tensor, Tensor]:  # (..., n), (...)
    """M^-1 b by so many steps whatever happens, and |b - M x| / |b|: nothing is asked and nothing else is kept.

    Half the operations of `conjugate_gradient`, which matters where each of them is a kernel on a GPU. A system that is
    solved exactly stands still.
    """
    tiny = torch.finfo(b.dtype).tiny
    x, r, p = torch.zeros_like(b), b, b
    squared_b = squared = r.square().sum(-1, keepdim=True)
    for _ in range(iterations):
        product = matvec(p)
        alpha = squared / (p * product).sum(-1, keepdim=True).clamp_min(tiny)
        x = torch.addcmul(x, alpha, p)
        r = torch.addcmul(r, alpha, product, value=-1.0)
        new = r.square().sum(-1, keepdim=True)
        p = torch.addcmul(r, new / squared.clamp_min(tiny), p)
        squared = new
    return x, (squared / squared_b.clamp_min(tiny)).sqrt()[..., 0]


@torch.no_grad()
def conjugate_gradient(
    matvec: Matvec,
    b: Tensor,  # (..., n)
    *,
    tolerance: float = 1e-3,
    max_iterations: int = 100,
    check_every: int = 1,
) -> CGResult:
    """Solve M x = b for symmetric positive definite M, one product and O(n) memory per step.

    Args:
        tolerance: a system stops when |r| <= tolerance |b|.
        check_every: how often, in iterations, to ask whether all systems have converged (each asking synchronises).
            More than `max_iterations` reads nothing back, as CUDA graph capture requires.
    """
    if not b.is_floating_point() or b.numel() == 0:
        raise ValueError(f"b: expected a non-empty floating-point tensor, got {b.dtype} of shape {tuple(b.shape)}.")
    if max_iterations < 1:
        raise ValueError(f"max_iterations: expected at least 1, got {max_iterations}.")
    tiny = torch.finfo(b.dtype).tiny
    x, r, p = torch.zeros_like(b), b, b
    squared_b = squared_r = b.square().sum(-1)
    steps = torch.zeros_like(squared_b, dtype=torch.long)
    broken = torch.zeros_like(squared_b, dtype=torch.bool)
    diagonal, off_diagonal = [], []
    carried = torch.zeros_like(squared_b)  # beta_{k-1} / alpha_{k-1}
    for iteration in range(1, max_iterations + 1):
        active = squared_r > tolerance**2 * squared_b
        product = matvec(p)
        curvature = (p * product).sum(-1)
        broken = broken | ~torch.isfinite(curvature)
        active = active & (curvature > tiny)
        alpha = torch.where(active, squared_r / curvature.clamp_min(tiny), 0.0)
        x = x + alpha[..., None] * p
        r = r - alpha[..., None] * product
        squared_new = torch.where(active, r.square().sum(-1), squared_r)
        beta = torch.where(active, squared_new / squared_r.clamp_min(tiny), 0.0)
        inverse = torch.where(active, alpha.clamp_min(tiny).reciprocal(), 1.0)
        diagonal.append(inverse + torch.where(active, carried, 0.0))
        off_diagonal.append(torch.where(active, beta.sqrt() * inverse, 0.0))
        carried = beta * inverse
        p = torch.where(active[..., None], r + beta[..., None] * p, p)
        squared_r = squared_new
        steps = steps + active
        if iteration % check_every == 0 and bool((squared_r <= tolerance**2 * squared_b).all()):
            break
    residual = (squared_r / squared_b.clamp_min(tiny)).sqrt()
    residual = torch.where(broken, float("nan"), residual)  # a matrix that is not finite has no answer
    return CGResult(
        solution=x,
        residual=residual,
        steps=steps,
        converged=residual <= tolerance,
        diagonal=torch.stack(diagonal, -1),
        off_diagonal=torch.stack(off_diagonal, -1),
    )
