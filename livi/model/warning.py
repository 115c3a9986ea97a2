"""Warnings about problems and fits, at the line of whoever asked for them."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

OURS = ("livi", "torch")  # torch's decorators stand between


class FitWarning(UserWarning):
    """Something about a problem or a fit that makes its result doubtful."""


def warn(text: str) -> None:
    """Issue a `FitWarning` at the line of the user's code that called this package."""
    frame: FrameType | None = sys._getframe()
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, FitWarning, stacklevel=level)
