"""Rotated images (test M2), and images corrupted at several severities (test C2), on any device.

The corruptions are six of the nineteen of Hendrycks and Dietterich (2019), with the constants of their CIFAR-10-C. They
are computed from pixels alone. Left out are those made with other libraries' images, filters or codecs (defocus, glass,
motion and zoom blur, snow, frost, fog, elastic, pixelate, JPEG, spatter), and two of their extra four (speckle noise,
saturate). Noise is drawn from a fixed seed, so images are not the published ones, but like them.
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
    """A rotation, or a corruption, at several levels.

    Args:
        levels: from 0, which changes nothing, to the strongest.
        apply: changes images between 0 and 1, given a level above 0.
    """

    levels: tuple[float, ...]
    apply: Callable[[Tensor, float], Tensor]  # (n, c, h, w) -> (n, c, h, w)

    def __call__(self, images: Tensor, level: float) -> Tensor:
        return images if level == 0 else self.apply(images, level)


def rotated(images: Tensor, degrees: float) -> Tensor:
    """Images rotated anticlockwise about the centre, with bilinear interpolation; corners become black."""
    angle = math.radians(degrees)
    matrix_rows = [[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]]
    matrix = torch.tensor(matrix_rows, dtype=images.dtype, device=images.device).expand(len(images), -1, -1)
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def gaussian_noise(images: Tensor, severity: float) -> Tensor:
    std = (0.04, 0.06, 0.08, 0.09, 0.10)[int(severity) - 1]
    return _bytes(images + std * normal(tuple(images.shape), _seeded(severity), images.dtype, images.device))


def shot_noise(images: Tensor, severity: float) -> Tensor:
    photons = (500, 250, 100, 75, 50)[int(severity) - 1]
    return _bytes(poisson(photons * images, _seeded(severity)) / photons)


def impulse_noise(images: Tensor, severity: float) -> Tensor:
    """A share of the values set to 0 or 1 at random."""
    share = (0.01, 0.02, 0.03, 0.05, 0.07)[int(severity) - 1]
    numbers = torch.rand(images.shape, generator=_seeded(severity), dtype=images.dtype).to(images.device)
    return torch.where(numbers < share, (numbers < 0.5 * share).to(images.dtype), images)


def gaussian_blur(images: Tensor, severity: float) -> Tensor:
    """A blur with a kernel of four standard deviations to each side; the border is replicated."""
    std = (0.4, 0.6, 0.7, 0.8, 1.0)[int(severity) - 1]
    radius, channels = round(4.0 * std), images.shape[1]
    offsets = torch.arange(-radius, radius + 1, dtype=images.dtype, device=images.device)
    kernel = torch.softmax(-0.5 * (offsets / std).square(), 0).expand(channels, 1, 1, -1)
    padded = F.pad(images, 4 * (radius,), mode="replicate")
    across = F.conv2d(padded, kernel, groups=channels)
    return _bytes(F.conv2d(across, kernel.transpose(2, 3), groups=channels))


def brightness(images: Tensor, severity: float) -> Tensor:
    """A higher value, in the colour space of hue, saturation and value."""
    more = (0.05, 0.1, 0.15, 0.2, 0.3)[int(severity) - 1]
    value = images.amax(1, keepdim=True)
    raised = (value + more).clamp(max=1.0)
    return _bytes(torch.where(value > 0, images * raised / value.clamp_min(1e-12), raised))


def contrast(images: Tensor, severity: float) -> Tensor:
    """Pixels moved towards the mean of their channel and image."""
    share = (0.75, 0.5, 0.4, 0.3, 0.15)[int(severity) - 1]
    means = images.mean((2, 3), keepdim=True)
    return _bytes((images - means) * share + means)


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


def _bytes(images: Tensor) -> Tensor:
    """Rounded down to multiples of 1 / 255, as in published images."""
    return (255.0 * images.clamp(0.0, 1.0)).floor() / 255.0
