"""Architectures and the real data that each is fitted to: pictures of LIVI_DATA_DIR, and Python's own library as text.

The text is what every machine has: the sources of the standard library, as characters, whole modules held out.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from livi.experiments.datasets import pictures
from livi.experiments.images.problems import PROBLEMS
from livi.experiments.networks import resnet20, wide_resnet
from livi.experiments.sequences import Decoder, Reader, VisionTransformer

TRAINED_ON, SCORED_ON = 5_000, 2_000  # pictures
TEXTS_TRAINED_ON, TEXTS_SCORED_ON, LENGTH = 2_560, 500, 64
QUICK = 128  # examples that a small network is tried on
CHARACTERS = 128
HELD_OUT_MODULES = 5  # every such module of the library


class Examples(NamedTuple):
    """What is trained on and what is scored, each inputs and targets."""

    train: tuple[Tensor, Tensor]
    scored: tuple[Tensor, Tensor]

    def to(self, device: torch.device | str) -> Examples:
        return Examples(*((x.to(device), y.to(device)) for x, y in self))


@dataclass(frozen=True)
class Case:
    """An architecture, a small one of its kind that a CPU trains in seconds, and its examples.

    Args:
        examples: of a seed, that chooses which of the training examples are seen; few of them, and pictures that are
            four times smaller, for the small one; to choose by, others of the training examples are scored.
        data: the set that must be there; None for one that always is.
    """

    title: str
    network: Callable[[], nn.Module]
    small: Callable[[], nn.Module]
    examples: Callable[[int, bool, bool], Examples]
    data: str | None

    def available(self) -> bool:
        folder = pictures.data_folder()
        return self.data is None or all(pictures.available(folder, self.data, part) for part in pictures.PARTS)

    def build(self, seed: int, *, quick: bool = False) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return (self.small if quick else self.network)()


def picture_examples(name: str) -> Callable[[int, bool, bool], Examples]:
    def examples(seed: int, quick: bool, choosing: bool = False) -> Examples:
        folder = pictures.data_folder()
        train, test = (pictures.read(folder, name, part) for part in pictures.PARTS)
        order = torch.randperm(len(train.images), generator=torch.Generator().manual_seed(seed))
        seen, scored = (QUICK, QUICK) if quick else (TRAINED_ON, SCORED_ON)
        others = _some(train, order[seen : seen + scored]) if choosing else _some(test, slice(scored))
        return Examples(*(_labelled(name, *part, quick) for part in (_some(train, order[:seen]), others)))

    return examples


def text_examples(seed: int, quick: bool, choosing: bool = False) -> Examples:
    """Characters, and for each the next one."""
    modules = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    if choosing:  # as if the modules that are held out otherwise were not there
        del modules[::HELD_OUT_MODULES]
    held_out = modules[::HELD_OUT_MODULES]
    seen = [path for path in modules if path not in held_out]
    count, scored = (QUICK // 4, QUICK // 4) if quick else (TEXTS_TRAINED_ON, TEXTS_SCORED_ON)
    return Examples(_texts(seen, count, seed), _texts(held_out, scored, 0))


def _some(found: pictures.Pictures, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
    assert found.labels is not None
    return found.images[rows], found.labels[rows].long()


def _labelled(name: str, images: Tensor, labels: Tensor, smaller: bool) -> tuple[Tensor, Tensor]:
    shown = PROBLEMS[name].standardised(images.float() / 255.0)
    return (F.avg_pool2d(shown, 4) if smaller else shown), labels


def _texts(modules: list[Path], count: int, seed: int) -> tuple[Tensor, Tensor]:  # (count, LENGTH), twice
    """Pieces of these files, none of which overlap."""
    written = "".join(path.read_text(encoding="utf-8", errors="replace") for path in modules)
    characters = torch.frombuffer(bytearray(written.encode("ascii", "replace")), dtype=torch.uint8).long()
    pieces = characters[: len(characters) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
    chosen = pieces[torch.randperm(len(pieces), generator=torch.Generator().manual_seed(seed))[:count]]
    return chosen[:, :-1].contiguous(), chosen[:, 1:].contiguous()


CASES: dict[str, Case] = {
    "wrn": Case("WRN-16-4", wide_resnet, lambda: wide_resnet(10, 1), picture_examples("cifar10"), "cifar10"),
    "resnet": Case("ResNet-20", resnet20, resnet20, picture_examples("cifar10"), "cifar10"),
    "vit": Case(
        "vision transformer",
        lambda: VisionTransformer(width=128, depth=4, heads=4),
        lambda: VisionTransformer(8, 2, width=24, depth=1, heads=2),
        picture_examples("cifar10"),
        "cifar10",
    ),
    "decoder": Case(
        "GPT decoder",
        lambda: Decoder(CHARACTERS, LENGTH, width=128, depth=4, heads=4),
        lambda: Decoder(CHARACTERS, LENGTH, width=24, depth=1, heads=2),
        text_examples,
        None,
    ),
    "lstm": Case("LSTM", Reader, lambda: Reader(7, 40), picture_examples("mnist"), "mnist"),
}
