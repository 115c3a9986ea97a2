"""What every entropy estimator takes and returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from livi import checks
from livi.family.jacobian import LinearMap, RowFunction, goes_one_by_one, linearised

BLOCK = 2**20  # weights whose logarithms are held in double precision at a time


@dataclass(frozen=True)
class EntropyReport:
    """How good an estimate was. Fields that do not apply to a method are None; per-sample ones are (S,)."""

    converged: Tensor  # (S,) bool
    products: int  # Jacobian products and adjoint products per sample and probe
    residual: Tensor | None = None  # (S,) relative residual of the iterative solver
    standard_error: Tensor | None = None  # (S,) nats, from the spread of the probes
    truncation: Tensor | None = None  # (S,) nats, width of the bracket around each probe's quadrature
    condition: Tensor | None = None  # (S,) estimated condition number of the factorised matrix
    remedy: str = ""  # what to change where not converged


@dataclass(frozen=True)
class EntropyEstimate:
    """Entropy of q in nats, one value for each latent, every constant kept; average over z for H[q]."""

    nats: Tensor  # (S,), differentiable in the generator and the noise
    report: EntropyReport


class EntropyEstimator(Protocol):
    """(g, z, noise_std) -> nats. A new estimator is one file with such a class, and a line in `livi.family.entropy`."""

    def __call__(
        self,
        generator: RowFunction,
        z: Tensor,  # (S, d)
        noise_std: Tensor,  # () or (m,)
        rng: torch.Generator | None = None,
    ) -> EntropyEstimate: ...


@runtime_checkable
class Capturable(Protocol):
    """An estimator that can be part of a CUDA graph, in which no decision may depend on a computed value."""

    def captured(self, products: int) -> EntropyEstimator:
        """The same estimator in a form that reads no value back, given how many products sufficed recently."""
        ...


@runtime_checkable
class Valueless(Protocol):
    """An estimator that can leave out the value, where only its gradient is needed."""

    def without_value(self) -> EntropyEstimator:
        """The same gradient, with 0 in place of the value."""
        ...


@runtime_checkable
class Divisible(Protocol):
    """An estimator whose latents can be divided among processes without changing their random numbers."""

    def of_rows(self, rows: range) -> EntropyEstimator:
        """The estimator for these of `rows.stop` latents: it draws random numbers for all, and keeps theirs."""
        ...


class Whitened:
    """A = D^-1/2 J for D = diag(sigma^2), which turns every noise into the unit one.

    log det(J J^T + D) = log det(I + A^T A) + log det D.

    One sigma for all weights divides the d numbers of a vector or the result, in place of the m of its image.
    """

    def __init__(self, jacobian: LinearMap, noise_std: Tensor) -> None:
        self.jacobian, self.noise_std = jacobian, noise_std
        self._fixed_std, self._shared = noise_std.detach(), noise_std.ndim == 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """(S, m, d)."""
        return self.jacobian.shape

    def matvec(self, v: Tensor) -> Tensor:  # (S, d) -> (S, m), or (P, S, d) -> (P, S, m)
        std = self._fixed_std
        return self.jacobian.matvec(v / std) if self._shared else self.jacobian.matvec(v) / std

    def rmatvec(self, u: Tensor) -> Tensor:  # (S, m) -> (S, d), or (P, S, m) -> (P, S, d)
        std = self._fixed_std
        return self.jacobian.rmatvec(u) / std if self._shared else self.jacobian.rmatvec(u / std)

    def gram(self, v: Tensor) -> Tensor:  # (S, d) -> (S, d), or (P, S, d) -> (P, S, d)
        """A^T A v = J^T D^-1 J v, one vector of a stack at a time where batching would gain nothing."""
        if v.ndim == 3 and goes_one_by_one(v, self.shape):
            return torch.stack([self.gram(row) for row in v])
        return self._gram(v)

    @cached_property
    def _gram(self) -> Callable[[Tensor], Tensor]:
        return self.jacobian.gram(self._fixed_std.square().reciprocal())

    def bilinear(self, u: Tensor, v: Tensor) -> Tensor:  # (S, m), (S, d) -> (S,), or with P in front of all
        """<u, A v> with u and v held fixed, differentiable in the generator and in sigma."""
        if self._shared:
            return self.jacobian.bilinear(u.detach(), v) / self.noise_std
        return self.jacobian.bilinear(u.detach() / self.noise_std, v)


def whitened(generator: RowFunction, z: Tensor, noise_std: Tensor) -> Whitened:
    """A at z, of shapes that fit together."""
    jacobian = linearised(generator, z)
    check_inputs(z, noise_std, jacobian.shape[1])
    return Whitened(jacobian, noise_std)


def gaussian_constants(noise_std: Tensor, num_params: int) -> Tensor:
    """m/2 (1 + log 2 pi) + sum log sigma: the entropy of the noise alone, to which 1/2 log det(I + A^T A) is added.

    In double precision: the sum of millions of logarithms in single precision is off by hundreds of nats.
    """
    constant = 0.5 * num_params * (1.0 + math.log(2.0 * math.pi))
    if noise_std.ndim == 0:
        return constant + num_params * noise_std.double().log()
    with torch.no_grad():
        volume = torch.stack([part.double().log().sum() for part in noise_std.split(BLOCK)]).sum()
    if noise_std.requires_grad:
        surrogate = noise_std.log().sum()  # whose gradient keeps no copy in double precision
        volume = volume + (surrogate - surrogate.detach())
    return constant + volume


def check_inputs(z: Tensor, noise_std: Tensor, num_params: int) -> None:
    """Check the shapes of z and noise, after the generator has been called on z, and that z is not half precision."""
    checks.matrix("z", z, z.shape[-1])
    if z.dtype.itemsize < 4:
        raise ValueError(
            f"entropy: expected a network and generator in float32 or float64, got {z.dtype}, too coarse for a "
            "log-determinant; fit `net.float()`, with autocast=torch.bfloat16 where speed matters."
        )
    if noise_std.shape not in ((), (num_params,)):
        raise ValueError(
            f"noise_std: expected a scalar or {num_params} values, one per parameter, got {tuple(noise_std.shape)}."
        )
