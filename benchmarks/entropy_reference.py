"""The exact log-determinant and its gradient, in chunks: the answer that estimators are compared with.

The log-determinant is computed in float64 throughout, its gradient with products in the generator's own precision.

It shares nothing with the estimators, takes Jacobian products by autograd, and O(d^2 + m chunk) memory, so it reaches
problems that `Exact` with gradients does not.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from livi import PerLayer
from livi.family.entropy.estimate import gaussian_constants
from livi.family.generators import Generator
from livi.family.jacobian import Jacobian

_CHUNK_BYTES = {"cpu": 2**28, "cuda": 2**31}  # of one chunk of products; a dozen of them may be alive at once


@dataclass(frozen=True)
class Reference:
    half_log_det: float  # 1/2 log det(I + A^T A), nats
    nats: float  # the same with the constants of the Gaussian noise
    gradient: Tensor | None  # all of the generator's parameters, flattened


def references(generator: Generator, z: Tensor, noises: tuple[float, ...], *, gradient: bool) -> dict[float, Reference]:
    """One for each noise; the Gram matrix J^T J is formed once."""
    if isinstance(generator, PerLayer):  # block diagonal: log-determinants add up
        return _sum_over_parts(generator, z, noises)
    gram = _gram(copy.deepcopy(generator).double(), z.double())
    found = {}
    for noise in noises:
        factor = torch.linalg.cholesky(gram / noise**2 + torch.eye(len(gram), dtype=gram.dtype, device=gram.device))
        half = float(factor.diagonal().log().sum())
        inverse = torch.cholesky_inverse(factor).to(z.dtype) if gradient else None
        slope = None if inverse is None else _gradient(generator, z, noise, inverse)
        found[noise] = Reference(half, half + _constants(noise, generator.num_params), slope)
    return found


def _constants(noise: float, num_params: int) -> float:
    return float(gaussian_constants(torch.tensor(noise, dtype=torch.float64), num_params))


def _sum_over_parts(generator: PerLayer, z: Tensor, noises: tuple[float, ...]) -> dict[float, Reference]:
    parts = [part for part in generator.parts if isinstance(part, Generator)]
    shares = z.split([part.latent_dim for part in parts], 1)
    found = [references(part, share, noises, gradient=False) for part, share in zip(parts, shares, strict=True)]
    halves = {noise: sum(part[noise].half_log_det for part in found) for noise in noises}
    m = generator.num_params
    return {noise: Reference(half, half + _constants(noise, m), None) for noise, half in halves.items()}


def _gram(generator: Generator, z: Tensor) -> Tensor:  # (d, d)
    jacobian = Jacobian(generator, z)
    identity = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    size = max(1, min(64, _CHUNK_BYTES[z.device.type] // (8 * generator.num_params)))
    return torch.cat([jacobian.rmatvec(jacobian.matvec(rows[:, None]))[:, 0] for rows in identity.split(size)])


def _gradient(generator: Generator, z: Tensor, noise: float, inverse: Tensor) -> Tensor:
    """tr(M^-1 A^T dA) = sum_i <A M^-1 e_i, dA e_i>, one unit vector e_i at a time, or several on a GPU."""

    def whitened(z: Tensor) -> Tensor:
        theta: Tensor = generator(z) / noise
        return theta

    parameters = list(generator.parameters())
    total = [torch.zeros_like(parameter, dtype=torch.float64) for parameter in parameters]
    identity = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    size = 1 if z.device.type == "cpu" else 16
    jacobian = Jacobian(whitened, z.expand(size, -1))
    for directions, solved in zip(identity.split(size), inverse.split(size), strict=True):
        if len(directions) < size:
            jacobian = Jacobian(whitened, z.expand(len(directions), -1))
        form = jacobian.bilinear(jacobian.matvec(solved), directions).sum()
        # The last biases have no part in J, hence unused; the recorded evaluation serves all directions.
        slopes = torch.autograd.grad(form, parameters, allow_unused=True, retain_graph=True)
        for sum_so_far, slope in zip(total, slopes, strict=True):
            if slope is not None:
                sum_so_far += slope
    return torch.cat([t.flatten() for t in total])
