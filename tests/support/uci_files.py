"""Small data sets in the published file format of the UCI sets."""

from pathlib import Path

import numpy as np


def write_uci(folder: Path, name: str = "yacht", rows: int = 40, features: int = 3) -> Path:
    """Write a small data set with two splits in the published format, and return its folder."""
    home = folder / name / "data"
    home.mkdir(parents=True)
    numbers = np.random.default_rng(0).normal(size=(rows, features + 1))
    np.savetxt(home / "data.txt", numbers)
    np.savetxt(home / "index_features.txt", [0, 1, *range(3, features + 1)], fmt="%d")
    np.savetxt(home / "index_target.txt", [2], fmt="%d")
    for split in range(2):
        order = np.random.default_rng(split).permutation(rows)
        np.savetxt(home / f"index_train_{split}.txt", order[5:], fmt="%d")
        np.savetxt(home / f"index_test_{split}.txt", order[:5])  # as floating-point numbers, which also occur
    return home
