"""Pictures that drift away from those trained on: turned (test M2), or corrupted in degrees (test C2), on any device.

The corruptions are six of the nineteen of Hendrycks and Dietterich (2019), with the constants of their CIFAR-10-C:
those that are formulas of pixels. Left out are those made with other libraries' pictures or filters (defocus, glass,
motion and zoom blur, snow, frost, fog, elastic, pixelate, JPEG, speckle, spatter, saturate). Noise is drawn anew from a
fixed seed, so pictures are like those published and not the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from livi.draws import normal, poisson


@dataclass(frozen=True)
class Shift:
    """A drift in degrees.

    Args:
        levels: of no drift, 0, to the strongest.
        apply: pictures between 0 and 1 and a level above 0 -> such pictures.
    """

    levels: tuple[float, ...]
    apply: Callable[[Tensor, float], Tensor]  # (n, c, h, w) -> (n, c, h, w)

    def __call__(self, pictures: Tensor, level: float) -> Tensor:
        return pictures if level == 0 else self.apply(pictures, level)


def rotated(pictures: Tensor, degrees: float) -> Tensor:
    """Turned about the middle, against the clock, bilinear; black moves in."""
    angle = math.radians(degrees)
    turn = [[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]]
    matrix = torch.tensor(turn, dtype=pictures.dtype, device=pictures.device).expand(len(pictures), -1, -1)
    grid = F.affine_grid(matrix, list(pictures.shape), align_corners=False)
    return F.grid_sample(pictures, grid, align_corners=False)


def gaussian_noise(pictures: Tensor, severity: float) -> Tensor:
    std = (0.04, 0.06, 0.08, 0.09, 0.10)[int(severity) - 1]
    return _bytes(pictures + std * normal(tuple(pictures.shape), _seeded(severity), pictures.dtype, pictures.device))


def shot_noise(pictures: Tensor, severity: float) -> Tensor:
    photons = (500, 250, 100, 75, 50)[int(severity) - 1]
    return _bytes(poisson(photons * pictures, _seeded(severity)) / photons)


def impulse_noise(pictures: Tensor, severity: float) -> Tensor:
    """A share of the values becomes 0 or 1."""
    share = (0.01, 0.02, 0.03, 0.05, 0.07)[int(severity) - 1]
    lots = torch.rand(pictures.shape, generator=_seeded(severity), dtype=pictures.dtype).to(pictures.device)
    return torch.where(lots < share, (lots < 0.5 * share).to(pictures.dtype), pictures)


def gaussian_blur(pictures: Tensor, severity: float) -> Tensor:
    """Up to four standard deviations; what is beyond the border is like the border."""
    std = (0.4, 0.6, 0.7, 0.8, 1.0)[int(severity) - 1]
    radius, channels = round(4.0 * std), pictures.shape[1]
    places = torch.arange(-radius, radius + 1, dtype=pictures.dtype, device=pictures.device)
    kernel = torch.softmax(-0.5 * (places / std).square(), 0).expand(channels, 1, 1, -1)
    padded = F.pad(pictures, 4 * (radius,), mode="replicate")
    across = F.conv2d(padded, kernel, groups=channels)
    return _bytes(F.conv2d(across, kernel.transpose(2, 3), groups=channels))


def brightness(pictures: Tensor, severity: float) -> Tensor:
    """More of the value in hue, saturation and value."""
    more = (0.05, 0.1, 0.15, 0.2, 0.3)[int(severity) - 1]
    value = pictures.amax(1, keepdim=True)
    raised = (value + more).clamp(max=1.0)
    return _bytes(torch.where(value > 0, pictures * raised / value.clamp_min(1e-12), raised))


def contrast(pictures: Tensor, severity: float) -> Tensor:
    """Towards the mean of each channel of each picture."""
    share = (0.75, 0.5, 0.4, 0.3, 0.15)[int(severity) - 1]
    means = pictures.mean((2, 3), keepdim=True)
    return _bytes((pictures - means) * share + means)


SEVERITIES = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
ROTATION = {"rotation": Shift(tuple(15.0 * step for step in range(13)), rotated)}
CORRUPTIONS = {
    name: Shift(SEVERITIES, apply)
    for name, apply in {
        "gaussian blur": gaussian_blur,
        "gaussian noise": gaussian_noise,
        "shot noise": shot_noise,
        "impulse noise": impulse_noise,
        "brightness": brightness,
        "contrast": contrast,
    }.items()
}


def _seeded(severity: float) -> torch.Generator:
    return torch.Generator().manual_seed(int(severity))


def _bytes(pictures: Tensor) -> Tensor:
    """Rounded down to what a byte can hold, as published pictures are."""
    return (255.0 * pictures.clamp(0.0, 1.0)).floor() / 255.0
