"""What a model remembers of the rows it was fitted to: enough to tell whether many rows of a table are among them.

Each row, its features and its target, sets one bit of a filter that is about half full. A row of the fit finds its bit
set, and so do about half of all others: of one row the filter says next to nothing, and no row can be read from it, so
that it may be in a file that holds no rows. Of twenty rows together it tells well how many were fitted to, whatever the
file's name, the order of its rows, and the rows beside them.

New rows may equal rows of the fit by chance, where columns have few values. How many is known from the rows fitted to:
the share of them that has a twin among the others.
"""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 2**15  # different rows that are remembered, chosen by their digests
SURE = 3.5  # standard errors beyond which it is no chance
LEAST = 0.02  # share of the rows that is worth a word


@dataclass(frozen=True)
class SeenRows:
    """The rows that a model was fitted to, as far as they are remembered.

    Args:
        bits: the filter, eight bits a byte.
        size: bits in it.
        remembered: the share of all different rows that set a bit.
        twins: the share of the rows that equal another one.
        rows: how many there were.
    """

    bits: bytes
    size: int
    remembered: float
    twins: float
    rows: int

    @classmethod
    def of(cls, features: NDArray[np.float64], target: NDArray[Any]) -> SeenRows:  # (n, p), (n,)
        digests, counts = np.unique(_digests(features, target), return_counts=True)
        remembered = min(1.0, MOST / len(digests))
        kept = digests[_chosen(digests, remembered)]
        size = max(8, math.ceil(len(kept) / math.log(2.0)))
        filled = np.zeros(size, np.bool_)
        filled[(kept % np.uint64(size)).astype(np.int64)] = True
        twins = float(counts[counts > 1].sum() / len(target))
        return cls(np.packbits(filled).tobytes(), size, remembered, twins, len(target))

    def share_of(self, features: NDArray[np.float64], target: NDArray[Any]) -> float | None:
        """The share of these rows, taken once each, that were fitted to, beyond what is chance; 0 where none need be.

        None where there are too few of them, or where twins are too many, to tell.
        """
        digests = np.unique(_digests(features, target))
        digests = digests[_chosen(digests, self.remembered)]
        filled = np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.size).astype(np.bool_)
        by_chance = float(filled.mean())
        passing = self.twins + (1.0 - self.twins) * by_chance  # of new rows
        unsure = passing * (1.0 - passing) / max(1, len(digests))
        unsure += (1.0 - by_chance) ** 2 * self.twins * (1.0 - self.twins) / self.rows
        needed = SURE * math.sqrt(unsure)
        if not len(digests) or 1.0 - passing <= needed:
            return None
        passed = float(filled[(digests % np.uint64(self.size)).astype(np.int64)].mean())
        share = (passed - passing) / (1.0 - passing)
        return share if passed - passing > needed and share > LEAST else 0.0

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"bits": base64.b64encode(self.bits).decode("ascii")}

    @classmethod
    def from_json(cls, stored: Any) -> SeenRows | None:
        """What `to_json` wrote; files of old have none. Raises ValueError, TypeError or KeyError for something else."""
        if stored is None:
            return None
        bits, size, rows = base64.b64decode(stored["bits"], validate=True), int(stored["size"]), int(stored["rows"])
        remembered, twins = float(stored["remembered"]), float(stored["twins"])
        if (
            len(bits) != math.ceil(size / 8)
            or min(size, rows) < 1
            or not (0.0 < remembered <= 1.0 and 0.0 <= twins <= 1.0)
        ):
            raise ValueError("rows of the fit that cannot be read")
        return cls(bits, size, remembered, twins, rows)


def _digests(features: NDArray[np.float64], target: NDArray[Any]) -> NDArray[np.uint64]:  # (n,)
    """One number for each row, the same wherever its values are the same."""
    rows = np.column_stack([features, target.astype(np.float64)]) + 0.0  # for -0 is 0
    found = b"".join(hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in np.ascontiguousarray(rows))
    return np.frombuffer(found, "<u8").astype(np.uint64)


def _chosen(digests: NDArray[np.uint64], share: float) -> NDArray[np.bool_]:
    """The remembered ones, by their upper half, so that a filter's place, by all of it, does not depend on it."""
    return (digests >> np.uint64(32)).astype(np.float64) < share * 2.0**32
