"""The problems of the plain benchmark: rows in three parts, a network, a likelihood, and how it is trained."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from livi.experiments.datasets import uci
from livi.experiments.plain_training import Training
from livi.model.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian, Likelihood

Task = Literal["classification", "regression"]
Part = Literal["validation", "test"]

MOONS_NOISE = 0.15
OUTPUT_NOISE = (0.1, 0.3, 1.0)


class Rows(NamedTuple):
    """Inputs and targets in the units in which the network is trained on them."""

    inputs: Tensor  # (n, ...)
    targets: Tensor  # (n,) or (n, k)


@dataclass(frozen=True)
class Parts:
    """Rows to train on, to choose settings by, and to report; no row is in two of them.

    Args:
        shift, scale: shift + scale * targets are in their own units.
    """

    train: Rows
    validation: Rows
    test: Rows
    shift: float = 0.0
    scale: float = 1.0

    def held_out(self, part: Part) -> Rows:
        return self.validation if part == "validation" else self.test


@dataclass(frozen=True)
class Problem:
    """Data, network and likelihood of a problem.

    Args:
        draw: the parts for a seed, and for the folder of UCI sets, which may be None if they are not needed.
        network: makes a network with fresh weights from torch's global generator; see `build_network`.
        training: how the plain network is trained.
        needs: what `draw` reads: nothing, scikit-learn, or a UCI set of the problem's name.
    """

    task: Task
    draw: Callable[[int, Path | None], Parts]
    network: Callable[[], nn.Module]
    likelihood: Callable[[], Likelihood]
    training: Training
    needs: Literal["sklearn", "uci"] | None = None


def build_network(problem: Problem, seed: int) -> nn.Module:
    """The problem's network, with weights that follow from the seed; the global random state stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return problem.network().to(torch.float32)


def available(folder: Path | None) -> tuple[str, ...]:
    """The problems whose data are there."""
    return tuple(name for name in PROBLEMS if missing(name, folder) is None)


def missing(name: str, folder: Path | None) -> str | None:
    """How to get the data of a problem if they are not there; None if they are."""
    needs = PROBLEMS[name].needs
    if needs == "sklearn" and find_spec("sklearn") is None:
        return 'install scikit-learn: pip install "livi[tables]"'
    if needs == "uci" and (folder is None or name not in uci.available(folder)):
        return f"copy {uci.SOURCE} to a folder called uci, and set LIVI_DATA_DIR to the folder around it"
    return None


# --- data -----------------------------------------------------------------------------------------


def draw_digits(seed: int, _: Path | None) -> Parts:
    """scikit-learn's 1,797 digits of 8 x 8 pixels from 0 to 1; a fifth for validation, a fifth for the test."""
    from sklearn.datasets import load_digits

    inputs, labels = load_digits(return_X_y=True)
    pixels, targets = torch.tensor(inputs / 16.0, dtype=torch.float32), torch.tensor(labels, dtype=torch.int64)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(seed))
    held = len(pixels) // 5
    test, validation, train = (
        Rows(pixels[rows], targets[rows]) for rows in order.split([held, held, len(pixels) - 2 * held])
    )
    return Parts(train, validation, test)


def draw_digit_images(seed: int, folder: Path | None) -> Parts:
    """The same digits as images of one channel, (n, 1, 8, 8)."""
    flat = draw_digits(seed, folder)
    train, validation, test = (
        Rows(rows.inputs.unflatten(1, (1, 8, 8)), rows.targets) for rows in (flat.train, flat.validation, flat.test)
    )
    return Parts(train, validation, test)


def draw_moons(seed: int, _: Path | None) -> Parts:
    """Two interleaved half circles with noise: 200 points to train on, 1,000 each for validation and test."""
    rng = torch.Generator().manual_seed(seed)

    def points(count: int) -> Rows:
        angle, label = torch.rand(count, generator=rng) * math.pi, torch.arange(count) % 2
        upper, lower = torch.stack([angle.cos(), angle.sin()], 1), torch.stack([1 - angle.cos(), 0.5 - angle.sin()], 1)
        noiseless = torch.where(label[:, None] == 0, upper, lower)
        return Rows(noiseless + MOONS_NOISE * torch.randn(count, 2, generator=rng), label)

    return _standardised(Parts(points(200), points(1000), points(1000)))


def draw_heteroscedastic(seed: int, _: Path | None) -> Parts:
    """A sine with a gap in the middle and noise that grows with x from 0.05 to 0.35; 225 points, 1,000, 1,000."""
    rng = torch.Generator().manual_seed(seed)

    def points(count: int) -> Rows:
        side = torch.where(torch.rand(count, generator=rng) < 0.5, -1.0, 1.0)
        x = side * (1.0 + 3.0 * torch.rand(count, generator=rng))
        noise = 0.05 + 0.3 * (x + 4.0) / 8.0
        return Rows(x[:, None], x.sin() + noise * torch.randn(count, generator=rng))

    return _standardised(Parts(points(225), points(1000), points(1000)))


