"""The marginal densities of single weights: several modes, heavy tails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import torch
from torch import Tensor

from livi.posterior.diagnostics.correlation import MIN_SAMPLES, standardised, too_few
from livi.posterior.diagnostics.estimate import Estimate, Skipped, jackknife
from livi.posterior.diagnostics.kernel import kernel_density
from livi.posterior.diagnostics.layers import Layers, weight_name

SIGNIFICANCE = 0.01
"""Probability of calling any weight multimodal, or any heavy-tailed, where all of them are Gaussian."""

NUM_DIRECTIONS = 3


@dataclass(frozen=True)
class WeightDensity:
    """The density of one weight, or along one direction, by a Gaussian kernel, and what can be said about its shape."""

    name: str
    index: int | None  # place in theta; None for a principal direction
    grid: Tensor  # (G,)
    density: Tensor  # (G,)
    bandwidth: float
    modes: tuple[float, ...]  # places of the significant modes, from left to right
    excess_kurtosis: Estimate  # 0 for a Gaussian, negative for two separate modes, positive for heavy tails


@dataclass(frozen=True)
class ShapeCheck:
    """The examined weights, and how many of all the weights looked at have tails that no Gaussian has.

    Modes that are apart in many weights a little, and in none much, show along the principal directions only: those in
    which the weights, each in units of its standard deviation, vary most together.
    """

    densities: tuple[WeightDensity, ...]
    directions: tuple[WeightDensity, ...]
    chosen: bool  # the user's weights; otherwise those that look most bimodal
    num_weights: int  # looked at
    heavy: int  # of them with an excess kurtosis significantly above zero
    light: int  # significantly below zero
    mean_excess_kurtosis: Estimate  # over weights

    @property
    def multimodal(self) -> tuple[WeightDensity, ...]:
        """Weights and directions with more than one significant mode."""
        return tuple(density for density in (*self.densities, *self.directions) if len(density.modes) > 1)


def check_shape(
    samples: Tensor,  # (S, p)
    layers: Layers,
    chosen: Sequence[int] | None,
    num_shapes: int,
) -> ShapeCheck | Skipped:
    """Cost: O(S p min(S, p))."""
    count = len(samples)
    if count < MIN_SAMPLES:
        return too_few(samples)
    unit = standardised(samples)
    varying = (unit != 0).any(0)
    if not bool(varying.any()):
        return Skipped("not applicable: no weight varies")
    places = layers.columns.tolist()
    if chosen is None:
        score = torch.where(varying, bimodality(unit), -torch.inf)
        columns = score.topk(min(num_shapes, int(varying.sum()))).indices.tolist()
    else:
        columns = [places.index(index) for index in chosen]
    looked_at = int(varying.sum()) if chosen is None else len(columns)
    scores = kurtosis_score(unit[:, varying])
    critical = NormalDist().inv_cdf(1.0 - SIGNIFICANCE / (2.0 * int(varying.sum())))
    mean, error = jackknife(lambda rows: excess_kurtosis(rows).mean(), unit[:, varying])
    return ShapeCheck(
        densities=tuple(
            _examine(samples[:, column], weight_name(layers.layout, places[column]), places[column], looked_at)
            for column in columns
        ),
        directions=tuple(
            _examine(scores, f"principal direction {i + 1}", None, NUM_DIRECTIONS)
            for i, scores in enumerate(principal_scores(unit, NUM_DIRECTIONS).T)
        ),
        chosen=chosen is not None,
        num_weights=int(varying.sum()),
        heavy=int((scores > critical).sum()),
        light=int((scores < -critical).sum()),
        mean_excess_kurtosis=Estimate(mean.item(), error.item()),
    )


def significant_modes(density: Tensor, num_samples: int, bandwidth: float, critical: float) -> list[int]:  # (G,)
    """Places on the grid of the modes that stay when insignificant dips are filled.

    Where the true density is f, the estimate's standard error is sqrt(f / (2 sqrt(pi) S h)). A dip between two modes
    counts if the lower of them stands above its bottom by more than `critical` standard errors of the difference;
    otherwise the lower mode is dropped, the shallowest dip first.
    """
    variance = density / (2.0 * math.sqrt(math.pi) * num_samples * bandwidth)
    rising = (density[1:-1] > density[:-2]) & (density[1:-1] >= density[2:])
    modes = (rising.nonzero()[:, 0] + 1).tolist() or [int(density.argmax())]
    while len(modes) > 1:
        depths = []
        for left, right in pairwise(modes):
            bottom = left + int(density[left:right].argmin())
            lower = left if density[left] < density[right] else right
            depth = (density[lower] - density[bottom]) / (variance[lower] + variance[bottom]).sqrt()
            depths.append((float(depth), lower))
        shallowest, lower = min(depths)
        if shallowest > critical:
            break
        modes.remove(lower)
    return modes


def bimodality(unit: Tensor) -> Tensor:  # (S, p) -> (p,)
    """Sarle's coefficient (skewness^2 + 1) / kurtosis: 1/3 for a Gaussian, 5/9 for a uniform, 1 for two points."""
    scaled = standardised(unit)
    skewness, kurtosis = scaled.pow(3).mean(0), scaled.pow(4).mean(0)
    return (skewness.square() + 1.0) / kurtosis


