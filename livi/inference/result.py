"""The posterior that a bound stands for: at the end of a fit, and at any step of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from livi.family.objective import Bound
from livi.inference.last import sampler_of
from livi.inference.plan import Plan
from livi.model.data import Data, TensorData, some_inputs
from livi.posterior.posterior import Posterior

CALIBRATION = 512  # examples to measure the BatchNorm statistics of drawn networks on


class Result:
    """Makes posteriors of bounds like the plan's.

    Inputs for BatchNorm are read from the data once, at the beginning: a DataLoader with a random stream of its own
    then gives the same batches however often a posterior is asked for.
    """

    def __init__(self, prepared: Plan) -> None:
        self.prepared = prepared
        normalised = prepared.last is None and prepared.layout.statistics()
        self.calibration = _calibration(prepared.data) if normalised else None

    def posterior(
        self, bound: Bound, history: Sequence[Mapping[str, float]] = (), facts: Mapping[str, Any] | None = None
    ) -> Posterior:
        """The posterior of this bound, with its parts and not copies of them; they no longer ask for gradients."""
        bound.requires_grad_(False)
        last, data = self.prepared.last, self.prepared.data
        if last is None:
            return Posterior(
                bound.posterior,
                bound.likelihood,
                bound.prior,
                calibration=self.calibration,
                history=history,
                plan=facts,
            )
        own = last if bound is self.prepared.bound else copy.deepcopy(last)  # which holds the network
        sampler = sampler_of(own, bound, *data.first())
        return Posterior(sampler, sampler.likelihood.noise, bound.prior, history=history, plan=facts)

    def copied(self, bound: Bound) -> Posterior:
        """The posterior of a copy of this bound."""
        return self.posterior(copy.deepcopy(bound))


def _calibration(data: Data) -> Any:
    """Inputs of a few hundred examples, from all over the data where they are at hand: rows may come in an order."""
    shuffled = TensorData(data.inputs, data.targets, CALIBRATION) if isinstance(data, TensorData) else data
    return some_inputs(shuffled, CALIBRATION)
