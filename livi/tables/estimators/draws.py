"""The networks behind an estimator's answers: drawn once, and as many for each row as it needs.

A prediction is an average over networks, so it has a Monte Carlo error, which falls with the root of their number.
Where they agree beside the noise of the target, few of them tell all there is to tell; where the noise is small beside
what they disagree on, many are needed. So a row is asked of 64 networks, then of twice as many, until the standard
errors of its mean and of the ends of its 90 % interval are below TOLERANCE of its total standard deviation, or all
were asked.

Which networks a row is asked of depends on that row alone: its answer is the same whatever rows are beside it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from livi.draws import permutation
from livi.family.ensemble import Ensemble
from livi.posterior.posterior import Posterior

TOLERANCE = 0.05
"""Monte Carlo error at which a row has enough, as a share of its total std: 0.00125 nats of log score."""

ENDS = (0.05, 0.95)
"""Quantiles that are held to it, besides the mean."""

AUTO = (64, 128, 256, 512)
"""Networks that a row is asked of, in turn."""

COMMON = 256
"""Networks that all rows are asked of where one answer is wanted for all of them."""


class Draws:
    """The weights of the networks that answer, the same ones at every call.

    Args:
        num_samples: how many, or "auto" for as many as a row needs.
    """

    def __init__(self, posterior: Posterior, num_samples: int | str, seed: int) -> None:
        steps: tuple[int, ...] = AUTO if num_samples == "auto" else (int(num_samples),)
        sampler = posterior.sampler
        if isinstance(sampler, Ensemble):  # so many there are
            steps = tuple(dict.fromkeys(min(step, sampler.num_members) for step in steps))
        self.steps = steps
        self._posterior, self._seed = posterior, seed
        self._drawn = torch.zeros(0, posterior.layout.num_params, device=posterior.layout.device)

    @property
    def common(self) -> int:
        """How many answer where it must be the same ones for all rows."""
        return min(COMMON, self.steps[-1]) if len(self.steps) > 1 else self.steps[0]

    def between(self, first: int, last: int) -> Tensor:  # (last - first, m)
        """Networks number `first` up to `last`."""
        with self._posterior.layout.turn:
            while len(self._drawn) < last:
                self._drawn = torch.cat([self._drawn.to(more := self._more()), more])
            return self._drawn[first:last]

    def _more(self) -> Tensor:
        """What the next step adds, in a random order, so that any number of the first networks is a fair sample."""
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
        """All that may answer, as an ensemble whose members are asked in the same order."""
        drawn = self.between(0, self.steps[-1])
        members = torch.empty_like(drawn)
        members[_order(len(drawn), self._seed)] = drawn
        return Ensemble(self._posterior.layout, members).requires_grad_(False)


def _order(members: int, seed: int) -> Tensor:  # (K,)
    """In which the members of an ensemble are asked: they may be sorted by the chain that they are from."""
    return permutation(members, seed)
