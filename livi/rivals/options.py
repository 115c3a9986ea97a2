"""Which of the options of `livi.inference.fit` a baseline has no use for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def refuse(function: str, options: Mapping[str, Any], *names: str) -> None:
    """Raise if one of these options was given: passing over it in silence would give another fit than was asked for."""
    given = [name for name in names if options.get(name) is not None and not _empty(options[name])]
    if given:
        raise TypeError(f"{function}: expected no {' or '.join(given)}, which this baseline fixes or has no use for.")


def _empty(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and not value
