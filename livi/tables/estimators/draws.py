"""The networks that an estimator predicts with: drawn once, and as many for each row as it needs.

A prediction is an average over networks, so it has a Monte Carlo error, which falls with the square root of their
number. If their disagreement is small relative to the noise of the target, few networks are enough; otherwise many are
needed. So a row is predicted by 64 networks, then by twice as many, and so on until the standard errors of its mean and
of the ends of its 90 % interval are below MAX_ERROR of its total standard deviation, or no networks are left.

Which networks predict a row depends on that row alone, so that its prediction does not depend on the other rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from livi.draws import permutation
from livi.family.ensemble import Ensemble
from livi.posterior.posterior import Posterior

MAX_ERROR = 0.05
"""Monte Carlo error at which a row has enough networks, relative to its total std: 0.00125 nats of log score."""

INTERVAL_ENDS = (0.05, 0.95)
"""Quantiles whose errors must be below it, besides that of the mean."""

AUTO_NUM_SAMPLES = (64, 128, 256, 512)
"""Numbers of networks that predict a row, in turn."""

COMMON_NUM_SAMPLES = 256
"""The number of networks where the same ones must predict all rows."""


class Draws:
    """The weights of the networks that predict, the same ones at every call.

    Args:
        num_samples: the number of networks, or "auto" for as many as a row needs.
    """

    def __init__(self, posterior: Posterior, num_samples: int | str, seed: int) -> None:
        steps: tuple[int, ...] = AUTO_NUM_SAMPLES if num_samples == "auto" else (int(num_samples),)
        sampler = posterior.sampler
        if isinstance(sampler, Ensemble):  # which has no more networks than members
            steps = tuple(dict.fromkeys(min(step, sampler.num_members) for step in steps))
        self.steps = steps
        self._posterior, self._seed = posterior, seed
        self._drawn = torch.zeros(0, posterior.layout.num_params, device=posterior.layout.device)

    @property
    def common(self) -> int:
        """The number of networks where the same ones must predict all rows."""
        return min(COMMON_NUM_SAMPLES, self.steps[-1]) if len(self.steps) > 1 else self.steps[0]

    def between(self, first: int, last: int) -> Tensor:  # (last - first, m)
        """The weights of networks number `first` to `last` (excluded)."""
        with self._posterior.layout.turn:
            while len(self._drawn) < last:
                self._drawn = torch.cat([self._drawn.to(more := self._more()), more])
            return self._drawn[first:last]

    def _more(self) -> Tensor:
        """The networks that the next step adds, in random order, so that the first ones are always a fair sample."""
        known = len(self._drawn)
        place = next(place for place, step in enumerate(self.steps) if step > known)
        sampler, rng = self._posterior.sampler, torch.Generator().manual_seed(self._seed + place)
        if isinstance(sampler, Ensemble):
            return sampler.theta[_order(sampler.num_members, self._seed)[known : self.steps[place]]]
        drawn = self._posterior.sample(self.steps[place] - known, rng)
        if len(self.steps) == 1:
            return drawn
        order = torch.randperm(len(drawn), generator=rng, device=rng.device)
        return drawn[order.to(drawn.device)]

    def ensemble(self) -> Ensemble:
        """All networks that may be needed, as an ensemble whose members are used in the same order."""
        drawn = self.between(0, self.steps[-1])
        members = torch.empty_like(drawn)
        members[_order(len(drawn), self._seed)] = drawn
        return Ensemble(self._posterior.layout, members).requires_grad_(False)


def _order(members: int, seed: int) -> Tensor:  # (K,)
    """The order in which members of an ensemble are used: random, since they may be sorted by their chain."""
    return permutation(members, seed)
