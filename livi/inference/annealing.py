"""Annealing of `livi.fit_density`: a fit that begins with a flattened density reaches modes it would otherwise miss."""

from __future__ import annotations

import torch
from torch import Tensor

from livi.inference.callbacks import Callback, Run
from livi.model.density import LogProb
from livi.model.priors import FunctionPrior

HOTTEST = 0.1  # inverse temperature of the first step


class Annealed(FunctionPrior):
    """A density with its own value, but the gradient of its power `coldness`, between 0.1 and 1.

    So the bound that is logged, and judged for divergence, is one on the target's normaliser at every temperature.
    """

    def __init__(self, log_prob: LogProb) -> None:
        super().__init__(log_prob)
        self.coldness: Tensor
        self.register_buffer("coldness", torch.ones(()))

    def log_prob(self, theta: Tensor) -> Tensor:  # (S, m) -> (S,)
        values = super().log_prob(theta)
        return values.detach() + self.coldness * (values - values.detach())


class Cooling(Callback):
    """Raises the `coldness` of a density linearly to 1 over the given share of the steps."""

    def __init__(self, target: Annealed, share: float) -> None:
        self.target, self.share = target, share

    def on_start(self, run: Run) -> None:
        self.on_step(run)

    def on_step(self, run: Run) -> None:
        done = run.step / (self.share * run.steps) if self.share > 0.0 else 1.0
        self.target.coldness.fill_(HOTTEST + (1.0 - HOTTEST) * min(1.0, done))