def draw_three_outputs(seed: int, _: Path | None) -> Parts:
    """Three functions of four inputs, with noise 0.1, 0.3 and 1; 300 points, 1,000, 1,000."""
    rng = torch.Generator().manual_seed(seed)

    def points(count: int) -> Rows:
        x = torch.randn(count, 4, generator=rng)
        first, second, third = (2.0 * x[:, 0]).sin(), x[:, 1] * x[:, 2].tanh(), x[:, 3] + 0.5 * x[:, 0].square()
        noise = torch.tensor(OUTPUT_NOISE) * torch.randn(count, 3, generator=rng)
        return Rows(x, torch.stack([first, second, third], 1) + noise)

    return _standardised(Parts(points(300), points(1000), points(1000)))


def draw_uci(name: str, seed: int, folder: Path | None) -> Parts:
    """The published split number `seed`, modulo their count, with a tenth of its training rows for validation.

    Inputs and targets are standardised by the rows to train on.

    Raises:
        FileNotFoundError: the set is not in the folder.
        ValueError: its files are damaged.
    """
    if folder is None:
        raise FileNotFoundError(f"{name}: expected a folder of UCI sets, got none; {missing(name, None)}.")
    table = uci.read(folder, name)
    fitted_rows, test_rows = uci.read_split(folder, name, seed % uci.num_splits(folder, name), len(table.inputs))
    shuffled = fitted_rows[torch.randperm(len(fitted_rows), generator=torch.Generator().manual_seed(seed)).numpy()]
    validation_rows, train_rows = np.split(shuffled, [len(fitted_rows) // 10])
    shift, scale = float(table.targets[train_rows].mean()), float(table.targets[train_rows].std())
    inputs, targets = torch.tensor(table.inputs), torch.tensor((table.targets - shift) / scale, dtype=torch.float32)
    train, validation, test = (Rows(inputs[rows], targets[rows]) for rows in (train_rows, validation_rows, test_rows))
    return _standardised(Parts(train, validation, test, shift, scale))


def _standardised(parts: Parts) -> Parts:
    """Inputs with mean 0 and standard deviation 1 over the rows to train on; a constant column becomes 0."""
    mean, std = parts.train.inputs.mean(0), parts.train.inputs.std(0)
    std = torch.where(std > 0.0, std, 1.0)
    train, validation, test = (
        Rows(((rows.inputs - mean) / std).to(torch.float32), _single_precision(rows.targets))
        for rows in (parts.train, parts.validation, parts.test)
    )
    return Parts(train, validation, test, parts.shift, parts.scale)


def _single_precision(targets: Tensor) -> Tensor:
    return targets.to(torch.float32) if targets.is_floating_point() else targets


# --- networks -------------------------------------------------------------------------------------


def dense(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers of these widths, inputs and outputs included, with an activation in between.

    >>> dense(2, 16, 1)
    Sequential(
      (0): Linear(in_features=2, out_features=16, bias=True)
      (1): ReLU()
      (2): Linear(in_features=16, out_features=1, bias=True)
    )
    """
    layers: list[nn.Module] = []
    for width, next_width in itertools.pairwise(widths):
        layers += [nn.Linear(width, next_width), activation()]
    return nn.Sequential(*layers[:-1])


def convolutional() -> nn.Sequential:
    """Two convolutions with BatchNorm for images of 8 x 8 pixels, and a linear layer."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)),
    )


def _uci_problem(name: str, features: int, training: Training) -> Problem:
    return Problem(
        "regression",
        lambda seed, folder: draw_uci(name, seed, folder),
        lambda: dense(features, 16, 16, 2),
        HeteroscedasticGaussian,
        training,
        needs="uci",
    )


# Trainings were chosen on validation rows of seeds 0 to 7, or the first of them; never on test rows. For energy the
# order of the rows alone changes the score by 0.3 nats, so its epochs are those with the fewest large errors.
PROBLEMS: dict[str, Problem] = {
    "digits-mlp": Problem(
        "classification",
        draw_digits,
        lambda: dense(64, 50, 10),
        Categorical,
        Training(rate=3e-3, epochs=150),
        needs="sklearn",
    ),
    "digits-cnn": Problem(
        "classification",
        draw_digit_images,
        convolutional,
        Categorical,
        Training(rate=3e-3, epochs=40),
        needs="sklearn",
    ),
    "moons": Problem(
        "classification",
        draw_moons,
        lambda: dense(2, 16, 16, 2),
        Categorical,
        Training(rate=1e-2, epochs=300),
    ),
    "heteroscedastic": Problem(
        "regression",
        draw_heteroscedastic,
        lambda: dense(1, 16, 16, 2, activation=nn.Tanh),
        HeteroscedasticGaussian,
        Training(rate=1e-2, epochs=500),
    ),
    "three-outputs": Problem(
        "regression",
        draw_three_outputs,
        lambda: dense(4, 32, 3, activation=nn.Tanh),
        Gaussian,
        Training(rate=1e-2, epochs=200, weight_decay=1e-2),
    ),
    "boston": _uci_problem("boston", 13, Training(rate=1e-2, epochs=100, weight_decay=1e-1)),
    "energy": _uci_problem("energy", 8, Training(rate=1e-2, epochs=600, weight_decay=1e-3)),
}
