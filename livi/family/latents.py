"""Draws of the latent z ~ N(0, I_d): independent, antithetic, orthogonal.

Every scheme leaves each row exactly N(0, I_d), so an average over rows stays unbiased; the schemes differ in how rows
depend on each other, and so in the variance of that average. Antithetic rows cancel every odd term of the integrand,
orthogonal rows spread over the sphere: for S = d rows, an orthogonal draw integrates a linear function of z z^T with
no directional error at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from livi import checks
from livi.draws import normal


class Latents:
    """A scheme for drawing z. `antithetic` says whether the second half of the rows mirrors the first."""

    antithetic: bool

    def draw(
        self,
        num_samples: int,
        latent_dim: int,
        rng: torch.Generator | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:  # (S, d)
        checks.positive_int("num_samples", num_samples)
        checks.positive_int("latent_dim", latent_dim)
        checks.rng("rng", rng)

        def rows(count: int) -> Tensor:
            return self._rows(count, latent_dim, rng, dtype, torch.device(device))

        return mirrored(num_samples, rows) if self.antithetic else rows(num_samples)

    def _rows(
        self, count: int, dim: int, rng: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return normal((count, dim), rng, dtype, device)


@dataclass(frozen=True)
class Independent(Latents):
    """Plain independent rows.

    >>> Independent().draw(4, 3, torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3])
    """

    antithetic = False


FEW = 4  # rows that are made orthogonal one by one


@dataclass(frozen=True)
class Antithetic(Latents):
    """Independent rows in the first half, their negatives in the second. An odd last row stands alone."""

    antithetic = True


@dataclass(frozen=True)
class Orthogonal(Latents):
    """Rows in random orthogonal directions with independent chi(d) radii, by default with their negatives.

    More directions than latent_dim come as several independent frames. A frame of k directions costs one QR
    factorisation, O(d k^2).

    >>> z = Orthogonal(antithetic=False).draw(3, 5, torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> gram = z @ z.T
    >>> bool((gram - gram.diag().diag()).abs().max() < 1e-12)
    True
    """

    antithetic: bool = True

    def _rows(
        self, count: int, dim: int, rng: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        frames = [_frame(min(dim, count - start), dim, rng, dtype, device) for start in range(0, count, dim)]
        return torch.cat(frames)


def mirrored(num_samples: int, draw: Callable[[int], Tensor]) -> Tensor:
    """`draw` for the first half (rounded up), the negatives of its rows for the second."""
    checks.positive_int("num_samples", num_samples)
    half = draw((num_samples + 1) // 2)
    return torch.cat([half, -half[: num_samples // 2]])


def _gram_schmidt(rows: Tensor) -> Tensor:  # (k, d)
    """Orthonormal rows, twice over for rounding: a few operations where a factorisation on a GPU takes hundreds."""
    found: list[Tensor] = []
    for row in rows:
        for _ in range(2):
            for other in found:
                row = row - (row @ other) * other
        found.append(row / row.norm())
    return torch.stack(found)


def _haar(columns: Tensor) -> Tensor:  # (d, k) -> (k, d)
    q, r = torch.linalg.qr(columns)
    # QR fixes the sign of R's diagonal by convention; undoing that makes Q exactly Haar distributed.
    directions: Tensor = (q * r.diagonal().sign()).T
    return directions


def _frame(rows: int, dim: int, rng: torch.Generator | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    precise = torch.promote_types(dtype, torch.float32)  # there is no QR factorisation in half precision
    vectors = normal((dim, rows), rng, precise, device)
    if rows == 1:
        return vectors.T.to(dtype)
    directions = _gram_schmidt(vectors.T) if rows <= FEW else _haar(vectors)
    # The radius of an independent Gaussian vector, so that each row is again exactly N(0, I_d).
    radii: Tensor = normal((rows, dim), rng, precise, device).norm(dim=1, keepdim=True)
    return (directions * radii).to(dtype)
