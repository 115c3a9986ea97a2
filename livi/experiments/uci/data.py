"""Rows of a published split, to fit to, to validate and to test, in standard units."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from livi.experiments.datasets import uci

VALIDATION = 0.2  # share of the training rows that validate
MAX_VALIDATION = 2000  # rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Fold:
    """Rows to fit to and rows to score, standardised by the mean and standard deviation of the former.

    Args:
        centre, unit: the mean and standard deviation of the targets.
    """

    inputs: Tensor  # (n, p)
    targets: Tensor  # (n,)
    scored_inputs: Tensor  # (k, p)
    scored_targets: Array  # (k,), in their own units
    centre: float
    unit: float

    @property
    def data(self) -> tuple[Tensor, Tensor]:
        return self.inputs, self.targets


@dataclass(frozen=True)
class Split:
    """A published split: `whole` fits to its training rows and scores its test rows.

    `search` is for choices: it scores a fifth of the training rows, and fits to others of them.
    """

    whole: Fold
    search: Fold

    @property
    def searched_all(self) -> bool:
        """Whether `search` fits to all training rows that are not validation rows."""
        return len(self.search.targets) + len(self.search.scored_targets) == len(self.whole.targets)

    @classmethod
    def read(cls, folder: Path, name: str, number: int, *, search_rows: int) -> Split:
        """Read a split from files; its number is the seed by which validation rows are drawn.

        Args:
            search_rows: largest number of rows to which `search` fits.

        Raises:
            FileNotFoundError: there is no such set or split.
            ValueError: a file is damaged.
        """
        table = uci.read(folder, name)
        train, test = uci.read_split(folder, name, number, len(table.inputs))
        return cls.of(table, train, test, number, search_rows=search_rows)

    @classmethod
    def of(cls, table: uci.Table, train: uci.Rows, test: uci.Rows, seed: int, *, search_rows: int) -> Split:
        """A split of a table into these rows; the seed draws the validation rows."""
        order = np.random.default_rng(seed).permutation(train)
        held = min(MAX_VALIDATION, max(1, round(VALIDATION * len(train))))
        return cls(_fold(table, train, test), _fold(table, order[held:][:search_rows], order[:held]))


def _fold(table: uci.Table, rows: uci.Rows, scored: uci.Rows) -> Fold:
    inputs, targets = table.inputs[rows], table.targets[rows]
    mean, std = inputs.mean(0), inputs.std(0)
    std = np.where(std > 0.0, std, 1.0)
    centre, unit = float(targets.mean()), float(targets.std())
    return Fold(
        _single((inputs - mean) / std),
        _single((targets - centre) / unit),
        _single((table.inputs[scored] - mean) / std),
        table.targets[scored],
        centre,
        unit,
    )


def _single(values: Array) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))
