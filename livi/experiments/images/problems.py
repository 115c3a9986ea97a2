"""The problems of the image benchmarks: which images and network, which OOD sets, which rotations or corruptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from livi.experiments.datasets import pictures
from livi.experiments.images.shifts import CORRUPTIONS, ROTATION, Shift
from livi.experiments.images.synthetic import SYNTHETIC
from livi.experiments.networks import lenet, wide_resnet

Part = Literal["validation", "test"]

VALIDATION = 0.1  # of the training images, the last ones in an order that a fixed seed decides
QUICK_TRAIN, QUICK_SCORED = 512, 100  # images
FEWER = 2000  # images that are rotated or corrupted, of large networks


class Labelled(NamedTuple):
    inputs: Tensor  # (n, c, h, w), standardised
    labels: Tensor  # (n,)


@dataclass(frozen=True)
class ImageProblem:
    """One scale of the paper.

    Args:
        network: its network, by the name of a norm (see livi.experiments.networks); `small` another that answers in a
            minute, to see that everything works.
        others: the sets that a posterior should know that it does not know.
        mean, std: of each channel of the training images between 0 and 1, by which inputs are standardised.
        epochs: of training a network by SGD, where fits start from such networks; None where they start from scratch.
        samples: networks that answer.
        shifted: images that are rotated or corrupted; None for all.
    """

    name: str
    network: Callable[[str], nn.Module]
    small: Callable[[str], nn.Module]
    classes: int
    others: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    epochs: int | None = None
    samples: int = 100
    shifts: dict[str, Shift] = field(default_factory=dict)
    shifted: int | None = None

    def standardised(self, between: Tensor) -> Tensor:  # (n, c, h, w)
        """Network inputs from images between 0 and 1."""
        mean, std = (torch.tensor(values, device=between.device)[:, None, None] for values in (self.mean, self.std))
        return (between - mean) / std


_MNIST = ImageProblem(
    "mnist",
    lambda _: lenet(padding=0),
    lambda _: lenet(padding=0),
    10,
    ("fashion-mnist", "kmnist", "emnist-letters"),
    mean=(0.0,),
    std=(1.0,),
    shifts=ROTATION,
)
PROBLEMS: dict[str, ImageProblem] = {
    problem.name: problem
    for problem in (
        _MNIST,
        replace(_MNIST, name="fashion-mnist", others=("mnist", "kmnist", "emnist-letters")),
        ImageProblem(
            "cifar10",
            lambda norm: wide_resnet(16, 4, norm=norm),
            lambda norm: wide_resnet(10, 1, norm=norm),
            10,
            ("svhn", "cifar100", "tiny-imagenet"),
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
            epochs=60,
            samples=50,
            shifts=CORRUPTIONS,
            shifted=FEWER,
        ),
        ImageProblem(
            "cifar100",
            lambda norm: wide_resnet(28, 10, classes=100, norm=norm),
            lambda norm: wide_resnet(10, 1, classes=100, norm=norm),
            100,
            ("svhn", "cifar10", "tiny-imagenet"),
            mean=(0.5071, 0.4865, 0.4409),
            std=(0.2673, 0.2564, 0.2762),
            epochs=60,
            samples=20,
        ),
    )
}


@dataclass(frozen=True)
class Sets:
    """Images on a device, ready for a network; those to be rotated or corrupted as they are, between 0 and 1."""

    problem: ImageProblem
    train: Labelled
    scored: Labelled
    plain: Tensor  # (n, c, h, w), the images of `scored` between 0 and 1
    others: dict[str, Tensor]

    def shifted(self, name: str, level: float) -> Labelled:
        """The first of the scored images, rotated or corrupted so far."""
        most = self.problem.shifted
        moved = self.problem.shifts[name](self.plain[:most], level)
        return Labelled(self.problem.standardised(moved), self.scored.labels[:most])


def load(
    problem: ImageProblem, folder: Path, *, part: Part = "test", quick: bool = False, device: torch.device | str = "cpu"
) -> Sets:
    """The images of a problem. OOD sets that are not in the folder are left out.

    Args:
        part: "validation" trains without a tenth of the training images and scores on those, and on synthetic OOD sets
            made of them (`livi.experiments.images.synthetic`) in place of those that are reported, and without
            rotations and corruptions; choose by that.
        quick: a few hundred of each.

    Raises:
        FileNotFoundError: the set itself is not there.
    """
    few = QUICK_TRAIN if problem.epochs is None else QUICK_TRAIN // 2  # which is more work for residual networks
    first, last = (few, QUICK_SCORED) if quick else (None, None)
    train = pictures.read(folder, problem.name, "train")
    if part == "validation":
        order = torch.randperm(len(train.images), generator=torch.Generator().manual_seed(0))
        held = round(VALIDATION * len(order))
        kept, chosen = _some(train, order[:-held]), _some(train, order[-held:])
    else:
        kept, chosen = train, pictures.read(folder, problem.name, "test")
    plain = _between(chosen.images[:last], device)
    ood = _synthetic(plain) if part == "validation" else _out_of_distribution(problem, folder, last, device)
    return Sets(
        replace(problem, shifts={}) if part == "validation" else problem,
        Labelled(problem.standardised(_between(kept.images[:first], device)), _labels(kept, first, device)),
        Labelled(problem.standardised(plain), _labels(chosen, last, device)),
        plain,
        {name: problem.standardised(between) for name, between in ood.items()},
    )


def _synthetic(plain: Tensor) -> dict[str, Tensor]:
    return {name: make(plain) for name, make in SYNTHETIC.items()}


def _out_of_distribution(
    problem: ImageProblem, folder: Path, last: int | None, device: torch.device | str
) -> dict[str, Tensor]:
    here = [name for name in problem.others if pictures.available(folder, name)]
    return {name: _between(pictures.read(folder, name).images[:last], device) for name in here}


def build(problem: ImageProblem, seed: int, *, quick: bool = False, norm: str = "batch") -> nn.Module:
    """The network of a problem, with weights that follow from the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return (problem.small if quick else problem.network)(norm)


def _some(chosen: pictures.Pictures, rows: Tensor) -> pictures.Pictures:
    return pictures.Pictures(chosen.images[rows], None if chosen.labels is None else chosen.labels[rows])


def _between(images: Tensor, device: torch.device | str) -> Tensor:
    return images.to(device).float() / 255.0


def _labels(chosen: pictures.Pictures, count: int | None, device: torch.device | str) -> Tensor:
    assert chosen.labels is not None
    return chosen.labels[:count].to(device)
