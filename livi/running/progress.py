"""How far something has got: a bar on a terminal, plain lines elsewhere, TensorBoard where it is installed."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

CLEAR = "\r\x1b[2K"


class Progress:
    """Shows rows of numbers as they come: on a terminal in place, otherwise a line every tenth of a phase.

    Shown are the steps so far and those of a second, and what `words` makes of the row; TensorBoard gets every number.

    Args:
        total: number of steps; None if unknown.
        quiet: show nothing.
        log_dir: also write scalars for TensorBoard there.
        unit: what is counted, if not steps.
    """

    def __init__(
        self,
        total: int | None,
        *,
        quiet: bool = False,
        log_dir: str | Path | None = None,
        stream: TextIO | None = None,
        unit: str = "steps",
    ) -> None:
        self.steps, self.quiet, self.unit = total, quiet, unit
        self.stream = sys.stderr if stream is None else stream
        self.in_place = self.stream.isatty()
        self.unfinished = False  # a line on the terminal that the next one would overwrite
        self.writer = _tensorboard(log_dir)
        self.begin(0)

    def begin(self, step: int, total: int | None = None, label: str = "") -> None:
        """Begin a phase at this step: all steps, or some of them, with a number and a label of their own.

        The label precedes the phase's lines and names its scalars in TensorBoard, as in "MAP start/log_prior".
        """
        self._finish_line()
        self.total, self.label = self.steps if total is None else total, label
        self.started, self.first_step, self.next_line = time.perf_counter(), step, 0

    def words(self, row: Mapping[str, float]) -> list[str]:  # noqa: ARG002 - for subclasses
        """What to show of a row."""
        return []

    def show(self, step: int, row: Mapping[str, float]) -> None:
        """One row of numbers."""
        if self.writer is not None:
            for name in row.keys() - {"step"}:
                self.writer.add_scalar(f"{self.label}/{name}" if self.label else name, row[name], step)
        if self.quiet:
            return
        if self.in_place:
            width = shutil.get_terminal_size().columns - 1  # a line that wraps cannot be cleared
            self.stream.write(CLEAR + self._line(step, row)[:width])
            self.stream.flush()
            self.unfinished = True
        elif step >= self.next_line or (self.total is not None and step >= self.total):
            self.stream.write(self._line(step, row) + "\n")
            self.next_line = step + (step if self.total is None else self.total // 10)

    def say(self, text: str) -> None:
        """Print a line that is not overwritten."""
        if not self.quiet:
            self.stream.write((CLEAR if self.unfinished else "") + text + "\n")
            self.unfinished = False

    def close(self) -> None:
        """End the line and the log. What is shown afterwards is no longer logged."""
        self._finish_line()
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def _finish_line(self) -> None:
        if self.unfinished:
            self.stream.write("\n")
            self.unfinished = False

    def _line(self, step: int, row: Mapping[str, float]) -> str:
        rate = max(1e-9, step - self.first_step) / max(1e-9, time.perf_counter() - self.started)
        words = [f"{self.label} {self._bar(step, rate)}".lstrip(), *self.words(row), f"{rate:.0f} {self.unit}/s"]
        return "  ".join(filter(None, words))

    def _bar(self, step: int, rate: float) -> str:
        if self.total is None:
            return f"{step:,} {self.unit}"
        left = max(0, self.total - step) / rate
        filled = round(20 * min(1.0, step / max(1, self.total)))
        return f"[{'#' * filled}{'.' * (20 - filled)}] {left:.0f} s left, {step}/{self.total}"


def _tensorboard(log_dir: str | Path | None) -> Any:
    if log_dir is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError(
            'log_dir: expected TensorBoard to be installed, got none; pip install "livi[tensorboard]", or drop log_dir.'
        ) from error
    return SummaryWriter(str(log_dir))
