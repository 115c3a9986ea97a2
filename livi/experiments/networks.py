"""The networks of the paper's image experiments."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F


def lenet(classes: int = 10) -> nn.Sequential:
    """LeNet-5 with ReLU and max-pooling for pictures of 28 x 28 pixels: 61,706 weights for ten classes."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def wide_resnet(depth: int = 16, width: int = 4, classes: int = 10) -> nn.Sequential:
    """WRN-depth-width of Zagoruyko and Komodakis (2016) with BatchNorm, for pictures of 32 x 32 pixels.

    >>> sum(parameter.numel() for parameter in wide_resnet(16, 4).parameters())
    2748890
    """
    blocks, rest = divmod(depth - 4, 6)
    if rest or blocks < 1:
        raise ValueError(f"depth: expected 6 n + 4, such as 16 or 28, got {depth}.")
    channels = [16, 16 * width, 32 * width, 64 * width]
    layers: list[nn.Module] = [nn.Conv2d(3, channels[0], 3, padding=1, bias=False)]
    for group, (before, after) in enumerate(pairwise(channels)):
        layers.append(WideBlock(before, after, stride=1 if group == 0 else 2))
        layers += [WideBlock(after, after) for _ in range(blocks - 1)]
    head = [nn.BatchNorm2d(channels[-1]), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *head, nn.Linear(channels[-1], classes))


class WideBlock(nn.Module):
    """Two 3 x 3 convolutions, each behind BatchNorm and ReLU, and the input added: itself, or through a convolution."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.BatchNorm2d(before), nn.BatchNorm2d(after)
        self.first = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        same = before == after and stride == 1
        self.shortcut = None if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.first_norm(x))
        added: Tensor = x if self.shortcut is None else self.shortcut(active)
        out: Tensor = self.second(F.relu(self.second_norm(self.first(active))))
        return out + added
