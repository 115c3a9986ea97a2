"""Quadratic forms b^T log(M) b from Lanczos coefficients, bracketed from both sides (Golub and Meurant, 1994)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Bracket:
    """lower <= q^T log(M) q <= upper for the unit start vector q, up to rounding."""

    lower: Tensor  # (...)  Gauss-Radau rule with a node at `floor`
    upper: Tensor  # (...)  Gauss rule

    @property
    def midpoint(self) -> Tensor:
        return 0.5 * (self.lower + self.upper)

    @property
    def width(self) -> Tensor:
        return self.upper - self.lower


@torch.no_grad()
def log_quadrature(
    diagonal: Tensor,  # (..., K)
    off_diagonal: Tensor,  # (..., K)
    steps: Tensor,  # (...)
    floor: float,
) -> Bracket:
    """Bracket q^T log(M) q from the coefficients of `conjugate_gradient` started at b = |b| q.

    A k-step Gauss rule errs by f^(2k)(xi) times a positive number, and a Gauss-Radau rule with a node at the lower end
    by f^(2k+1)(xi) times one. The even derivatives of log are negative and the odd ones positive, so the first is an
    upper and the second a lower bound whenever every eigenvalue of M is at least `floor` > 0.
    """
    if not floor > 0.0:
        raise ValueError(f"floor: expected a positive lower bound on the eigenvalues, got {floor}.")
    diagonal, off_diagonal = diagonal.double(), off_diagonal.double()
    width = diagonal.shape[-1]
    index = torch.arange(width, device=diagonal.device)
    inside = index < steps[..., None]
    coupled = index < steps[..., None] - 1
    gauss_diagonal = torch.where(inside, diagonal, 1.0)
    upper = _first_entry_of_log(gauss_diagonal, torch.where(coupled, off_diagonal, 0.0)[..., :-1])

    # The extra Radau node sits in row `steps`, coupled by the off-diagonal entry that Gauss leaves out.
    last_pivot, last_coupling = _last_pivot(diagonal, off_diagonal, steps, floor)
    node = floor + last_coupling.square() / last_pivot.clamp_min(torch.finfo(torch.float64).tiny)
    padded = torch.cat([gauss_diagonal, torch.ones_like(gauss_diagonal[..., :1])], -1)
    padded = torch.where(torch.arange(width + 1, device=diagonal.device) == steps[..., None], node[..., None], padded)
    # Rounding can leave T - floor slightly indefinite or the coupling at zero: Gauss is then exact already.
    usable = (last_pivot > 0) & (last_coupling > 0) & torch.isfinite(node)
    lower = _first_entry_of_log(
        torch.where(usable[..., None], padded, 1.0), torch.where(inside & usable[..., None], off_diagonal, 0.0)
    )
    lower = torch.where(usable, torch.minimum(lower, upper), upper)
    return Bracket(lower, upper)


def _first_entry_of_log(diagonal: Tensor, off_diagonal: Tensor) -> Tensor:
    """[log T]_11 of symmetric tridiagonal T."""
    matrix = diagonal.diag_embed() + off_diagonal.diag_embed(1) + off_diagonal.diag_embed(-1)
    nodes, vectors = torch.linalg.eigh(matrix)
    weights: Tensor = vectors[..., 0, :].square()
    logs: Tensor = nodes.clamp_min(torch.finfo(torch.float64).tiny).log()
    return (weights * logs).sum(-1)


def _last_pivot(diagonal: Tensor, off_diagonal: Tensor, steps: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """The last pivot of LDL^T of T - floor I, and the coupling to the row after it."""
    pivot = diagonal[..., 0] - floor
    coupling = off_diagonal[..., 0]
    last_pivot, last_coupling = pivot, coupling
    for k in range(1, diagonal.shape[-1]):
        pivot = diagonal[..., k] - floor - coupling.square() / pivot
        coupling = off_diagonal[..., k]
        here = steps > k
        last_pivot = torch.where(here, pivot, last_pivot)
        last_coupling = torch.where(here, coupling, last_coupling)
    return last_pivot, last_coupling
