"""Watching a fit: a bar on a terminal, plain lines elsewhere, TensorBoard where it is installed."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, TextIO


class Progress:
    """Shows rows of numbers as they come: on a terminal in place, otherwise a line every tenth of the run.

    Args:
        total: steps in all.
        quiet: show nothing.
        log_dir: also write scalars for TensorBoard there.
    """

    def __init__(
        self, total: int, *, quiet: bool = False, log_dir: str | Path | None = None, stream: TextIO | None = None
    ) -> None:
        self.total, self.quiet = total, quiet
        self.stream = sys.stderr if stream is None else stream
        self.in_place = self.stream.isatty()
        self.started, self.first_step = time.perf_counter(), 0
        self.next_line = 0
        self.writer = _tensorboard(log_dir)

    def begin(self, step: int) -> None:
        self.started, self.first_step = time.perf_counter(), step

    def show(self, step: int, row: dict[str, float]) -> None:
        if self.writer is not None:
            for name, value in row.items():
                self.writer.add_scalar(name, value, step)
        if self.quiet:
            return
        if self.in_place:
            self.stream.write("\r\x1b[2K" + self._line(step, row))
            self.stream.flush()
        elif step >= self.next_line or step >= self.total:
            self.stream.write(self._line(step, row) + "\n")
            self.next_line = step + self.total // 10

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self.quiet:
            self.stream.write(("\r\x1b[2K" if self.in_place else "") + text + "\n")

    def close(self) -> None:
        if self.in_place and not self.quiet:
            self.stream.write("\n")
        if self.writer is not None:
            self.writer.close()

    def _line(self, step: int, row: dict[str, float]) -> str:
        elapsed = max(1e-9, time.perf_counter() - self.started)
        rate = max(1e-9, (step - self.first_step) / elapsed)
        left = (self.total - step) / rate
        filled = round(20 * step / self.total)
        bar = "#" * filled + "." * (20 - filled)
        return (
            f"[{bar}] {step}/{self.total}  bound {row['bound']:.2f} = {row['log_likelihood']:.2f} likelihood "
            f"{row['log_prior']:+.2f} prior {row['entropy']:+.2f} entropy  rate {row['rate']:.1e}  "
            f"{rate:.0f} steps/s  {left:.0f} s left"
        )


def _tensorboard(log_dir: str | Path | None) -> Any:
    if log_dir is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("log_dir needs TensorBoard: pip install tensorboard, or drop log_dir.") from error
    return SummaryWriter(str(log_dir))
