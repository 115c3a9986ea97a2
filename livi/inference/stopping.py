"""`EarlyStopping`: ends a fit that no longer improves, and keeps its best parameters."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from livi import checks
from livi.inference.callbacks import Callback, Run
from livi.inference.validation import PREFIX
from livi.posterior.metrics import METRICS


class EarlyStopping(Callback):
    """Ends a fit after `patience` validations without a better score, and keeps the parameters of the best one.

    They are kept at the end too, and after Ctrl-C. Validations before the KL warm-up is over (see `Recipe`) do not
    count, neither to stop nor as the best: a posterior under a weak KL term is too sure, however well it scores.

    Args:
        patience: validations, of which a fit has about twenty.
        metric: "nll", "accuracy" or "rmse".

    Attributes:
        best, best_step: the best score, and the step that had it; None before the first one that counts.

    Memory: a copy of the parameters, and while the fit runs a second one to go back to.
    """

    def __init__(self, patience: int = 5, metric: str = "nll") -> None:
        self.patience, self.metric = checks.positive_int("patience", patience), metric
        self.best: float | None = None
        self.best_step: int | None = None
        self.waited = 0  # validations since the best one
        self._parameters: dict[str, Tensor] | None = None

    def check(self, metrics: tuple[str, ...]) -> None:
        """Raise where a fit with these validation scores cannot be stopped by them."""
        if not metrics:
            raise ValueError(
                "EarlyStopping: expected validation data to score on, got none; pass validation=0.1 or (X, y)."
            )
        if self.metric not in metrics:
            raise ValueError(f"EarlyStopping: expected metric to be one of {', '.join(metrics)}, got {self.metric!r}.")

    def on_start(self, run: Run) -> None:
        self.check(run.metrics)
        if run.step == 0:
            self._forget()

    def on_validation(self, run: Run) -> None:
        row = run.history[-1]
        if row["kl_weight"] < run.temperature:
            return
        score = row[f"{PREFIX}{self.metric}"]
        better = score == score and (self.best is None or METRICS[self.metric].better(score, self.best))
        if better:
            self.best, self.best_step, self.waited, self._parameters = score, run.step, 0, run.parameters()
            return
        self.waited += 1
        if self.waited >= self.patience and run.step < run.steps:
            best = "none" if self.best is None else f"{self.best:.4g} at step {self.best_step}"
            run.stop(f"no better {self.metric} in {self.waited} validations, best {best}")

    def on_end(self, run: Run) -> None:
        if self._parameters is not None and self.best_step is not None and self.best_step != run.step:
            run.restore(self._parameters, self.best_step)
        self._parameters = None

    def state(self) -> dict[str, Any]:
        return {
            "best": self.best,
            "best_step": self.best_step,
            "waited": self.waited,
            "parameters": self._parameters,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.best, self.best_step, self.waited = state["best"], state["best_step"], state["waited"]
        self._parameters = state["parameters"]

    def _forget(self) -> None:
        self.best, self.best_step, self.waited, self._parameters = None, None, 0, None
