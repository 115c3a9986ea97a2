"""From a bound to a `Posterior`: at the end of a fit, and at any step of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from livi.family.implicit import ImplicitPosterior
from livi.family.last_layer import ExactLastLayer
from livi.family.objective import Bound
from livi.inference.final_check import constant_log_likelihood
from livi.inference.plans import Plan
from livi.model.data import Data, TensorData, shapes_in_words, some_inputs
from livi.model.features import as_given
from livi.posterior.posterior import Posterior

CALIBRATION = 512  # examples to measure the BatchNorm statistics of drawn networks on


class Result:
    """Makes posteriors from the plan's bound, or copies of it.

    Inputs for BatchNorm are read from the data once, at the beginning, so that a DataLoader with a random stream of its
    own gives the fit the same batches however often a posterior is made.
    """

    def __init__(self, prepared: Plan) -> None:
        self.prepared = prepared
        normalised = prepared.problem.integrated is None and prepared.layout.batch_norms
        self.calibration = calibration_inputs(prepared.data) if normalised else None

    @cached_property
    def constant_log_likelihood(self) -> float | None:
        return constant_log_likelihood(self.prepared.bound, self.prepared.data)

    def posterior(
        self, bound: Bound, history: Sequence[Mapping[str, float]] = (), facts: Mapping[str, Any] | None = None
    ) -> Posterior:
        """The posterior made of this bound's own parts, not copies; they no longer require gradients."""
        bound.requires_grad_(False)
        problem = self.prepared.problem
        if problem.integrated is None:
            return Posterior(
                bound.family,
                bound.likelihood,
                bound.prior,
                calibration=self.calibration,
                history=history,
                plan=facts,
            )
        if bound is not self.prepared.bound:
            problem = replace(problem, integrated=copy.deepcopy(problem.integrated))  # which holds the network
        assert isinstance(bound.family, ImplicitPosterior)
        sampler = ExactLastLayer.of(problem, bound.family, bound.likelihood, bound.prior)
        return Posterior(sampler, sampler.likelihood.observed, bound.prior, history=history, plan=facts)

    def copied(self, bound: Bound) -> Posterior:
        """The posterior made of a copy of this bound."""
        facts = {"inputs": shapes_in_words(as_given(self.prepared.data).first()[0])}
        return self.posterior(copy.deepcopy(bound), facts=facts)


def calibration_inputs(data: Data, count: int = CALIBRATION) -> Any:
    """Inputs of so many examples, drawn from all of the data where it is in memory, since rows may be sorted.

    Augmented where the fit's are, since a network needs the statistics that it was fitted under: those of images that
    are not augmented cost 3 % of the NLL on CIFAR-10 (docs/benchmarks/images.md).
    """
    if isinstance(data, TensorData):
        data = TensorData(data.inputs, data.targets, count, augment=data.augment)  # shuffled
    return some_inputs(data, count)
