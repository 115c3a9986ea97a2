"""Problems to choose defaults on: pictures, curves and simulated tables that no reported table uses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import livi
from livi.experiments.datasets import pictures as datasets
from livi.model.likelihoods import Likelihood

Rows = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Problem:
    """`rows(rng)` gives inputs and targets in a random order, of which the first `count` are trained on."""

    rows: Callable[[torch.Generator], Rows]
    count: int
    network: Callable[[], nn.Module]
    likelihood: Callable[[], Likelihood]
    epochs: int = 40
    held_out: int = 1900
    rate: float = 0.0  # of the plain training; by the kind of inputs without


def _sequence(*layers: nn.Module) -> Callable[[], nn.Module]:
    """A factory of networks with fresh weights, from one that is only looked at."""

    def make() -> nn.Module:
        made = nn.Sequential(*layers)
        for layer in made.modules():
            reset = getattr(layer, "reset_parameters", None)
            if callable(reset):
                reset()
        return made

    return make


# --- networks -------------------------------------------------------------------------------------


def lenet(classes: int) -> Callable[[], nn.Module]:
    """44,426 weights for ten classes."""
    features = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    head = [nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)]
    return _sequence(*features, *head)


def norm_cnn(classes: int) -> Callable[[], nn.Module]:
    """Two convolutions with BatchNorm, and a linear layer: 20,586 weights for ten classes."""
    first = [nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU()]
    second = [nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten()]
    return _sequence(*first, *second, nn.Linear(32 * 49, classes))


def strided_cnn(classes: int) -> Callable[[], nn.Module]:
    """Two strided convolutions, and a linear layer: 2,698 weights for ten classes."""
    features = [nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2)]
    return _sequence(*features, nn.Flatten(), nn.Linear(144, classes))


def padded_cnn(classes: int) -> Callable[[], nn.Module]:
    """Two convolutions of 14 x 14 pictures, and a linear layer: 2,562 weights for 26 classes."""
    first = [nn.Conv2d(1, 8, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(8, 8, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2)]
    return _sequence(*first, *second, nn.Flatten(), nn.Linear(72, classes))


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU) -> Callable[[], nn.Module]:
    layers: list[nn.Module] = [nn.Flatten()]
    for i in range(len(widths) - 1):
        layers += [nn.Linear(widths[i], widths[i + 1]), activation()]
    return _sequence(*layers[:-1])


# --- rows -----------------------------------------------------------------------------------------


def pictures(name: str, side: int = 28, only: str = "") -> Callable[[torch.Generator], Rows]:
    """Published test pictures of KMNIST or EMNIST letters (training ones of MNIST) in [0, 1]; labels from 0.

    Args:
        side: to which they are made smaller by averaging.
        only: some of the letters.
    """

    def rows(rng: torch.Generator) -> Rows:
        images, labels = datasets.read(datasets.data_folder(), name, "train" if name == "mnist" else "test")
        assert labels is not None
        if name == "emnist-letters":
            images = images.mT  # as published
        if only:
            wanted = torch.tensor([ord(letter) - ord("A") for letter in only])
            some = torch.isin(labels, wanted)
            images, labels = images[some], torch.searchsorted(wanted, labels[some])
        order = torch.randperm(len(images), generator=rng)
        return F.adaptive_avg_pool2d(images / 255.0, side)[order], labels[order]

    return rows


def spirals(rng: torch.Generator) -> Rows:
    """Two interleaved spirals."""
    label = torch.arange(2200) % 2
    angle = 1.0 + 3.0 * torch.rand(2200, generator=rng)
    turned = angle + math.pi * label
    x = 0.4 * angle[:, None] * torch.stack([turned.cos(), turned.sin()], 1)
    return x + 0.12 * torch.randn(2200, 2, generator=rng), label


def rings(rng: torch.Generator) -> Rows:
    """Three rings around each other that overlap."""
    label = torch.arange(2300) % 3
    angle = 2.0 * math.pi * torch.rand(2300, generator=rng)
    radius = 0.6 + 0.7 * label + 0.15 * torch.randn(2300, generator=rng)
    return radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1), label


def waves(rng: torch.Generator) -> Rows:
    """One input; noise from 0.05 to 0.4."""
    x = 6.0 * torch.rand(2300, 1, generator=rng) - 3.0
    noise = 0.05 + 0.35 * torch.sigmoid(2.0 * x[:, 0])
    return x, torch.cos(2.0 * x[:, 0]) * x[:, 0] / 2.0 + noise * torch.randn(2300, generator=rng)


def friedman(which: int, dim: int) -> Callable[[torch.Generator], Rows]:
    """Friedman's first and second function, standardised, with noise that grows with the first input."""

    def rows(rng: torch.Generator) -> Rows:
        u = torch.rand(3000, dim, generator=rng)
        if which == 1:
            f = 10 * torch.sin(math.pi * u[:, 0] * u[:, 1]) + 20 * (u[:, 2] - 0.5) ** 2 + 10 * u[:, 3] + 5 * u[:, 4]
        else:
            a, b, c, d = 100 * u[:, 0], 40 * math.pi + 520 * math.pi * u[:, 1], u[:, 2], 1 + 10 * u[:, 3]
            f = (a**2 + (b * c - 1 / (b * d)) ** 2).sqrt()
        f = (f - f.mean()) / f.std()
        y = f + (0.05 + 0.25 * u[:, 0]) * torch.randn(3000, generator=rng)
        return (u - 0.5) * 12**0.5, y

    return rows


