"""Time that is limited: work stops in good order, and is gone on with by the next run."""

from __future__ import annotations

import time
from dataclasses import dataclass

from livi.inference import Callback
from livi.inference.callbacks import Run


class OutOfTime(Exception):  # noqa: N818
    """The time is up; what was done so far is in files."""


@dataclass(frozen=True)
class Deadline:
    """A moment of `time.monotonic`, or None for no end."""

    ends: float | None = None

    @classmethod
    def after(cls, minutes: float | None) -> Deadline:
        return cls(None if minutes is None else time.monotonic() + 60.0 * minutes)

    def passed(self) -> bool:
        return self.ends is not None and time.monotonic() >= self.ends

    def left(self) -> float | None:
        """Seconds until then."""
        return None if self.ends is None else max(0.0, self.ends - time.monotonic())


FOR_EVER = Deadline()


class StopAt(Callback):
    """Interrupts a fit as Ctrl-C would, so that it writes its checkpoint and ends."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline

    def on_step(self, run: Run) -> None:
        if run.row is not None and self.deadline.passed():
            raise KeyboardInterrupt
