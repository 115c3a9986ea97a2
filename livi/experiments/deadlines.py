"""Deadlines: work stops cleanly when the time is up, and the next run continues it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from livi.inference import Callback
from livi.inference.callbacks import Run


class OutOfTime(Exception):  # noqa: N818
    """The deadline has passed; results so far are in files."""


@dataclass(frozen=True)
class Deadline:
    """When to stop, as a value of `time.monotonic()`, and after how many minutes that is; None for never."""

    ends: float | None = None
    minutes: float | None = None

    @classmethod
    def after(cls, minutes: float | None) -> Deadline:
        return cls(None if minutes is None else time.monotonic() + 60.0 * minutes, minutes)

    def passed(self) -> bool:
        return self.ends is not None and time.monotonic() >= self.ends

    def left(self) -> float | None:
        """Seconds left; None without an end."""
        return None if self.ends is None else max(0.0, self.ends - time.monotonic())


NO_DEADLINE = Deadline()


class StopAt(Callback):
    """Interrupts a fit as Ctrl-C would, so that it writes its checkpoint and ends."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline

    def on_step(self, run: Run) -> None:
        if run.row is not None and self.deadline.passed():
            raise KeyboardInterrupt
