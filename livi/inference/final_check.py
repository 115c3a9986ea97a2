"""Whether a fit's predictions are still as good, in the end, as those of the weights that it started from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from livi.family.family import Family
from livi.family.implicit import ImplicitPosterior
from livi.family.last_layer import Marginal
from livi.family.objective import Bound
from livi.model.data import Data
from livi.model.likelihoods import Weighted
from livi.model.problem import network_outputs, scaled_up
from livi.model.warning import warn
from livi.sampling.chains import log_density_range

DRAWS, FEW = 32, 8  # networks that predict together, fewer of many weights
HELD = 2**28  # numbers in all of them together, which decides how many there are between FEW and DRAWS
BATCHES = 40


@torch.no_grad()
def log_predictive(
    bound: Bound, data: Data, rng: torch.Generator, q: Family | None = None, batches: int = BATCHES
) -> float:
    """sum_i log E_q p(y_i | x_i, theta) over all data, in nats, estimated from at most `batches` of one epoch.

    Unlike the expected log likelihood it measures predictions: single draws that fit badly cost little.

    Args:
        q: another posterior than the bound's.
    """
    q = bound.family if q is None else q

    def averaged(values: Tensor) -> Tensor:
        return torch.logsumexp(values, 0) - math.log(len(values))

    draws = max(FEW, min(DRAWS, HELD // q.num_params))
    return _over_data(bound, data, rng, q, averaged, draws, batches)


@torch.no_grad()
def expected_log_likelihood(bound: Bound, data: Data, rng: torch.Generator) -> float:
    """sum_i E_q log p(y_i | x_i, theta), from the same batches and few draws, whose mean is as good as that of many."""
    return _over_data(bound, data, rng, bound.family, lambda values: values.mean(0), FEW, BATCHES)


def _over_data(
    bound: Bound,
    data: Data,
    rng: torch.Generator,
    q: Family,
    what: Callable[[Tensor], Tensor],
    draws: int,
    batches: int,
) -> float:
    """Sum over all data of `what`, a function of the log likelihoods log p(y | x, theta_s): (S, B) -> (B,)."""
    size = bound.num_samples
    blocks = [q.sample(size, rng) for _ in range(max(1, math.ceil(draws / size)))]
    total, seen = 0.0, 0
    for (inputs, targets), _ in zip(data.epoch(0), range(batches), strict=False):
        values = torch.cat([bound.log_likelihood(theta, inputs, targets) for theta in blocks])  # (S, B)
        total += float(what(values).sum().double())
        seen += len(targets)
    return scaled_up(total / max(1, seen), data.num_data)


@torch.no_grad()
def constant_log_likelihood(bound: Bound, data: Data) -> float | None:
    """Log likelihood of the best constant prediction; None where the likelihood does not know it."""
    likelihood, layout = bound.likelihood, bound.family.layout
    targets: list[Tensor] = []
    weights: list[Tensor] = []
    for (inputs, some), _ in zip(data.epoch(0), range(BATCHES), strict=False):
        targets.append(some)
        if isinstance(likelihood, Weighted):  # those of the examples come beside the outputs
            weights.append(network_outputs(layout, layout.flatten()[None], inputs)[1].reshape(-1))
    counts = likelihood.counts if isinstance(likelihood, Marginal) else torch.cat(weights) if weights else None
    weighted = () if counts is None else (counts,)  # of which a likelihood of one's own need not know
    value = likelihood.observed.constant_log_prob(torch.cat(targets), *weighted)
    return None if value is None else scaled_up(value / sum(map(len, targets)), data.num_data)


class Yardstick(NamedTuple):
    """What the end of a fit is held against.

    Args:
        start: log likelihood of the data at the weights that it started from.
        constant: that of the best constant prediction; None where it is not known.
        temperature: of the posterior; one above 1 is expected to lie further below its start.
    """

    start: float
    constant: float | None = None
    temperature: float = 1.0

    @property
    def heat(self) -> float:
        """How many times as far below its start as one of temperature 1 a posterior may lie."""
        return max(1.0, self.temperature)

    def least(self) -> float | None:
        """The nats that predictions must reach; None where the start was hardly better than a constant."""
        if self.constant is None or not self.start > self.constant + 20.0:
            return None
        return self.start - self.heat * (0.75 * (self.start - self.constant) + 20.0)


def lost_likelihood(bound: Bound, data: Data, yardstick: Yardstick, rng: torch.Generator) -> str:
    """A sentence where predictions lost more than three quarters of what the start gained over a constant, else "".

    So much, since a MAP estimate explains more than any posterior should: it fits noise, and drives an input-dependent
    noise towards zero. Draws of temperature T lie about T times as far below the best weights (in a linear model), and
    may lose T times as much.
    """
    least = yardstick.least()
    if least is None:
        return ""
    reached = log_predictive(bound, data, rng)
    if reached > least:
        return ""
    return (
        f"the fit ended far below its start: its predictions of the training data are worth {reached:,.0f} nats, where "
        f"the weights that it started from had {yardstick.start:,.0f} and a constant prediction "
        f"{yardstick.constant:,.0f}."
    )


def lost_components(bound: Bound, data: Data, yardstick: Yardstick, rng: torch.Generator) -> list[int]:
    """Components of a mixture that fail `lost_likelihood` by themselves, or are far below the best component.

    The whole mixture does not show them: it explains what its best component does, less log K an example at most, and
    yet predicts with all of them.
    """
    q, least = bound.family, yardstick.least()
    if least is None or not isinstance(q, ImplicitPosterior) or q.num_components == 1:
        return []
    few = max(1, BATCHES // q.num_components)  # so that this takes no longer than judging the whole
    reached = [log_predictive(bound, data, rng, q.only([k]), few) for k in range(q.num_components)]
    least = max(least, max(reached) - yardstick.heat * log_density_range(q.num_params))
    return [k for k, worth in enumerate(reached) if not worth > least]


def leave_out(bound: Bound, components: Sequence[int]) -> None:
    """Drop these components from a mixture, unless they are all of them, and warn."""
    q = bound.family
    kept = [k for k in range(q.num_components) if k not in components]
    if not components or not kept:
        return
    assert isinstance(q, ImplicitPosterior)
    bound.family = q.only(kept)
    warn(
        f"{len(components)} of {q.num_components} mixture components ended far below where they started, or below the "
        "best of them, and are left out: predictions are better without. Raise Recipe.steps or num_samples, or lower "
        "its rates.",
    )
