"""A filter of the rows a model was fitted to, which estimates how many rows of another table are among them.

Each row, as features and target, sets one bit of a Bloom filter that is about half full. A row of the fit finds its bit
set, and so do about half of all others: the filter says very little about a single row, and no row can be read from it,
so that even files without rows of the data may contain it. But it estimates well how many of twenty or more rows were
fitted to, whatever the name of their file, their order, and the other rows in it.

Where columns have few values, new rows may equal rows of the fit by chance. How many is estimated by the share of the
rows fitted to that have a twin among the others.
"""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_FILTER_ROWS = 2**15  # different rows in the filter, chosen by their digests
MIN_STD_ERRORS = 3.5  # above which a share is not due to chance
MIN_SHARE = 0.02  # of the rows that is worth a warning


@dataclass(frozen=True)
class SeenRows:
    """The filter of the rows that a model was fitted to.

    Args:
        bits: the filter, eight bits a byte.
        size: the number of its bits.
        remembered: the share of all different rows that set a bit.
        twins: the share of the rows that equal another one.
        rows: the number of rows fitted to.
    """

    bits: bytes
    size: int
    remembered: float
    twins: float
    rows: int

    @classmethod
    def of(cls, features: NDArray[np.float64], target: NDArray[Any]) -> SeenRows:  # (n, p), (n,)
        digests, counts = np.unique(_digests(features, target), return_counts=True)
        remembered = min(1.0, MAX_FILTER_ROWS / len(digests))
        chosen = digests[_chosen(digests, remembered)]
        size = max(8, math.ceil(len(chosen) / math.log(2.0)))  # half of the bits are set
        filled = np.zeros(size, np.bool_)
        filled[(chosen % np.uint64(size)).astype(np.int64)] = True
        twins = float(counts[counts > 1].sum() / len(target))
        return cls(np.packbits(filled).tobytes(), size, remembered, twins, len(target))

    def share_of(self, features: NDArray[np.float64], target: NDArray[Any]) -> float | None:
        """The estimated share of these rows, without repetitions, that were fitted to; 0 if it may be due to chance.

        None if there are too few rows, or too many twins, for an estimate.
        """
        digests = np.unique(_digests(features, target))
        digests = digests[_chosen(digests, self.remembered)]
        filled = np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.size).astype(np.bool_)
        by_chance = float(filled.mean())
        passing = self.twins + (1.0 - self.twins) * by_chance  # the share of new rows that find their bit set
        variance = passing * (1.0 - passing) / max(1, len(digests))
        variance += (1.0 - by_chance) ** 2 * self.twins * (1.0 - self.twins) / self.rows
        needed = MIN_STD_ERRORS * math.sqrt(variance)
        if not len(digests) or 1.0 - passing <= needed:
            return None
        passed = float(filled[(digests % np.uint64(self.size)).astype(np.int64)].mean())
        share = (passed - passing) / (1.0 - passing)
        return share if passed - passing > needed and share > MIN_SHARE else 0.0

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"bits": base64.b64encode(self.bits).decode("ascii")}

    @classmethod
    def from_json(cls, stored: Any) -> SeenRows | None:
        """The filter that `to_json` wrote; None from old files. Raises ValueError, TypeError or KeyError else."""
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
    """A hash of each row, the same for equal rows."""
    rows = np.column_stack([features, target.astype(np.float64)]) + 0.0  # makes -0 the same as 0
    found = b"".join(hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in np.ascontiguousarray(rows))
    return np.frombuffer(found, "<u8").astype(np.uint64)


def _chosen(digests: NDArray[np.uint64], share: float) -> NDArray[np.bool_]:
    """Choose a share of digests by their upper half, of which their place in the filter is nearly independent."""
    return (digests >> np.uint64(32)).astype(np.float64) < share * 2.0**32
