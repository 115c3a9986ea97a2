"""Density of one variable from samples, by Gaussian kernels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

WIDTHS, MOST = 16, 1000  # bandwidths that cross-validation tries, and samples that it looks at


def kernel_density(
    values: Tensor,  # (S,)
    *,
    bandwidth: float | None = None,
    points: int = 256,
) -> tuple[Tensor, Tensor, float]:
    """Grid of so many points, density and bandwidth of a Gaussian kernel density estimate, by default Silverman's.

    bandwidth = 0.9 min(std, interquartile range / 1.34) S^(-1/5) (Silverman, 1986, equation 3.31).

    >>> grid, density, _ = kernel_density(torch.tensor([-1.0, 0.0, 1.0, 3.0], dtype=torch.float64))
    >>> round(torch.trapezoid(density, grid).item(), 3)
    1.0
    """
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"values: expected at least 2 numbers on one axis, got shape {tuple(values.shape)}.")
    values = values.detach().double()
    if bandwidth is None:
        bandwidth = silverman(values)
    if not bandwidth > 0.0:
        raise ValueError("values: expected numbers that differ, got the same one throughout.")
    low, high = values.min().item() - 4.0 * bandwidth, values.max().item() + 4.0 * bandwidth
    grid = torch.linspace(low, high, points, dtype=values.dtype, device=values.device)
    unit = (grid[:, None] - values) / bandwidth
    density = torch.exp(-0.5 * unit.square()).mean(1) / (bandwidth * math.sqrt(2.0 * math.pi))
    return grid, density, bandwidth


def silverman(values: Tensor) -> float:  # (S,)
    """Silverman's rule of thumb for the bandwidth. Right for a Gaussian, too wide for separate modes."""
    lower, upper = torch.quantile(values, values.new_tensor([0.25, 0.75])).tolist()
    deviation = values.std().item()
    width = min(deviation, (upper - lower) / 1.34) or deviation  # over half of the values may be the same
    return float(0.9 * width * len(values) ** -0.2)


def cross_validated(values: Tensor) -> float:  # (S,)
    """The bandwidth between a tenth of Silverman's and itself at which left-out samples are most probable.

    Shows separate modes as narrow as they are. Cost: O(n^2) for each width tried, of n = min(S, 1,000) samples.
    """
    widest = silverman(values.double())
    if not widest > 0.0:
        return widest
    some = values.double()[:: -(-len(values) // MOST)]
    shrunk = (len(some) / len(values)) ** 0.2  # the best width for all samples is smaller than that for some
    squares = (some[:, None] - some).square().fill_diagonal_(torch.inf)
    best, best_score = widest, -math.inf
    for ratio in torch.logspace(-1.0, 0.0, WIDTHS, dtype=torch.float64).tolist():
        width = ratio * widest / shrunk
        score = (torch.logsumexp(-0.5 * squares / width**2, 1) - math.log(width)).mean().item()
        if score > best_score:
            best, best_score = ratio * widest, score
    return best
