"""Bayesian linear regression for many sets of features at once: evidence, its gradient, and posterior in closed form.

With F = [features, 1], noise s_i and count w_i of row i, noise s_t of output t, and weights of column j ~
N(0, scale_j^2), let

    q_i = sqrt(w_i) / s_i,    Z = diag(q) F diag(scale),    v_it = y_it q_i,    p_t = 1 / s_t,

so that X_t = p_t Z, u_t = p_t v_t have a unit prior and unit noise (one of s_i, s_t is 1). Then with
M_t = I + p_t^2 Z^T Z, m_t = p_t^2 M_t^-1 Z^T v_t and residuals r_t = p_t (v_t - Z m_t),

    log evidence = sum_t -1/2 (|u_t|^2 - u_t^T X_t m_t) - 1/2 log det M_t - sum_i w_i log(s_i s_t sqrt(2 pi)),

    d log evidence = <sum_t p_t (r_t m_t^T - X_t M_t^-1), dZ> - <sum_t p_t r_t, dv_t>
                     + sum_t (|r_t|^2 + tr X_t M_t^-1 X_t^T - sum_i w_i) d log s_t - T sum_i w_i d log s_i,

which takes one product with Z where differentiating through the factorisation takes four. There is one Gram matrix for
all outputs, and one factorisation for all that share their noise. Gram matrices and everything of their size are in
double precision: M has a condition number of the order of the data's signal-to-noise ratio.

Examples are the last axis, as in the network's own products (`network/dense.py`), and the prior's scales are put into
matrices of the features' number, not into the features: passes over all of these are what takes time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Numbers in the rows of the samples worked on at a time. On a CPU they should stay in its cache, and the four samples
# of a step on 2,048 rows with 50 features are together; a GPU wants more at once.
_CPU_BLOCK, _GPU_BLOCK = 420_000, 100_000_000


class Conditional(NamedTuple):
    """p(last | earlier, D) = N(mean_t, D (L_t L_t^T)^-1 D), D = diag(scale), for each output t; the bias comes last."""

    mean: Tensor  # (S, H + 1, T)
    factor: Tensor  # (S, K, H + 1, H + 1), lower L; K = T, or 1 where all outputs share their noise
    scale: Tensor  # (H + 1,)
    log_evidence: Tensor  # (S,)


@dataclass(frozen=True)
class Problem:
    """S linear models: features, targets, noise and the prior's scales."""

    features: Tensor  # (S, N, H)
    log_std: Tensor  # () or (T,), or of each row (S, N): of the noise
    log_scale: Tensor  # (H + 1,): of the prior, the bias last
    targets: Tensor  # (N, T)
    counts: Tensor | None = None  # (N,): how often each row counts, once without

    def parts(self) -> list[Problem]:
        """The same problem in blocks of samples."""
        samples, rows, width = self.features.shape
        size = block_of(self.features.device, rows * (width + 1), samples)
        if size >= samples:
            return [self]
        stds = self.log_std.split(size) if self.log_std.ndim == 2 else [self.log_std] * -(-samples // size)
        return [
            Problem(features, log_std, self.log_scale, self.targets, self.counts)
            for features, log_std in zip(self.features.split(size), stds, strict=True)
        ]


def block_of(device: torch.device, numbers: int, samples: int) -> int:
    """How many samples to work on at a time, if each takes so many numbers."""
    block = _CPU_BLOCK if device.type == "cpu" else _GPU_BLOCK
    return min(samples, max(1, block // max(1, numbers)))


class _Solution(NamedTuple):
    """M, m, Z, v and p of the module's docstring, in double precision. K = T if outputs differ in noise, else 1."""

    factor: Tensor  # (S, K, P, P), of M
    unit_mean: Tensor  # (S, P, T), m
    log_evidence: Tensor  # (S,)
    design: Tensor  # (S, P, N), F^T diag(q)
    whitened: Tensor  # (T, N) or (S, T, N), v^T
    row_scale: Tensor | None  # (1, N) or (S, 1, N), q; None where it is 1 in all rows
    scale: Tensor  # (P,), of the prior
    precision: Tensor  # (K,), p


def log_evidence(problem: Problem) -> Tensor:  # (S,)
    """Differentiable once with respect to features, log_std and log_scale."""
    learned = (problem.features, problem.log_std, problem.log_scale)
    if not (torch.is_grad_enabled() and any(part.requires_grad for part in learned)):
        return conditional(problem).log_evidence.to(problem.features.dtype)
    found: Tensor = _LogEvidence.apply(  # type: ignore[no-untyped-call]
        problem.features, problem.log_std, problem.log_scale, problem.targets, problem.counts
    )
    return found


@torch.no_grad()
def conditional(problem: Problem) -> Conditional:
    """The posterior of the linear models' weights, in double precision."""
    scale = problem.log_scale.double().exp()
    solved = [_solve(part) for part in problem.parts()]
    return Conditional(
        scale[:, None] * torch.cat([each.unit_mean for each in solved]),
        torch.cat([each.factor for each in solved]),
        scale,
        torch.cat([each.log_evidence for each in solved]),
    )


def by_noise(columns: Tensor, number: int) -> Tensor:  # (S, P, T) -> (S, K, P, T / K)
    """Group columns by the noise that they share: all together, or each by itself."""
    grouped: Tensor = columns.unflatten(-1, (number, -1))
    return grouped.movedim(2, 1)


def by_output(grouped: Tensor) -> Tensor:  # (S, K, P, T / K) -> (S, P, T)
    """The opposite of `by_noise`."""
    return grouped.movedim(1, 2).flatten(2)


def cholesky(matrix: Tensor) -> Tensor:  # (..., P, P)
    """The factor, without waiting for the device; NaN where the matrix is not positive definite, by rounding."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    sound: Tensor = factor.masked_fill((failed != 0)[..., None, None], math.nan)
    return sound


def _solve(problem: Problem) -> _Solution:
    targets = problem.targets.double().mT  # (T, N)
    log_std, scale = problem.log_std.double(), problem.log_scale.double().exp()
    varies = log_std.ndim == 2
    log_output = log_std.new_zeros(1) if varies else log_std.reshape(-1)  # (K,)
    squares, number = (-2.0 * log_output).exp(), len(log_output)  # p^2
    row_scale, whitened = _row_scale(problem), targets
    design = _with_ones(problem.features)
    if row_scale is not None:
        whitened = targets * row_scale
        design.mul_(row_scale)

    gram = (design @ design.mT)[:, None] * (squares[:, None, None] * torch.outer(scale, scale))
    gram.diagonal(dim1=-2, dim2=-1).add_(1.0)
    factor = cholesky(gram)
    scaled = by_noise(design @ whitened.mT, number) * (squares[:, None, None] * scale[:, None])  # X^T u
    pulled = torch.linalg.solve_triangular(factor, scaled, upper=False)
    log_det = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum((1, 2))
    shared = len(targets) // number  # outputs with one noise
    misfit = (whitened.square().sum(-1).unflatten(-1, (number, -1)) * squares[:, None]).sum((-2, -1))
    misfit = misfit - pulled.square().sum((1, 2, 3))
    counts = None if problem.counts is None else problem.counts.double()
    total = targets.shape[1] if counts is None else counts.sum()
    volume = total * (shared * log_output.sum() + 0.5 * len(targets) * math.log(2.0 * math.pi))
    if varies:
        volume = volume + len(targets) * (log_std if counts is None else log_std * counts).sum(1)
    evidence = -0.5 * (misfit + shared * log_det) - volume
    unit_mean = by_output(torch.linalg.solve_triangular(factor.mT, pulled, upper=True))
    return _Solution(factor, unit_mean, evidence, design, whitened, row_scale, scale, squares.sqrt())


def _row_scale(problem: Problem) -> Tensor | None:
    """q: the root of each row's count, over its noise where that varies by row; None where all rows are alike."""
    roots = None if problem.counts is None else problem.counts.double().sqrt()[None]  # (1, N)
    if problem.log_std.ndim != 2:
        return roots
    inverse = (-problem.log_std.double()).exp()[:, None]  # (S, 1, N)
    return inverse if roots is None else inverse * roots


def _with_ones(features: Tensor) -> Tensor:  # (S, N, H) -> (S, H + 1, N)
    """F^T in double precision."""
    samples, rows, width = features.shape
    joined = features.new_empty(samples, width + 1, rows, dtype=torch.float64)
    joined[:, :-1].copy_(features.mT)
    joined[:, -1] = 1.0
    return joined


class _Gradient(NamedTuple):
    features: Tensor  # (S, H, N), as the examples are the last axis of all here
    log_std: Tensor  # (S, K) or (S, N)
    log_scale: Tensor  # (S, P)


def _gradient(problem: Problem, solution: _Solution) -> _Gradient:
    """d log evidence for each sample; its largest product in the features' own precision."""
    factor, mean, _, design, whitened, row_scale, scale, precision = solution
    features, dtype, shared = problem.features.mT, problem.features.dtype, whitened.shape[-2] // len(precision)
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    half = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
    squares, weights = precision.square(), scale[:, None] * mean  # (K,), (S, P, T)
    weighted = half * (precision[:, None, None] * scale)
    inverse = (shared * (weighted.mT @ weighted).sum(1)).to(dtype)  # D (sum_t p_t^2 M_t^-1) D, D = diag(scale)
    smoothed = torch.baddbmm(inverse[:, :-1, -1:], inverse[:, :-1, :-1], features)  # (S, H, N), without the last of F
    residual = whitened - weights.mT @ design  # (S, T, N)
    pulling = (residual.unflatten(1, (len(squares), -1)) * squares[:, None, None]).flatten(1, 2)
    unexplained = half.square().sum(2)  # (S, K, P), the diagonals of M^-1
    log_scale = mean.square().sum(2) - shared * (1.0 - unexplained).sum(1)
    counts = None if problem.counts is None else problem.counts.double()
    if problem.log_std.ndim == 2:
        assert row_scale is not None
        last = torch.baddbmm(inverse[:, -1:, -1:], inverse[:, -1:, :-1], features)[:, 0]
        leverage = row_scale[:, 0].square() * ((features * smoothed).sum(1) + last)
        log_std = residual.square().sum(1) + leverage - len(whitened[0]) * (1.0 if counts is None else counts)
    else:
        total = whitened.shape[-1] if counts is None else counts.sum()
        explained = (1.0 - unexplained).sum(2)  # tr X M^-1 X^T
        misfit = residual.square().sum(2).unflatten(1, (len(precision), -1)).sum(2) * squares
        log_std = misfit + shared * (explained - total)
    if row_scale is not None:
        smoothed, pulling = smoothed.mul_(row_scale.square().to(dtype)), pulling.mul_(row_scale)
    pull = smoothed.baddbmm_(weights[:, :-1].to(dtype), pulling.to(dtype), beta=-1)
    return _Gradient(pull, log_std.to(dtype), log_scale.to(dtype))


class _LogEvidence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Tensor) -> Tensor:
        problem = Problem(*arguments)
        values, gradients = [], []
        for part in problem.parts():
            solution = _solve(part)
            values.append(solution.log_evidence)
            gradients.append(_gradient(part, solution))
        ctx.shape, ctx.by_rows = problem.log_std.shape, problem.features.is_contiguous()
        ctx.save_for_backward(*(_joined(parts) for parts in zip(*gradients, strict=True)))
        return _joined(values).to(problem.features.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # (S,)
        features, log_std, log_scale = ctx.saved_tensors
        noise = gradient[:, None] * log_std if len(ctx.shape) == 2 else (gradient @ log_std).reshape(ctx.shape)
        pull = (gradient[:, None, None] * features).mT
        # In memory as the features are: an activation's backward pass takes several times as long where they differ.
        return pull.contiguous() if ctx.by_rows else pull, noise, gradient @ log_scale, None, None


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
