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


def normal(
    shape: tuple[int, ...],
    rng: torch.Generator | None,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Standard normal numbers drawn on the rng's own device, then moved: a seed means the same draw on every device."""
    source = device if rng is None else rng.device
    return torch.randn(shape, generator=rng, dtype=dtype, device=source).to(device)


def rademacher(
    shape: tuple[int, ...],
    rng: torch.Generator | None,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Independent fair signs, drawn like `normal`."""
    source = device if rng is None else rng.device
    signs = torch.randint(0, 2, shape, generator=rng, device=source).to(device)
    return signs.to(dtype).mul_(2).sub_(1)


@dataclass(frozen=True)
class Independent:
    """Plain independent rows.

    >>> Independent().draw(4, 3, torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3])
    """

    antithetic = False

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
        return normal((num_samples, latent_dim), rng, dtype, torch.device(device))


@dataclass(frozen=True)
class Antithetic:
    """Independent rows in the first half, their negatives in the second. An odd last row stands alone."""

    antithetic = True

    def draw(
        self,
        num_samples: int,
        latent_dim: int,
        rng: torch.Generator | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:  # (S, d)
        checks.positive_int("latent_dim", latent_dim)
        return mirrored(num_samples, lambda rows: normal((rows, latent_dim), rng, dtype, torch.device(device)))


@dataclass(frozen=True)
class Orthogonal:
    """Rows in random orthogonal directions with independent chi(d) radii, by default with their negatives.

    More directions than latent_dim come as several independent frames. A frame of k directions costs one QR
    factorisation, O(d k^2).

    >>> z = Orthogonal(antithetic=False).draw(3, 5, torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> gram = z @ z.T
    >>> bool((gram - gram.diag().diag()).abs().max() < 1e-12)
    True
    """

    antithetic: bool = True

    def draw(
        self,
        num_samples: int,
        latent_dim: int,
        rng: torch.Generator | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:  # (S, d)
        checks.positive_int("latent_dim", latent_dim)

        def directions(rows: int) -> Tensor:
            frames = [
                _frame(min(latent_dim, rows - start), latent_dim, rng, dtype, torch.device(device))
                for start in range(0, rows, latent_dim)
            ]
            return torch.cat(frames)

        if self.antithetic:
            return mirrored(num_samples, directions)
        return directions(checks.positive_int("num_samples", num_samples))


Latents = Independent | Antithetic | Orthogonal


def mirrored(num_samples: int, draw: Callable[[int], Tensor]) -> Tensor:
    """`draw` for the first half (rounded up), the negatives of its rows for the second."""
    checks.positive_int("num_samples", num_samples)
    half = draw((num_samples + 1) // 2)
    return torch.cat([half, -half[: num_samples // 2]])


def _frame(rows: int, dim: int, rng: torch.Generator | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    precise = torch.promote_types(dtype, torch.float32)  # there is no QR factorisation in half precision
    q, r = torch.linalg.qr(normal((dim, rows), rng, precise, device))
    # QR fixes the sign of R's diagonal by convention; undoing that makes Q exactly Haar distributed.
    directions: Tensor = (q * r.diagonal().sign()).T
    # The radius of an independent Gaussian vector, so that each row is again exactly N(0, I_d).
    radii: Tensor = normal((rows, dim), rng, precise, device).norm(dim=1, keepdim=True)
    return (directions * radii).to(dtype)
