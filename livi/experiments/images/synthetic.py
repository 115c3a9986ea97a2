"""Synthetic out-of-distribution (OOD) images, made of validation images, for choosing settings.

The OOD sets of the tables and the rotated images are for reporting, so they may not decide a setting. These images are
made of validation images in six ways that destroy what the images show and keep their pixels, strokes or colours. The
average of all six counts: on a single one, confidence differs by many points between two seeds of the same method.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

SEED = 0
BEND, SMOOTH = 0.35, 5  # size of the displacements, relative to half a side, and points on a side of their grid


def quarters(images: Tensor) -> Tensor:
    """Diagonally opposite quarters exchanged."""
    return torch.roll(images, (images.shape[-2] // 2, images.shape[-1] // 2), (-2, -1))


def halves(images: Tensor) -> Tensor:
    """The upper half, flipped vertically, above the lower half of the next image."""
    middle = images.shape[-2] // 2
    return torch.cat([images[:, :, :middle].flip(-2), images.roll(1, 0)[:, :, middle:]], -2)


def overlaid(images: Tensor) -> Tensor:
    """The pixelwise maximum of an image and the next one, mirrored."""
    return torch.maximum(images, images.roll(1, 0).flip(-1))


def inverted(images: Tensor) -> Tensor:
    """Brightness inverted."""
    return 1.0 - images


def bent(images: Tensor) -> Tensor:
    """Large smooth random deformations, different for each image."""
    coarse = _random((len(images), 2, SMOOTH, SMOOTH), images)
    moved = BEND * F.interpolate(coarse, size=images.shape[-2:], mode="bicubic", align_corners=True)
    identity = torch.eye(2, 3, dtype=images.dtype, device=images.device).expand(len(images), -1, -1)
    grid = F.affine_grid(identity, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid + moved.movedim(1, -1), align_corners=False)


def scrambled(images: Tensor) -> Tensor:
    """The Fourier phases of each image shifted randomly, which keeps its texture and destroys its shapes."""
    waves = torch.fft.rfft2(images)
    turns = math.pi * _random((len(images), 1, *waves.shape[-2:]), images)
    turns[..., 0, 0] = 0.0  # keeps the mean brightness
    found: Tensor = torch.fft.irfft2(waves * torch.polar(torch.ones_like(turns), turns), s=images.shape[-2:])
    return found.clamp(0.0, 1.0)


SYNTHETIC: dict[str, Callable[[Tensor], Tensor]] = {  # (n, c, h, w) between 0 and 1 -> such images
    "quarters": quarters,
    "halves": halves,
    "overlaid": overlaid,
    "inverted": inverted,
    "bent": bent,
    "scrambled": scrambled,
}


def _random(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Random numbers between -1 and 1, the same on every device and in every call."""
    numbers = 2.0 * torch.rand(shape, generator=torch.Generator().manual_seed(SEED), dtype=like.dtype) - 1.0
    return numbers.to(like.device)
