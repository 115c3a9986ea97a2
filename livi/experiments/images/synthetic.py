"""Synthetic out-of-distribution (OOD) images, made of held-out ones: choices may be made by them.

The OOD sets of the tables are for reporting, and rotated images too, so neither may decide a setting. These are
made of validation images in six ways that take apart what the images show and keep their pixels, strokes or
colours. One way alone says little: confidence on it differs by many points between two seeds of the same method, and by
less on the average of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

SEED = 0
BEND, SMOOTH = 0.35, 5  # how far points are moved, of half a side, and over how coarse a grid


def quarters(images: Tensor) -> Tensor:
    """Quarters exchanged crosswise."""
    return torch.roll(images, (images.shape[-2] // 2, images.shape[-1] // 2), (-2, -1))


def halves(images: Tensor) -> Tensor:
    """The upper half upside down over the lower half of the next image."""
    middle = images.shape[-2] // 2
    return torch.cat([images[:, :, :middle].flip(-2), images.roll(1, 0)[:, :, middle:]], -2)


def overlaid(images: Tensor) -> Tensor:
    """The brighter of each pixel of an image and of the mirrored next one."""
    return torch.maximum(images, images.roll(1, 0).flip(-1))


def inverted(images: Tensor) -> Tensor:
    """Dark for light."""
    return 1.0 - images


def bent(images: Tensor) -> Tensor:
    """Points moved far and smoothly, each image in its own way."""
    coarse = _random((len(images), 2, SMOOTH, SMOOTH), images)
    moved = BEND * F.interpolate(coarse, size=images.shape[-2:], mode="bicubic", align_corners=True)
    still = torch.eye(2, 3, dtype=images.dtype, device=images.device).expand(len(images), -1, -1)
    grid = F.affine_grid(still, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid + moved.movedim(1, -1), align_corners=False)


def scrambled(images: Tensor) -> Tensor:
    """Each image's frequencies at other phases: its texture, without its shapes."""
    waves = torch.fft.rfft2(images)
    turns = math.pi * _random((len(images), 1, *waves.shape[-2:]), images)
    turns[..., 0, 0] = 0.0  # how bright it is on the whole
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
    """Numbers between -1 and 1, the same on every device and at every call."""
    lots = 2.0 * torch.rand(shape, generator=torch.Generator().manual_seed(SEED), dtype=like.dtype) - 1.0
    return lots.to(like.device)
