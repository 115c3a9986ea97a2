"""Tables with fixed splits: from scikit-learn and other packages, and the UCI sets if there is a folder of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from livi.experiments.datasets import uci
from livi.experiments.public_data import DISTRIBUTIONS, PublicTable, read_table

Array = NDArray[np.float64]
Task = Literal["regression", "classification"]

BUNDLED: dict[str, Task] = {
    "diabetes": "regression",
    "breast_cancer": "classification",
    "wine": "classification",
    "digits": "classification",
}
# Larger ones, on demand: whether wives have health insurance through their job, and the cut of diamonds.
PACKAGED = {
    "insurance": PublicTable("pydataset", "HI", "whi", "classification", drop=("wght",)),
    "cuts": PublicTable("pydataset", "diamonds", "cut", "classification"),
}
NAMES = (*BUNDLED, *PACKAGED, *uci.NAMES)
TEST_SHARE = 0.1


@dataclass(frozen=True)
class Split:
    """One split of one data set. Labels are 0, 1, ...; targets of regression are in their own units."""

    name: str
    task: Task
    inputs: Array  # (n, p), to train on
    targets: NDArray[Any]  # (n,)
    test_inputs: Array  # (k, p)
    test_targets: NDArray[Any]  # (k,)
    all_rows: int  # training rows before `max_rows` of them were drawn

    @property
    def num_classes(self) -> int:
        return int(self.targets.max()) + 1


@dataclass(frozen=True)
class Run:
    """The arguments of a method besides the data: a seed, and whether to take only a few steps."""

    seed: int
    quick: bool = False


def task_of(name: str) -> Task:
    """The task of a data set; the UCI sets are all regressions."""
    return PACKAGED[name].task if name in PACKAGED else BUNDLED.get(name, "regression")


def splits_of(name: str, folder: Path | None) -> int | None:
    """The number of splits of a data set; None if any number gives a random split."""
    return None if name in BUNDLED or name in PACKAGED else uci.num_splits(_uci_folder(name, folder), name)


def read_split(name: str, split: int, folder: Path | None, max_rows: int) -> Split:
    """The rows of a split.

    Sets of packages are shuffled with the split's number as seed, and a tenth is held out; UCI sets have their
    published splits. If there are more than `max_rows` training rows, that many are drawn with the same seed; all test
    rows are kept.

    Raises:
        FileNotFoundError: a UCI set is not in the folder, or a package is not installed.
        ValueError: its files are damaged, or the rows drawn lack a class.
    """
    if name in BUNDLED or name in PACKAGED:
        inputs, targets = _bundled(name) if name in BUNDLED else _packaged(name)
        order = np.random.default_rng(split).permutation(len(inputs))
        held = round(TEST_SHARE * len(inputs))
        test, train = np.sort(order[:held]), np.sort(order[held:])
    else:
        home = _uci_folder(name, folder)
        inputs, targets = uci.read(home, name)
        train, test = uci.read_split(home, name, split, len(inputs))
    kept = train
    if len(train) > max_rows:
        kept = np.sort(np.random.default_rng(split).choice(train, max_rows, replace=False))
    task = task_of(name)
    if task == "classification" and len(np.unique(targets[kept])) < len(np.unique(targets)):
        raise ValueError(f"max_rows: expected enough rows for every class of {name}, got {max_rows}; allow more.")
    return Split(name, task, inputs[kept], targets[kept], inputs[test], targets[test], len(train))


def _bundled(name: str) -> tuple[Array, NDArray[Any]]:
    from sklearn import datasets

    inputs, targets = getattr(datasets, f"load_{name}")(return_X_y=True)
    return inputs, targets


@cache
def _packaged(name: str) -> tuple[Array, NDArray[Any]]:
    """Inputs and labels: text columns become indicator columns, classes are numbered in the order of their names."""
    table = PACKAGED[name]
    if find_spec(table.package) is None:
        raise FileNotFoundError(
            f"data: expected the package {table.package} for {name!r}, got none; "
            f"`pip install {DISTRIBUTIONS[table.package]}`."
        )
    import pandas

    frame = read_table(table).dropna()
    inputs = pandas.get_dummies(frame.drop(columns=table.target), dtype=float).to_numpy(float)
    return inputs, np.unique(frame[table.target].to_numpy(str), return_inverse=True)[1]


def _uci_folder(name: str, folder: Path | None) -> Path:
    if folder is None:
        raise FileNotFoundError(
            f"data: expected a folder with the UCI set {name!r}, got none; copy {uci.SOURCE} to a folder called uci, "
            "and set LIVI_DATA_DIR to the folder around it."
        )
    return folder
