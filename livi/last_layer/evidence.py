"""Bayesian linear regression for many sets of features at once: evidence, its gradient, and posterior in closed form.

With F = [features, 1], noise s_i and count w_i of row i, and weights ~ N(0, scale^2), rows

    x_i = scale sqrt(w_i) / s_i F_i,    u_i = sqrt(w_i) / s_i y_i

turn prior and noise into unit ones. Then with M = I + X^T X, m = M^-1 X^T u and residuals r = u - X m, for T targets,

    log evidence = -1/2 (|u|^2 - u^T X m) - T/2 log det M - T sum_i w_i log(s_i sqrt(2 pi)),

    d log evidence = <r m^T - T X M^-1, dX> - <r, du> - T sum_i w_i d log s_i,

which takes one product with X where differentiating through the factorisation takes four. Gram matrices and everything
of their size are in double precision: M has a condition number of the order of the data's signal-to-noise ratio.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

# Numbers in the rows of the samples worked on at a time. On a CPU they should stay in its cache (a fifth less time than
# all at once); a GPU wants more at once.
_CPU_BLOCK, _GPU_BLOCK = 400_000, 100_000_000


class Conditional(NamedTuple):
    """p(last | earlier, D) = N(mean, scale^2 (L L^T)^-1) for each target, the bias as a last feature of one."""

    mean: Tensor  # (S, H + 1, T)
    factor: Tensor  # (S, H + 1, H + 1), lower L
    log_evidence: Tensor  # (S,)


@dataclass(frozen=True)
class Problem:
    """S linear models: features, what they explain, and how well they can be expected to."""

    features: Tensor  # (S, N, H)
    log_std: Tensor  # () or (S, N): of the noise
    log_scale: Tensor  # (): of the prior
    targets: Tensor  # (N, T)
    counts: Tensor | None = None  # (N,): how often each row counts, once without

    def parts(self) -> list[Problem]:
        """The same in blocks of samples."""
        samples, rows, width = self.features.shape
        block = _CPU_BLOCK if self.features.device.type == "cpu" else _GPU_BLOCK
        size = max(1, block // max(1, rows * (width + 1)))
        if size >= samples:
            return [self]
        stds = [self.log_std] * -(-samples // size) if self.log_std.ndim == 0 else self.log_std.split(size)
        return [
            Problem(features, log_std, self.log_scale, self.targets, self.counts)
            for features, log_std in zip(self.features.split(size), stds, strict=True)
        ]


class _Solution(NamedTuple):
    """In double precision; M, m, X and u as above."""

    factor: Tensor  # (S, P, P), of M
    unit_mean: Tensor  # (S, P, T), m
    log_evidence: Tensor  # (S,)
    design: Tensor  # (S, N, P), X
    whitened: Tensor  # (S, N, T), u
    row_scale: Tensor  # (1, 1, 1), (1, N, 1) or (S, N, 1): scale sqrt(w_i) / s_i


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
        scale * torch.cat([each.unit_mean for each in solved]),
        torch.cat([each.factor for each in solved]),
        torch.cat([each.log_evidence for each in solved]),
    )


def _solve(problem: Problem) -> _Solution:
    features, targets = problem.features, problem.targets.double()
    log_std = problem.log_std.double()
    log_std = log_std[:, :, None] if log_std.ndim else log_std.reshape(1, 1, 1)
    precision = (-log_std).exp()  # its square root
    if problem.counts is not None:
        precision = precision * problem.counts.double().sqrt()[:, None]
    row_scale = problem.log_scale.double().exp() * precision
    design = torch.cat([features, torch.ones_like(features[..., :1])], -1).double().mul_(row_scale)
    whitened = (targets * precision).expand(len(features), *targets.shape)

    gram = design.mT @ design
    gram.diagonal(dim1=1, dim2=2).add_(1.0)
    factor, _ = torch.linalg.cholesky_ex(gram)
    pulled = torch.linalg.solve_triangular(factor, design.mT @ whitened, upper=False)
    log_det = 2.0 * factor.diagonal(dim1=1, dim2=2).log().sum(1)
    misfit = whitened.square().sum((1, 2)) - pulled.square().sum((1, 2))
    counted = log_std + 0.5 * math.log(2.0 * math.pi)
    counted = counted if problem.counts is None else counted * problem.counts.double()[:, None]
    volume = counted.expand(len(features), len(targets), 1).sum((1, 2))
    number = targets.shape[1]
    evidence = -0.5 * (misfit + number * log_det) - number * volume
    unit_mean = torch.linalg.solve_triangular(factor.mT, pulled, upper=True)
    return _Solution(factor, unit_mean, evidence, design, whitened, row_scale)


class _Gradient(NamedTuple):
    features: Tensor  # (S, N, H)
    log_std: Tensor  # (S,) or (S, N)
    log_scale: Tensor  # (S,)


def _gradient(problem: Problem, solution: _Solution) -> _Gradient:
    """d log evidence for each sample; its largest product in the features' own precision."""
    factor, mean, _, design, whitened, row_scale = solution
    dtype, number = problem.features.dtype, whitened.shape[2]
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    half = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
    residual = whitened - design @ mean
    own = design.to(dtype)
    smoothed = own @ (half.mT @ half).to(dtype)  # X M^-1
    pull = torch.baddbmm(smoothed, residual.to(dtype), mean.mT.to(dtype), beta=-number)
    features = pull[..., :-1].mul_(row_scale.to(dtype))
    explained = factor.shape[-1] - half.square().sum((1, 2))  # tr X M^-1 X^T
    log_scale = mean.square().sum((1, 2)) - number * explained
    counts = problem.counts
    if problem.log_std.ndim:
        leverage = torch.linalg.vecdot(own, smoothed)
        log_std = residual.square().sum(2) + number * (leverage - (1.0 if counts is None else counts.double()))
    else:
        total = len(problem.targets) if counts is None else counts.double().sum()
        log_std = residual.square().sum((1, 2)) + number * (explained - total)
    return _Gradient(features, log_std.to(dtype), log_scale.to(dtype))


class _LogEvidence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, *arguments: Tensor) -> Tensor:
        problem = Problem(*arguments)
        values, gradients = [], []
        for part in problem.parts():
            solution = _solve(part)
            values.append(solution.log_evidence)
            gradients.append(_gradient(part, solution))
        ctx.save_for_backward(*(torch.cat(parts) for parts in zip(*gradients, strict=True)))
        return torch.cat(values).to(problem.features.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # (S,)
        features, log_std, log_scale = ctx.saved_tensors
        noise = gradient @ log_std if log_std.ndim == 1 else gradient[:, None] * log_std
        return gradient[:, None, None] * features, noise, gradient @ log_scale, None, None
