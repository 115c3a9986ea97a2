"""Judging coverage: the range of shares to expect of a calibrated model, and names for shares outside it."""

from __future__ import annotations

from livi.tables.content import Judgement

SMALL_DIFFERENCE = 0.01  # difference of shares that is of no practical consequence
MISFITS = ("overconfident", "underconfident")
Band = tuple[float, float]


def binomial_band(rows: int, level: float, bands: int = 1) -> Band:
    """The range of the share of rows inside intervals of a calibrated model, 95 times in 100; at least level -+ 0.01.

    Args:
        bands: the number of ranges that hold their shares 95 times in 100 all together (Bonferroni).

    >>> binomial_band(100, 0.9), binomial_band(1_000_000, 0.9), binomial_band(100, 0.9, bands=10)
    ((0.84, 0.95), (0.89, 0.91), (0.81, 0.97))
    """
    from scipy.stats import binom

    tail = 0.025 / bands
    low, high = binom.ppf([tail, 1.0 - tail], rows, level) / rows
    return min(float(low), level - SMALL_DIFFERENCE), max(float(high), level + SMALL_DIFFERENCE)


def judged(share: float, band: Band) -> Judgement:
    """The name of a share of targets inside their intervals, given the range to expect."""
    return "overconfident" if share < band[0] else "underconfident" if share > band[1] else "calibrated"