def excess_kurtosis(samples: Tensor) -> Tensor:  # (S, p) -> (p,)
    """Unbiased for a Gaussian, whose standard error is about sqrt(24 / S)."""
    n = len(samples)
    centred = samples - samples.mean(0)
    ratio = n * centred.pow(4).sum(0) / centred.square().sum(0).square()
    return (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * (ratio - 3.0) + 6.0)


def kurtosis_score(samples: Tensor) -> Tensor:  # (S, p) -> (p,)
    """The kurtosis as a standard normal score under Gaussian samples (Anscombe and Glynn, 1983)."""
    n = len(samples)
    centred = samples - samples.mean(0)
    kurtosis = n * centred.pow(4).sum(0) / centred.square().sum(0).square()
    expected = 3.0 * (n - 1) / (n + 1)
    variance = 24.0 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5))
    unit = (kurtosis - expected) / math.sqrt(variance)
    skew = (
        6.0 * (n * n - 5 * n + 2) / ((n + 7) * (n + 9)) * math.sqrt(6.0 * (n + 3) * (n + 5) / (n * (n - 2) * (n - 3)))
    )
    degrees = 6.0 + 8.0 / skew * (2.0 / skew + math.sqrt(1.0 + 4.0 / skew**2))
    base = 1.0 + unit * math.sqrt(2.0 / (degrees - 4.0))
    cube = base.sign() * ((1.0 - 2.0 / degrees) / base.abs()).pow(1.0 / 3.0)
    return (1.0 - 2.0 / (9.0 * degrees) - cube) / math.sqrt(2.0 / (9.0 * degrees))


def principal_scores(unit: Tensor, count: int) -> Tensor:  # (S, p) -> (S, <= count)
    """The samples along the directions in which they vary most. Cost: O(S p min(S, p))."""
    wide = unit.shape[1] > len(unit)
    values, vectors = torch.linalg.eigh(unit @ unit.T if wide else unit.T @ unit)
    kept = min(count, int((values > 1e-9 * values[-1]).sum()))
    leading = vectors[:, -kept:].flip(1)
    scores: Tensor = leading * values[-kept:].flip(0).sqrt() if wide else unit @ leading
    return scores


def _examine(values: Tensor, name: str, index: int | None, looked_at: int) -> WeightDensity:
    values = values.double()
    if not bool((standardised(values[:, None]) != 0).any()):
        raise ValueError(f"weights: expected ones that vary, got {name}, which is constant.")
    grid, density, bandwidth = kernel_density(values)
    modes = significant_modes(density, len(values), bandwidth, critical_depth(looked_at))
    value, error = jackknife(excess_kurtosis, values[:, None])
    return WeightDensity(
        name=name,
        index=index,
        grid=grid,
        density=density,
        bandwidth=bandwidth,
        modes=tuple(grid[mode].item() for mode in modes),
        excess_kurtosis=Estimate(value.item(), error.item()),
    )


def critical_depth(looked_at: int) -> float:
    """Standard errors that a dip must be deep, so that among so many weights it is rarely found by chance.

    At the uniform distribution, the hardest of all without a second mode, the rate comes out near SIGNIFICANCE; at a
    Gaussian it is far smaller.
    """
    return NormalDist().inv_cdf(1.0 - SIGNIFICANCE / looked_at)
