"""The error of the mean gradient that an entropy estimator gives, compared with the exact one.

A gradient by one random probe is far from the exact one; training follows their mean. Where the solve behind each is
exact, that mean is the exact gradient. So the bias is the mean difference that cutting the solve short makes, probe by
probe, and few probes are enough to know it: what a probe does to both sides is gone from their difference.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from livi.draws import normal
from livi.family.entropy import EntropyEstimator, Exact, Lanczos
from livi.family.implicit import ImplicitPosterior

SOLVED = 1e-6  # the residual of a solve that counts as exact, in double precision


@dataclass(frozen=True)
class Bias:
    """Of a mean gradient: its projection on the exact one, and its norm, both over the exact one's norm.

    `projection_error` is the standard error of the first over probes; `raw_projection` and its error are without the
    trick, from the probes' gradients as they are. `iterations` and `missed` are of the estimator's solves.
    """

    projection: float
    norm: float
    projection_error: float
    raw_projection: float
    raw_error: float
    iterations: float
    missed: float


def bias_of(
    posterior: ImplicitPosterior, estimator: Lanczos, *, latents: int = 4, probes: int = 16, seed: int = 0
) -> Bias:
    """At the parameters as they are; the mean is over probes and over latents.

    Products run in the posterior's own precision, as in a fit; the solves that count as exact, and the exact gradient,
    in double precision.
    """
    rng = torch.Generator(posterior.layout.device).manual_seed(seed)
    z = normal((latents, posterior.generators[0].latent_dim), rng, posterior.layout.dtype, posterior.layout.device)
    solved = replace(estimator, tolerance=SOLVED, max_iterations=4 * posterior.generators[0].latent_dim)
    exact = torch.stack([_gradient(posterior, Exact(), row, 0, double=True)[0] for row in z.split(1)]).mean(0)
    differences, raw, iterations, missed = [], [], [], []
    for probe in range(probes):
        found = []
        for place, row in enumerate(z.split(1)):
            draw = seed + 1 + probe * latents + place
            cut, products, converged = _gradient(posterior, estimator, row, draw)
            whole, _, _ = _gradient(posterior, solved, row, draw, double=True)
            found.append((cut - whole, cut))
            iterations.append(products / 2)
            missed.append(not converged)
        differences.append(torch.stack([difference for difference, _ in found]).mean(0))
        raw.append(torch.stack([gradient for _, gradient in found]).mean(0))
    size = exact.square().sum()
    shares, raws = (torch.stack([(row @ exact) / size for row in rows]) for rows in (differences, raw))
    return Bias(
        projection=1.0 + float(shares.mean()),
        norm=float((exact + torch.stack(differences).mean(0)).norm() / size.sqrt()),
        projection_error=float(shares.std() / probes**0.5),
        raw_projection=float(raws.mean()),
        raw_error=float(raws.std() / probes**0.5),
        iterations=sum(iterations) / len(iterations),
        missed=sum(missed) / len(missed),
    )


def _gradient(
    posterior: ImplicitPosterior, estimator: EntropyEstimator, z: Tensor, seed: int, *, double: bool = False
) -> tuple[Tensor, int, bool]:
    """Of all parameters of generator and noise, flat, in double precision; products, and whether it converged."""
    parts = torch.nn.ModuleList([posterior.generators[0], posterior.noises[0]])
    if double:
        parts, z = copy.deepcopy(parts).double(), z.double()
    generator, noise = parts
    rng = torch.Generator().manual_seed(seed)  # the same probes in either precision
    estimate = estimator(generator, z, noise.std(), rng)
    parameters = list(parts.parameters())
    slopes = torch.autograd.grad(estimate.nats.sum(), parameters, allow_unused=True, materialize_grads=True)
    flat = torch.cat([slope.flatten().double() for slope in slopes])
    return flat, estimate.report.products, bool(estimate.report.converged.all())
