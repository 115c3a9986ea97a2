"""Watching a fit: a bar on a terminal, plain lines elsewhere, TensorBoard where it is installed."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from livi.inference.callbacks import Callback, Run
from livi.inference.validation import PREFIX

TERMS = {"log_likelihood": "likelihood", "log_prior": "prior", "entropy": "entropy"}
CLEAR = "\r\x1b[2K"


class Progress(Callback):
    """Shows rows of numbers as they come: on a terminal in place, otherwise a line every tenth of a phase.

    Shown are a row's terms of the bound, its learning rate and the latest validation scores; TensorBoard gets
    everything.

    Args:
        total: steps of the fit; None if unknown.
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
        """Begin a phase at this step: the fit itself, or one with a number of steps and a label of its own.

        The label precedes the phase's lines and names its scalars in TensorBoard, as in "MAP start/log_prior".
        """
        self._finish_line()
        self.total, self.label = self.steps if total is None else total, label
        self.started, self.first_step, self.next_line = time.perf_counter(), step, 0
        self.scores = ""

    def on_start(self, run: Run) -> None:
        self.begin(run.step)

    def on_step(self, run: Run) -> None:
        row = run.row
        if row is not None:
            self.show(run.step, row)

    def show(self, step: int, row: Mapping[str, float]) -> None:
        """One row of numbers."""
        if self.writer is not None:
            for name in row.keys() - {"step"}:
                self.writer.add_scalar(f"{self.label}/{name}" if self.label else name, row[name], step)
        if self.quiet:
            return
        scores = [f"{name.removeprefix(PREFIX)} {row[name]:.4g}" for name in row if name.startswith(PREFIX)]
        self.scores = f"validation {', '.join(scores)}" if scores else self.scores
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
        words = [f"{self.label} {self._course(step, rate)}".lstrip()]
        terms = " ".join(f"{row[name]:+.2f} {word}" for name, word in TERMS.items() if name in row).removeprefix("+")
        words += [" = ".join(filter(None, [f"bound {row['bound']:.2f}" if "bound" in row else "", terms]))]
        words += [self.scores]
        words += [f"rate {row['rate']:.1e}"] if "rate" in row else []
        return "  ".join(filter(None, [*words, f"{rate:.0f} {self.unit}/s"]))

    def _course(self, step: int, rate: float) -> str:
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
