"""Quadratic forms b^T log(M) b from Lanczos coefficients, bracketed from both sides (Golub and Meurant, 1994)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_NODES = 256  # a step below 0.5 for eigenvalues up to 1e20


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
    upper = _first_entry_of_log(gauss_diagonal, torch.where(coupled, off_diagonal, 0.0), floor)

    # The extra Radau node sits in row `steps`, coupled by the off-diagonal entry that Gauss leaves out.
    last_pivot, last_coupling = _last_pivot(diagonal, off_diagonal, steps, floor)
    node = floor + last_coupling.square() / last_pivot.clamp_min(torch.finfo(torch.float64).tiny)
    padded = torch.cat([gauss_diagonal, torch.ones_like(gauss_diagonal[..., :1])], -1)
    padded = torch.where(torch.arange(width + 1, device=diagonal.device) == steps[..., None], node[..., None], padded)
    # Rounding can leave T - floor slightly indefinite or the coupling at zero: Gauss is then exact already.
    usable = (last_pivot > 0) & (last_coupling > 0) & torch.isfinite(node)
    lower = _first_entry_of_log(
        torch.where(usable[..., None], padded, 1.0), torch.where(inside & usable[..., None], off_diagonal, 0.0), floor
    )
    lower = torch.where(usable, torch.minimum(lower, upper), upper)
    return Bracket(lower, upper)


def _first_entry_of_log(diagonal: Tensor, off_diagonal: Tensor, floor: float) -> Tensor:
    """[log T]_11 of symmetric tridiagonal T with eigenvalues from `floor` upwards, to 1e-14 of its size.

    log T is the integral over s > 0 of 1/(1+s) - (T + s)^-1. In x = log s the integrand falls off exponentially at both
    ends and is analytic for |Im x| < pi, so the trapezoidal rule with step h errs by exp(-2 pi^2 / h). The entry of
    the inverse is a continued fraction. Unlike an eigendecomposition this reads nothing back from a GPU.
    """
    reach = 37.0  # exp(-37) < 1e-16
    largest = (diagonal.abs() + 2.0 * off_diagonal.abs().amax(-1, keepdim=True)).amax(-1, keepdim=True)
    low = math.log(min(floor, 1.0)) - reach
    high = largest.clamp_min(1.0).log() + reach
    s = (low + (high - low) * torch.linspace(0.0, 1.0, _NODES, dtype=diagonal.dtype, device=diagonal.device)).exp()
    squares = off_diagonal.square()
    entry = 1.0 / (diagonal[..., -1:] + s)
    for k in range(diagonal.shape[-1] - 2, -1, -1):
        entry = 1.0 / (diagonal[..., k, None] + s - squares[..., k, None] * entry)
    step = (high - low) / (_NODES - 1)
    return (s / (1.0 + s) - s * entry).sum(-1) * step[..., 0]


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