def teacher(dim: int, classes: int, *, bent: bool) -> Callable[[torch.Generator], Rows]:
    """Labels of the largest of linear functions of the inputs, or of their waves, plus noise of the same size."""

    def rows(rng: torch.Generator) -> Rows:
        x = torch.randn(3000, dim, generator=rng)
        logits = x @ torch.randn(dim, classes, generator=rng)
        if bent:
            logits = 2.0 * dim**0.5 * torch.sin(logits / dim**0.5)
        return x, (logits + torch.randn(3000, classes, generator=rng)).argmax(1)

    return rows


PROBLEMS: dict[str, Problem] = {
    # more than 5,000 weights
    "kmnist-lenet-6000": Problem(pictures("kmnist"), 6000, lenet(10), livi.Categorical),
    "kmnist-cnn-1300": Problem(pictures("kmnist"), 1300, norm_cnn(10), livi.Categorical),
    "letters-cnn-6000": Problem(pictures("emnist-letters"), 6000, norm_cnn(26), livi.Categorical),
    "letters-lenet-15000": Problem(pictures("emnist-letters"), 15000, lenet(26), livi.Categorical, epochs=20),
    "letters-easy-1300": Problem(pictures("emnist-letters", only="CIMOSTXZ"), 1300, norm_cnn(8), livi.Categorical),
    "kmnist-mlp-1300": Problem(pictures("kmnist"), 1300, mlp(784, 100, 10), livi.Categorical),
    "mnist-lenet-50000": Problem(pictures("mnist"), 50_000, lenet(10), livi.Categorical, epochs=15, held_out=10_000),
    # 300 to 5,000
    "kmnist-small": Problem(pictures("kmnist", 8), 1300, mlp(64, 50, 10), livi.Categorical, epochs=60),
    "letters-small": Problem(pictures("emnist-letters", 8), 1300, mlp(64, 40, 26), livi.Categorical, epochs=60),
    "letters-easy-small": Problem(
        pictures("emnist-letters", 8, only="CIMOSTXZ"), 1300, mlp(64, 50, 8), livi.Categorical, epochs=60
    ),
    "spirals": Problem(spirals, 200, mlp(2, 16, 16, 2), livi.Categorical, epochs=400),
    "rings": Problem(rings, 300, mlp(2, 16, 16, 3), livi.Categorical, epochs=300),
    "waves": Problem(waves, 250, mlp(1, 16, 16, 2, activation=nn.Tanh), livi.HeteroscedasticGaussian, epochs=400),
    "friedman-1": Problem(friedman(1, 10), 400, mlp(10, 16, 16, 2), livi.HeteroscedasticGaussian, epochs=200),
    "friedman-2": Problem(friedman(2, 4), 600, mlp(4, 16, 16, 2), livi.HeteroscedasticGaussian, epochs=200),
    # the same, of convolutions
    "kmnist-cnn-small": Problem(pictures("kmnist"), 1500, strided_cnn(10), livi.Categorical),
    "letters-cnn-small": Problem(pictures("emnist-letters", 14), 1300, padded_cnn(26), livi.Categorical),
    # of which a part is fitted
    "teacher": Problem(teacher(10, 3, bent=False), 400, mlp(10, 64, 64, 3), livi.Categorical, rate=1e-3),
    "teacher-narrow": Problem(teacher(10, 4, bent=True), 400, mlp(10, 32, 32, 4), livi.Categorical, rate=3e-3),
    "teacher-wide": Problem(teacher(20, 5, bent=True), 800, mlp(20, 128, 128, 5), livi.Categorical, rate=1e-3),
    "friedman-numbers": Problem(friedman(1, 10), 400, mlp(10, 64, 64, 1), livi.Gaussian, rate=1e-3),
    "friedman-long": Problem(
        friedman(1, 10), 400, mlp(10, 64, 64, 2), livi.HeteroscedasticGaussian, epochs=200, rate=1e-3
    ),
    "friedman-stopped": Problem(
        friedman(1, 10), 400, mlp(10, 64, 64, 2), livi.HeteroscedasticGaussian, epochs=25, rate=1e-3
    ),
}
