"""The networks whose steps are timed: the paper's, a vision transformer, a GPT, and dense ones of any size.

Data are random, and so many that the rules size the generator as for CIFAR.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from livi.experiments.networks import lenet, wide_resnet
from livi.experiments.sequences import Decoder, VisionTransformer

EXAMPLES = {"cuda": 50_176, "cpu": 2_000}  # whole batches, but for the CPU's
CLASSES, CHARACTERS = 10, 128
INPUTS = 256  # of the dense networks


@dataclass(frozen=True)
class Case:
    """A network, and what one example and a batch of them are.

    Args:
        characters: examples are texts of `shape`, with a label for each character.
        channels_last, autocast: as the plain step is quickest on a GPU, and livi's the same.
    """

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    characters: bool = False
    channels_last: bool = False
    autocast: torch.dtype | None = None

    def examples(self, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
        drawn = {"generator": torch.Generator(device).manual_seed(0), "device": device}
        if self.characters:
            text = torch.randint(CHARACTERS, (count, self.shape[0] + 1), **drawn)
            return text[:, :-1].contiguous(), text[:, 1:].contiguous()
        return torch.randn(count, *self.shape, **drawn), torch.randint(CLASSES, (count,), **drawn)


def dense(num_params: int) -> Case:
    """256-w-w-w-10 with about so many weights."""
    width = round((math.sqrt(INPUTS**2 + 8.0 * num_params) - INPUTS) / 4.0)
    sizes = (INPUTS, width, width, width)

    def build() -> nn.Module:
        layers = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(width, CLASSES))

    return Case(build, (INPUTS,), 128)


NETWORKS: dict[str, dict[str, Case]] = {
    "cuda": {
        "LeNet": Case(lenet, (1, 28, 28), 256),
        "WRN-16-4": Case(wide_resnet, (3, 32, 32), 128, channels_last=True),
        "WRN-28-10, bf16": Case(
            lambda: wide_resnet(28, 10), (3, 32, 32), 128, channels_last=True, autocast=torch.bfloat16
        ),
        "ViT": Case(lambda: VisionTransformer(depth=12), (3, 32, 32), 128),
        "GPT": Case(lambda: Decoder(CHARACTERS, 256), (256,), 32, characters=True),
    },
    "cpu": {
        "LeNet": Case(lenet, (1, 28, 28), 32),
        "ResNet, small": Case(lambda: wide_resnet(10, 1), (3, 16, 16), 16),
        "ViT, small": Case(lambda: VisionTransformer(16, 4, width=48, depth=2), (3, 16, 16), 16),
        "GPT, small": Case(lambda: Decoder(CHARACTERS, 32, width=64, depth=2), (32,), 8, characters=True),
    },
}
SCALES: dict[str, tuple[int, ...]] = {"cuda": (10**4, 10**5, 10**6, 10**7, 10**8), "cpu": (10**4, 10**5, 10**6)}


def scale_name(num_params: int) -> str:
    return f"dense, 1e{round(math.log10(num_params))}"


def cases(device: str) -> dict[str, Case]:
    """All of a device by name, dense ones last."""
    return NETWORKS[device] | {scale_name(size): dense(size) for size in SCALES[device]}
