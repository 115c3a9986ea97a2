"""Ctrl-C between steps: it may come at any time, and takes effect when the present step is done."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class CtrlC:
    """A context in which the first Ctrl-C waits for `check` to raise it; a second one is raised at once.

    Only where Python's own handler is installed, not one of the user's, and in the main thread, which alone gets it.
    """

    def __init__(self) -> None:
        self.pressed = False
        self.before: Any = None

    def __enter__(self) -> CtrlC:
        self.pressed = False
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self.before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
            self.before = None
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise the KeyboardInterrupt that was kept, if there is one."""
        if self.pressed:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
