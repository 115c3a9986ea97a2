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

VALIDATION = 0.1  # share of the training images, drawn with a fixed seed
QUICK_TRAIN, QUICK_SCORED = 512, 100  # images
NUM_SHIFTED = 2000  # images that are corrupted, for large networks


class Labelled(NamedTuple):
    inputs: Tensor  # (n, c, h, w), standardised
    labels: Tensor  # (n,)


@dataclass(frozen=True)
class ImageProblem:
    """Images, network and scored sets of one experiment of the paper.

    Args:
        network: makes the network, given the name of a norm (see livi.experiments.networks); `small` makes one that is
            quick enough to see that everything works.
        others: out-of-distribution (OOD) sets, on which a posterior should be uncertain.
        mean, std: of each channel of the training images between 0 and 1, by which inputs are standardised.
        epochs: of training by SGD the networks that fits start from; None if fits start from scratch.
        samples: number of networks in a prediction.
        shifted: number of images that are rotated or corrupted; None for all.
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

    def standardised(self, images: Tensor) -> Tensor:  # (n, c, h, w)
        """Network inputs from images between 0 and 1."""
        mean, std = (torch.tensor(values, device=images.device)[:, None, None] for values in (self.mean, self.std))
        return (images - mean) / std


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
            shifted=NUM_SHIFTED,
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
    """Images on a device, standardised; `plain` are those to be rotated or corrupted, with values between 0 and 1."""

    problem: ImageProblem
    train: Labelled
    scored: Labelled
    plain: Tensor  # (n, c, h, w), the images of `scored` between 0 and 1
    others: dict[str, Tensor]

    def shifted(self, name: str, level: float) -> Labelled:
        """The scored images, or the first of them, rotated or corrupted to this level."""
        count = self.problem.shifted
        images = self.problem.shifts[name](self.plain[:count], level)
        return Labelled(self.problem.standardised(images), self.scored.labels[:count])


def load(
    problem: ImageProblem, folder: Path, *, part: Part = "test", quick: bool = False, device: torch.device | str = "cpu"
) -> Sets:
    """The images of a problem. OOD sets that are not in the folder are left out.

    Args:
        part: "validation" holds out a tenth of the training images and scores those, without rotations and
            corruptions; OOD sets are then made of them (`livi.experiments.images.synthetic`). Choose settings by these.
        quick: load only a few hundred images of each set.

    Raises:
        FileNotFoundError: the images of the problem itself are not there.
    """
    few = QUICK_TRAIN if problem.epochs is None else QUICK_TRAIN // 2  # residual networks are slow
    num_train, num_scored = (few, QUICK_SCORED) if quick else (None, None)
    train = pictures.read(folder, problem.name, "train")
    if part == "validation":
        order = torch.randperm(len(train.images), generator=torch.Generator().manual_seed(0))
        held = round(VALIDATION * len(order))
        train, scored = _rows(train, order[:-held]), _rows(train, order[-held:])
    else:
        scored = pictures.read(folder, problem.name, "test")
    plain = _from_bytes(scored.images[:num_scored], device)
    if part == "validation":
        ood = {name: make(plain) for name, make in SYNTHETIC.items()}
    else:
        ood = _out_of_distribution(problem, folder, num_scored, device)
    return Sets(
        replace(problem, shifts={}) if part == "validation" else problem,
        Labelled(
            problem.standardised(_from_bytes(train.images[:num_train], device)), _labels(train, num_train, device)
        ),
        Labelled(problem.standardised(plain), _labels(scored, num_scored, device)),
        plain,
        {name: problem.standardised(images) for name, images in ood.items()},
    )


def _out_of_distribution(
    problem: ImageProblem, folder: Path, count: int | None, device: torch.device | str
) -> dict[str, Tensor]:
    available = [name for name in problem.others if pictures.available(folder, name)]
    return {name: _from_bytes(pictures.read(folder, name).images[:count], device) for name in available}


def build(problem: ImageProblem, seed: int, *, quick: bool = False, norm: str = "batch") -> nn.Module:
    """The network of a problem, with weights that depend only on the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return (problem.small if quick else problem.network)(norm)


def _rows(every: pictures.Pictures, rows: Tensor) -> pictures.Pictures:
    return pictures.Pictures(every.images[rows], None if every.labels is None else every.labels[rows])


def _from_bytes(images: Tensor, device: torch.device | str) -> Tensor:
    return images.to(device).float() / 255.0


def _labels(labelled: pictures.Pictures, count: int | None, device: torch.device | str) -> Tensor:
    assert labelled.labels is not None
    return labelled.labels[:count].to(device)
