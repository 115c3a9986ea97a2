"""Gaussian posteriors that are computed, not learned on a bound: a mean, and a covariance in one of several forms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from livi import checks
from livi.draws import normal
from livi.network import Layout
from livi.network.linearised import Linearised
from livi.spec import Specified


class GaussianWeights(Specified, nn.Module, ABC):
    """theta ~ N(mean, covariance), where a subclass draws the deviations from the mean.

    Args:
        layout: which weights, in which order. Moving or converting the sampler moves its module along.
        linearised: the network is its first-order expansion around the mean, for which a Gaussian over its weights is a
            Gaussian over its outputs (Immer et al. 2021); see `livi.network.linearised`.
    """

    def __init__(self, layout: Layout, mean: Tensor, *, linearised: bool = False) -> None:  # (m,)
        super().__init__()
        checks.vector("mean", mean, layout.num_params)
        self.mean: Tensor
        self.keep("mean", mean)
        self.layout = Linearised(layout, self.centre) if linearised else layout

    @property
    def num_params(self) -> int:
        return self.mean.shape[0]

    def centre(self) -> Tensor:  # (m,)
        return self.mean

    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (S, m)
        checks.positive_int("num_samples", num_samples)
        return self.mean + self.deviations(num_samples, rng)

    @abstractmethod
    def deviations(self, num_samples: int, rng: torch.Generator | None) -> Tensor:  # (S, m)
        """Draws from N(0, covariance)."""

    def keep(self, name: str, value: Tensor) -> None:
        """Register a contiguous copy as a buffer. After saving and loading, draws then round the same."""
        self.register_buffer(name, value.detach().clone(memory_format=torch.contiguous_format))

    def noise(self, shape: tuple[int, ...], rng: torch.Generator | None) -> Tensor:
        return normal(shape, rng, self.mean.dtype, self.mean.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self.layout.module._apply(fn, recurse)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]


class LowRankCovariance(GaussianWeights):
    """Covariance diag(std^2) + columns columns^T; without columns the weights are independent.

    Memory: (rank + 2) m numbers.

    >>> layout = Layout(nn.Linear(2, 1))
    >>> q = LowRankCovariance(layout, torch.zeros(3), torch.ones(3), torch.ones(3, 1))
    >>> q.sample(100_000, torch.Generator().manual_seed(0)).T.cov().round(decimals=1)
    tensor([[2., 1., 1.],
            [1., 2., 1.],
            [1., 1., 2.]])
    """

    def __init__(self, layout: Layout, mean: Tensor, std: Tensor, columns: Tensor | None = None) -> None:
        super().__init__(layout, mean)
        checks.vector("std", std, layout.num_params)
        self.std: Tensor  # (m,)
        self.columns: Tensor  # (m, rank)
        self.keep("std", std)
        self.keep("columns", mean.new_zeros(len(mean), 0) if columns is None else columns)

    def deviations(self, num_samples: int, rng: torch.Generator | None) -> Tensor:  # (S, m)
        alone = self.std * self.noise((num_samples, self.num_params), rng)
        if not self.columns.shape[1]:
            return alone
        return alone + self.noise((num_samples, self.columns.shape[1]), rng) @ self.columns.T


class LowRankPrecision(GaussianWeights):
    """Precision diag(p) + vectors diag(values) vectors^T; draws need no m x m matrix.

    With V = diag(p)^-1/2 vectors = Q R, whose Q is orthonormal, the precision in units of the prior is
    I + Q (R diag(values) R^T) Q^T. So of standard normal numbers only what lies along Q is shrunk.

    Args:
        precision: p, of the prior.
        vectors: (m, k), orthonormal or not.
        values: (k,), not negative.
    """

    def __init__(self, layout: Layout, mean: Tensor, precision: Tensor, vectors: Tensor, values: Tensor) -> None:
        super().__init__(layout, mean)
        checks.vector("precision", precision, layout.num_params)
        self.precision: Tensor
        self.vectors: Tensor
        self.values: Tensor
        for name, value in (("precision", precision), ("vectors", vectors), ("values", values)):
            self.keep(name, value)

    def deviations(self, num_samples: int, rng: torch.Generator | None) -> Tensor:  # (S, m)
        scale = self.precision.rsqrt()
        along, triangle = torch.linalg.qr(scale[:, None] * self.vectors)
        added, turn = torch.linalg.eigh((triangle * self.values) @ triangle.T)
        axes = along @ turn  # (m, k)
        unit = self.noise((num_samples, self.num_params), rng)
        shrunk = (1.0 + added.clamp_min(0.0)).rsqrt() - 1.0
        drawn: Tensor = scale * (unit + ((unit @ axes) * shrunk) @ axes.T)
        return drawn


class DenseBlock(GaussianWeights):
    """A full covariance of one slice of the weights, such as the last layer; all others are fixed at the mean.

    Args:
        first: the number of the block's first weight.
        factor: (k, k), whose product with its transpose is the covariance.
    """

    def __init__(self, layout: Layout, mean: Tensor, first: int, factor: Tensor) -> None:
        super().__init__(layout, mean)
        self.first = first
        self.factor: Tensor
        self.keep("factor", factor)

    def deviations(self, num_samples: int, rng: torch.Generator | None) -> Tensor:  # (S, m)
        moved = self.mean.new_zeros(num_samples, self.num_params)
        size = len(self.factor)
        moved[:, self.first : self.first + size] = self.noise((num_samples, size), rng) @ self.factor.T
        return moved


class KroneckerPrecision(GaussianWeights):
    """For each parameter tensor of the layout, W (out, in): precision (B kron A) + p, B and A by their eigenvectors.

    A draw is Q_B (E / sqrt(b a^T + p)) Q_A^T with E of standard normal numbers: two matrix products, and no matrix
    larger than B or A. A vector has B alone.

    Args:
        precision: p of each parameter tensor, of the prior.
        vectors, values: for each tensor the eigenvectors, and eigenvalues, of its one or two factors.
    """

    def __init__(
        self,
        layout: Layout,
        mean: Tensor,
        precision: Tensor,
        vectors: Sequence[Sequence[Tensor]],
        values: Sequence[Sequence[Tensor]],
        *,
        linearised: bool = False,
    ) -> None:
        super().__init__(layout, mean, linearised=linearised)
        self.precision: Tensor
        self.keep("precision", precision)
        self.ranks = [len(factors) for factors in values]
        for i, (some_vectors, some_values) in enumerate(zip(vectors, values, strict=True)):
            for j, (vector, value) in enumerate(zip(some_vectors, some_values, strict=True)):
                self.keep(f"vectors_{i}_{j}", vector)
                self.keep(f"values_{i}_{j}", value)

    def deviations(self, num_samples: int, rng: torch.Generator | None) -> Tensor:  # (S, m)
        return torch.cat([self._of_tensor(i, num_samples, rng) for i in range(len(self.ranks))], 1)

    def _of_tensor(self, i: int, num_samples: int, rng: torch.Generator | None) -> Tensor:  # (S, size)
        vectors = [self.get_buffer(f"vectors_{i}_{j}") for j in range(self.ranks[i])]
        values = [self.get_buffer(f"values_{i}_{j}").clamp_min(0.0) for j in range(self.ranks[i])]
        if len(vectors) == 1:
            unit = self.noise((num_samples, len(values[0])), rng)
            return (unit * (values[0] + self.precision[i]).rsqrt()) @ vectors[0].T
        unit = self.noise((num_samples, len(values[0]), len(values[1])), rng)
        unit = unit * (torch.outer(*values) + self.precision[i]).rsqrt()
        return (vectors[0] @ unit @ vectors[1].T).flatten(1)
