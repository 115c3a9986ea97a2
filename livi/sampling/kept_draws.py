"""A posterior made of kept draws, for `polish` and `reweight`, and warnings where it describes other data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from livi.family.ensemble import Ensemble
from livi.family.last_layer import ExactLastLayer
from livi.model.data import Data, NotGatheredError, Unpack, as_data, gathered
from livi.model.likelihoods import Likelihood
from livi.model.problem import Problem
from livi.posterior.diagnostics.data import same_examples
from livi.posterior.posterior import Posterior
from livi.posterior.prediction import with_statistics
from livi.posterior.prediction.refusal import check_taken
from livi.sampling.chain_target import ChainTarget


def other_data(
    posterior: Posterior, target: ChainTarget, data: Any, unpack: Unpack | None, caller: str, what: str
) -> list[str]:
    """Warnings where the examples used are not those of the fit, or not those given.

    Args:
        caller: the function that warns, as "polish".
        what: what will describe the examples used, as "the chains are".
    """
    found, fitted, used = [], posterior.plan.get("num_data"), target.whole.data.num_data
    if posterior.exact_layer is not None and data is not None:
        layout = posterior.layout
        given = as_data(data, device=layout.device, dtype=layout.dtype, unpack=unpack)
        inputs, counts = given.first()[0], posterior.exact_layer.likelihood.counts
        beside = counts is not None and isinstance(inputs, tuple) and len(inputs) == 2  # weights of the examples
        check_taken(layout, posterior.plan, inputs[0] if beside else inputs)
        if given.num_data != used or not _holds(posterior.exact_layer, given):
            found.append(
                f"{caller}: the last layer is exact and holds the {used:,} examples that it was fitted to; {what} of "
                f"these, and the {given.num_data:,} given, which are others, are not used. For a posterior of those, "
                "fit to them."
            )
    if fitted not in (None, used):
        found.append(
            f"{caller}: expected the {fitted:,} examples that the posterior was fitted to, got {used:,}; {what} of "
            "these alone."
        )
    return found


def _holds(sampler: ExactLastLayer, data: Data) -> bool:
    """Whether the last layer holds these examples; True where they change by the epoch, and nobody can say."""
    try:
        given = gathered(data)
    except NotGatheredError:
        return True
    return same_examples((sampler.all_inputs(), sampler.targets), (given.inputs, given.targets))


def kept_as_posterior(
    posterior: Posterior, likelihood: Likelihood, problem: Problem, theta: Tensor, facts: Mapping[str, Any]
) -> Posterior:
    """The kept draws (K, m) as a posterior, each with its own BatchNorm statistics on the data of the problem.

    Args:
        problem: of all weights, on all data.
        facts: added to the plan of the posterior that the draws come from.
    """
    layout = problem.layout
    inputs = problem.data.first()[0] if layout.batch_norms else None
    drawn = with_statistics(layout, theta, {} if inputs is not None else posterior.buffers, inputs)
    untempered = {} if posterior.temperature == 1.0 else {"recipe": posterior.plan["recipe"] | {"temperature": 1.0}}
    return Posterior(
        Ensemble(layout, theta).requires_grad_(False),
        likelihood,
        posterior.prior if posterior.exact_layer is None else problem.prior,
        buffers=drawn.buffers,
        history=posterior.history,
        plan={name: fact for name, fact in posterior.plan.items() if name != "reweight"} | untempered | dict(facts),
    )
