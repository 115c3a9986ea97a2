"""Whether a fit has kept what it had reached: while it trains, and in the end what its start could explain."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from livi.data import Data
from livi.objective import Bound

DRAWS = 32  # networks that predict together
BATCHES = 40


class Window(NamedTuple):
    """Medians over some logged steps: what the parameters of that time are worth at any weight of the KL term."""

    log_likelihood: float
    kl: float
    noise: float  # standard error of the bound's median, about

    def worth(self, kl_weight: float) -> float:
        return self.log_likelihood - kl_weight * self.kl

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, float]]) -> Window:
        fits = [row["log_likelihood"] for row in rows]
        gaps = [-row["log_prior"] - row["entropy"] for row in rows]
        bounds = [fit - gap for fit, gap in zip(fits, gaps, strict=True)]
        # Medians, also of the noise: a single spike that the next step recovers from is no divergence, and the first
        # steps of one must not make those after it look like noise. 1.48 and 1.25 are those of normal noise.
        middle = statistics.median(bounds)
        spread = 1.48 * statistics.median(abs(value - middle) for value in bounds)
        return cls(statistics.median(fits), statistics.median(gaps), 1.25 * spread / len(rows) ** 0.5)

    def far_below(self, earlier: Sequence[Window], kl_weight: float, allowed: float) -> bool:
        """Whether this is so many nats below earlier parameters, and their noise, that only a divergence explains it.

        Earlier parameters are judged at today's weight of the KL term, so that this can be asked at every step of its
        warm-up: they could be had again, and training should have found something at least as good.
        """
        best = max(earlier, key=lambda window: window.worth(kl_weight))
        # Minibatch noise is that of the best window alone: that of a diverging one would excuse everything.
        return self.worth(kl_weight) < best.worth(kl_weight) - allowed - 10.0 * best.noise


@torch.no_grad()
def log_predictive(bound: Bound, data: Data, rng: torch.Generator) -> float:
    """sum_i log E_q p(y_i | x_i, theta) over all data, in nats, from one epoch's batches, at most forty.

    Unlike the expected log likelihood it is what predictions are worth: single draws that fit badly cost little.
    """
    size = bound.num_samples
    blocks = [bound.posterior.sample(size, rng) for _ in range(max(1, math.ceil(DRAWS / size)))]
    total, seen = torch.zeros((), dtype=torch.float64), 0
    for (inputs, targets), _ in zip(data.epoch(0), range(BATCHES), strict=False):
        values = torch.cat([bound.log_likelihood(theta, inputs, targets) for theta in blocks])  # (S, B)
        total += (torch.logsumexp(values, 0) - math.log(len(values))).sum().double().cpu()
        seen += len(targets)
    return data.num_data * float(total) / max(1, seen)


def constant_log_likelihood(bound: Bound, data: Data) -> float | None:
    """Of the best prediction that is the same for all inputs; None where the likelihood does not know it."""
    targets: list[Tensor] = [target for (_, target), _ in zip(data.epoch(0), range(BATCHES), strict=False)]
    seen = sum(map(len, targets))
    value = bound.likelihood.constant_log_prob(torch.cat(targets))
    return None if value is None else data.num_data * value / seen


def lost_likelihood(bound: Bound, data: Data, start_log_likelihood: float, rng: torch.Generator) -> str:
    """A sentence where predictions explain less than half of what the start explained beyond a constant, else ""."""
    constant = constant_log_likelihood(bound, data)
    if constant is None or not start_log_likelihood > constant + 20.0:
        return ""
    reached = log_predictive(bound, data, rng)
    if reached > 0.5 * (start_log_likelihood + constant) - 20.0:
        return ""
    return (
        f"the fit ended far below its start: its predictions of the training data are worth {reached:,.0f} nats, where "
        f"the weights that it started from had {start_log_likelihood:,.0f} and a constant prediction {constant:,.0f}."
    )
