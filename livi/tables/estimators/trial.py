"""A trial, by which an estimator chooses between models: what was tried with what score, and the rows it is made on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from livi.tables.estimators.row_weights import repeated
from livi.tables.estimators.scaling import Array

Tried = TypeVar("Tried")


@dataclass(frozen=True)
class Trial(Generic[Tried]):
    """What was tried, and the mean log score of the rows that were not fitted to; None if that is not finite."""

    tried: Tried
    log_score: float | None

    @property
    def model(self) -> Tried:
        """The scale and noise of the target that a regressor tried."""
        return self.tried

    @property
    def pieces(self) -> Tried:
        """The number of pieces of a column that a classifier tried."""
        return self.tried


class TrialRows(NamedTuple):
    """Indices of the rows that trials are fitted to, and of the rows that they are scored on."""

    fitted: NDArray[np.intp]
    scored: NDArray[np.intp]

    @classmethod
    def drawn(cls, num_rows: int, seed: int, *, limit: int, scored_share: float) -> Self:
        """At most `limit` of a table's rows, drawn at random, of which this share is scored.

        >>> [len(rows) for rows in TrialRows.drawn(1000, seed=0, limit=100, scored_share=0.3)]
        [70, 30]
        """
        rows = np.random.default_rng(seed).permutation(num_rows)[:limit]
        scored = max(1, round(scored_share * len(rows)))
        return cls(np.sort(rows[scored:]), np.sort(rows[:scored]))

    def repeated(self, weights: Array) -> Self:  # (n,)
        """The rows, each repeated in proportion to its weight."""
        return type(self)(*(repeated(rows, weights[rows]) for rows in self))
