"""The networks of the paper's image experiments, and a small one with the same parts.

Residual networks come with one of three normalisations. BatchNorm makes the output for one image depend on statistics
of others, which must be measured again for every weight vector that a posterior draws; the other two normalise each
image by itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GROUP = 16  # channels of a group, as in Wu and He (2018)


class Norm(NamedTuple):
    """A normalisation and the activation that follows it, both made for a number of channels."""

    norm: Callable[[int], nn.Module]
    activation: Callable[[int], nn.Module]

    @classmethod
    def named(cls, name: str) -> Norm:
        """One of "batch", "group" and "response" (filter response normalisation)."""
        norms = {
            "batch": cls(nn.BatchNorm2d, _relu),
            "group": cls(lambda channels: nn.GroupNorm(max(1, channels // GROUP), channels), _relu),
            "response": cls(ResponseNorm, Threshold),
        }
        if name not in norms:
            raise ValueError(f"norm: expected one of {', '.join(norms)}, got {name!r}.")
        return norms[name]

    def active(self, channels: int) -> nn.Sequential:
        return nn.Sequential(self.norm(channels), self.activation(channels))


def _relu(_: int) -> nn.Module:
    return nn.ReLU()


def lenet(classes: int = 10, padding: int = 2) -> nn.Sequential:
    """LeNet-5 with ReLU and max-pooling for images of 28 x 28 pixels: 61,706 weights for ten classes.

    Args:
        padding: of the first convolution; 0 gives the paper's network of 44,426 weights.
    """
    side = (12 + padding) // 2 - 2  # of the feature maps that are flattened
    layers = {
        "conv1": nn.Conv2d(1, 6, 5, padding=padding),
        "relu1": nn.ReLU(),
        "pool1": nn.MaxPool2d(2),
        "conv2": nn.Conv2d(6, 16, 5),
        "relu2": nn.ReLU(),
        "pool2": nn.MaxPool2d(2),
        "flatten": nn.Flatten(),
        "linear1": nn.Linear(16 * side**2, 120),
        "relu3": nn.ReLU(),
        "linear2": nn.Linear(120, 84),
        "relu4": nn.ReLU(),
        "linear3": nn.Linear(84, classes),
    }
    return nn.Sequential(OrderedDict(layers))


def wide_resnet(depth: int = 16, width: int = 4, classes: int = 10, norm: str = "batch") -> nn.Sequential:
    """WRN-depth-width of Zagoruyko and Komodakis (2016), for images of 32 x 32 pixels.

    Args:
        norm: "batch", "group" or "response"; see `Norm`.

    >>> sum(parameter.numel() for parameter in wide_resnet(16, 4).parameters())
    2748890
    """
    blocks, rest = divmod(depth - 4, 6)
    if rest or blocks < 1:
        raise ValueError(f"depth: expected 6 n + 4, such as 16 or 28, got {depth}.")
    chosen = Norm.named(norm)
    channels = [16, 16 * width, 32 * width, 64 * width]
    layers: list[nn.Module] = [nn.Conv2d(3, channels[0], 3, padding=1, bias=False)]
    for group, (before, after) in enumerate(pairwise(channels)):
        layers.append(WideBlock(before, after, chosen, stride=1 if group == 0 else 2))
        layers += [WideBlock(after, after, chosen) for _ in range(blocks - 1)]
    head = [chosen.active(channels[-1]), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *head, nn.Linear(channels[-1], classes))


def resnet20(classes: int = 10, norm: str = "batch") -> nn.Sequential:
    """ResNet-20 of He et al. (2016) for images of 32 x 32 pixels, without weights in its shortcuts.

    >>> sum(parameter.numel() for parameter in resnet20().parameters())
    269722
    """
    chosen = Norm.named(norm)
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False), chosen.active(16)]
    for before, after in ((16, 16), (16, 32), (32, 64)):
        layers.append(PlainBlock(before, after, chosen))
        layers += [PlainBlock(after, after, chosen) for _ in range(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


class WideBlock(nn.Module):
    """Two 3 x 3 convolutions, each after a norm and an activation; the input is added, projected if shapes differ."""

    def __init__(self, before: int, after: int, norm: Norm, stride: int = 1) -> None:
        super().__init__()
        self.first_norm, self.second_norm = norm.active(before), norm.active(after)
        self.first = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        same = before == after and stride == 1
        self.shortcut = None if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = self.first_norm(x)
        added: Tensor = x if self.shortcut is None else self.shortcut(active)
        out: Tensor = self.second(self.second_norm(self.first(active)))
        return out + added


class PlainBlock(nn.Module):
    """Two 3 x 3 convolutions, each followed by a norm; the input is added before the last activation.

    Where the number of channels grows, every second pixel of the input is added, with zeros in the new channels.
    """

    def __init__(self, before: int, after: int, norm: Norm) -> None:
        super().__init__()
        self.stride, self.more = 1 if before == after else 2, after - before
        self.first = nn.Conv2d(before, after, 3, self.stride, padding=1, bias=False)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.first_norm, self.second_norm = norm.active(after), norm.norm(after)
        self.activation = norm.activation(after)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
        out: Tensor = self.activation(self.second_norm(self.second(self.first_norm(self.first(x)))) + shortcut)
        return out


class ResponseNorm(nn.Module):
    """Filter response normalisation (Singh and Krishnan, 2020): channels divided by their root mean square.

    gain * x / sqrt(mean of x^2 over the image + 1e-6) + shift. Nothing is centred, so a learned `Threshold` follows in
    place of ReLU.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain, self.shift = (nn.Parameter(torch.empty(1, channels, 1, 1)) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.gain)
        nn.init.zeros_(self.shift)

    def forward(self, x: Tensor) -> Tensor:
        unit = x * torch.rsqrt(x.square().mean((2, 3), keepdim=True) + 1e-6)
        return self.gain * unit + self.shift


class Threshold(nn.Module):
    """max(x, threshold), with a threshold learned for each channel; it starts at 0, as ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.empty(1, channels, 1, 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.threshold)

    def forward(self, x: Tensor) -> Tensor:
        return torch.maximum(x, self.threshold)
