"""Durations: seconds from texts such as "1 min", and back."""

from __future__ import annotations

import math
import re

_UNITS = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*?)s?\s*")


def seconds(name: str, duration: float | str) -> float:
    """The seconds of a duration: a number of them, or a text such as "30 s", "1 min" or "1.5 hours".

    >>> seconds("budget", "1.5 min")
    90.0
    """
    value: float | str = duration
    if isinstance(duration, str):
        found = _TEXT.fullmatch(duration.lower())
        unit = _UNITS.get(found[2] or "s") if found else None
        value = float(found[1]) * unit if found and unit else math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < math.inf:
        raise ValueError(
            f"{name}: expected seconds above 0, or a text such as '30 s', '1 min', '2 h', got {duration!r}."
        )
    return float(value)


def in_words(seconds: float) -> str:
    """A duration in words: seconds, minutes or hours.

    >>> in_words(42.3), in_words(600), in_words(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
