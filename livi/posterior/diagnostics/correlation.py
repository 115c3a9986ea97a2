"""Correlations of weights within and across layers, corrected for the noise floor of S samples.

A sample correlation of independent weights is not zero but about 1/sqrt(S), so the mean square over a block of weights
would show correlation everywhere. For two layers a and b, ||Cov(theta_a, theta_b)||^2, the sum of the squared
covariances of all pairs, has an estimator that is unbiased whatever the distribution (Himeno and Yamada, 2014, for
a = b; it is also the unbiased HSIC of Song et al., 2012, with linear kernels): with sample covariances C,

    (S-1) / (S (S-2) (S-3)) [ (S-1) (S-2) ||C_ab||^2 + tr C_aa tr C_bb - S/(S-1) sum_s |x_as|^2 |x_bs|^2 ],

where x_as are the centred weights of layer a in sample s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from livi.posterior.diagnostics.estimate import Skipped
from livi.posterior.diagnostics.layers import Layers

MIN_SAMPLES = 16
"""Distinct weight vectors below which nothing is said about correlations, ranks and shapes."""


@dataclass(frozen=True)
class CorrelationCheck:
    """Squared correlations between pairs of weights, averaged over the pairs of two layers, each weight with others.

    `mean_square` is unbiased and so may fall below zero; `rms` is its root, zero there. On the diagonal are pairs
    within a layer, NaN for a layer of a single weight. `noise` is the standard deviation that mean_square would have if
    the layers were independent (on the diagonal: the layer's weights).
    """

    layers: tuple[str, ...]
    sizes: tuple[int, ...]  # all weights of each layer
    mean_square: Tensor  # (L, L)
    noise: Tensor  # (L, L)
    across: float  # mean square over all pairs of weights in different layers
    across_noise: float
    matrix: Tensor | None  # (m, m) sample correlations of a small network; noise 1/sqrt(S) in each
    num_samples: int

    @property
    def rms(self) -> Tensor:  # (L, L)
        return self.mean_square.clamp_min(0.0).sqrt()

    def strongest(self) -> tuple[int, int] | None:
        """The two layers that are most clearly correlated, or None where no two stand above six times the noise."""
        ratio = torch.triu(self.mean_square / self.noise, diagonal=1).nan_to_num(0.0)
        if ratio.numel() < 4 or float(ratio.max()) < 6.0:
            return None
        row, column = divmod(int(ratio.argmax()), len(self.layers))
        return row, column


def check_correlation(samples: Tensor, layers: Layers, max_matrix: int) -> CorrelationCheck:  # (S, p)
    """Cost: O(S p min(S, p)), and O(S^2 L^2) where p > S."""
    unit = standardised(samples)
    count = len(unit)
    squares = squared_covariances(unit, layers)  # (L, L): sums of squared correlations
    own = torch.stack([squared_variances(unit[:, part]).sum() for part in layers.slices])
    active = torch.stack([(unit[:, part] != 0).any(0).sum() for part in layers.slices]).double()
    pairs = torch.outer(active, active) - torch.diag(active)
    # Of independent layers: 2 / S^2 ||C_aa||^2 ||C_bb||^2. Within a layer every pair counts twice.
    power = squares.diagonal().clamp_min(0.0)
    noise = (2.0 / (count * (count - 3)) * torch.outer(power, power)).sqrt() / pairs
    noise = noise + (math.sqrt(2.0) - 1.0) * torch.diag(noise.diagonal())
    mean_square = (squares - torch.diag(own)) / pairs
    weights = _cross_pairs(layers, active)
    return CorrelationCheck(
        layers=layers.names,
        sizes=layers.totals,
        mean_square=torch.where(pairs > 0, mean_square, torch.nan),
        noise=torch.where(pairs > 0, noise, torch.nan),
        across=(weights * mean_square.nan_to_num(0.0)).sum().item(),
        across_noise=(weights * noise.nan_to_num(0.0)).square().sum().mul(2.0).sqrt().item(),
        matrix=unit.T @ unit / (count - 1) if layers.complete and unit.shape[1] <= max_matrix else None,
        num_samples=count,
    )


def too_few(samples: Tensor) -> Skipped:
    return Skipped(f"too few samples: needs {MIN_SAMPLES} distinct weight vectors, got {len(samples)}")


def standardised(samples: Tensor) -> Tensor:  # (S, p)
    """Mean 0 and variance 1 in each column; 0 where a weight does not vary."""
    centred = samples.double() - samples.double().mean(0)
    deviation = centred.square().sum(0).div(len(samples) - 1).sqrt()
    tiny = 1e-9 * samples.double().abs().amax(0)  # float32 rounding of a constant is not a variation
    return torch.where(deviation > tiny, centred / deviation, 0.0)


def squared_covariances(samples: Tensor, layers: Layers) -> Tensor:  # (S, p) -> (L, L)
    """||Cov(theta_a, theta_b)||^2 for each two layers, over the weights that were kept, unbiased."""
    n = len(samples)
    centred = samples - samples.mean(0)
    if samples.shape[1] <= n:
        squares = (centred.T @ centred / (n - 1)).square()
        member = torch.block_diag(*[squares.new_ones(1, kept) for kept in layers.kept])  # (L, p)
        norms = member @ squares @ member.T
    else:
        grams = torch.stack([(centred[:, part] @ centred[:, part].T).flatten() for part in layers.slices])
        norms = grams @ grams.T / (n - 1) ** 2  # ||X_a^T X_b||^2 = tr(X_a X_a^T X_b X_b^T)
    lengths = torch.stack([centred[:, part].square().sum(1) for part in layers.slices])  # (L, S)
    traces = lengths.sum(1) / (n - 1)
    return _unbiased(norms, torch.outer(traces, traces), lengths @ lengths.T / (n - 1), n)


def squared_variances(samples: Tensor) -> Tensor:  # (S, p) -> (p,)
    """Var^2 of each weight, unbiased: the part of `squared_covariances` from weights paired with themselves."""
    n = len(samples)
    centred = samples - samples.mean(0)
    squares = (centred.square().sum(0) / (n - 1)).square()
    return _unbiased(squares, squares, centred.pow(4).sum(0) / (n - 1), n)


def _unbiased(norms: Tensor, traces: Tensor, fourth: Tensor, n: int) -> Tensor:
    return (n - 1) / (n * (n - 2) * (n - 3)) * ((n - 1) * (n - 2) * norms + traces - n * fourth)


def _cross_pairs(layers: Layers, active: Tensor) -> Tensor:  # (L, L), sum 1
    """The share of each pair of layers in all pairs of weights from different layers."""
    sizes = torch.tensor(layers.totals, dtype=torch.float64, device=active.device) * (active > 0)
    pairs = torch.outer(sizes, sizes)
    pairs = pairs - torch.diag(pairs.diagonal())
    return pairs / pairs.sum().clamp_min(1.0)
