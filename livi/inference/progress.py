"""Watching a fit: the terms of the bound, the learning rate and validation scores beside its progress."""

from __future__ import annotations

from collections.abc import Mapping

from livi.inference.callbacks import Callback, Run
from livi.inference.validation import PREFIX
from livi.running import Progress

TERMS = {"log_likelihood": "likelihood", "log_prior": "prior", "entropy": "entropy"}


class FitProgress(Progress, Callback):
    """The progress of a fit: a row's terms of the bound, its learning rate, and the latest validation scores."""

    scores = ""

    def on_start(self, run: Run) -> None:
        self.begin(run.step)

    def on_step(self, run: Run) -> None:
        if run.row is not None:
            self.show(run.step, run.row)

    def begin(self, step: int, total: int | None = None, label: str = "") -> None:
        super().begin(step, total, label)
        self.scores = ""

    def show(self, step: int, row: Mapping[str, float]) -> None:
        scores = [f"{name.removeprefix(PREFIX)} {row[name]:.4g}" for name in row if name.startswith(PREFIX)]
        self.scores = f"validation {', '.join(scores)}" if scores else self.scores
        super().show(step, row)

    def words(self, row: Mapping[str, float]) -> list[str]:
        terms = " ".join(f"{row[name]:+.2f} {word}" for name, word in TERMS.items() if name in row).removeprefix("+")
        bound = f"bound {row['bound']:.2f}" if "bound" in row else ""
        rate = f"rate {row['rate']:.1e}" if "rate" in row else ""
        return [" = ".join(filter(None, [bound, terms])), self.scores, rate]
