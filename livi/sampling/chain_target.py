"""What Markov chains run on: all weights of a network, or those before a last layer that is integrated out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from livi.family.last_layer import ExactLastLayer, LinearGaussian
from livi.model.data import NotGatheredError, TensorData, Unpack, as_data, gathered
from livi.model.data.gather import MEMORY
from livi.model.priors import Normal, Prior, Relevance
from livi.model.problem import Problem
from livi.network import as_call, multiplications, suitable_strategy
from livi.posterior.posterior import Posterior


@dataclass(frozen=True)
class ChainTarget:
    """log p(D, theta) of the weights that chains move, and how to complete them to weights of the whole network.

    Under Gaussian noise a last linear layer need not be sampled: chains move the earlier weights alone, on the evidence
    of their features, and each kept draw is completed by an exact draw of the last layer. The result has the same
    distribution as from moving all weights, and chains mix better, since the last layer never slows them down.

    Attributes:
        moved: the problem of the weights that chains move, with all data in one batch.
        whole: the problem of all weights.
        exact: completes draws, where a last layer is integrated out.
    """

    moved: Problem
    whole: Problem
    exact: ExactLastLayer | None

    @classmethod
    def of(cls, posterior: Posterior, data: Any, unpack: Unpack | None) -> ChainTarget:
        """The target for this posterior's own model, with its scales and noise as they are.

        Raises:
            ValueError: no prior, no data where they are needed, or data that are too large or change.
        """
        whole, sampler = whole_problem(posterior, data, unpack), posterior.exact_layer
        if sampler is None or not isinstance(sampler.likelihood, LinearGaussian):
            return cls(whole, whole, None)
        layout, inputs = sampler.earlier.layout, sampler.all_inputs()
        args, kwargs = as_call(inputs)
        examples = TensorData(inputs, sampler.targets, len(sampler.targets))
        strategy = suitable_strategy(layout, *args, **kwargs)
        return cls(Problem(layout, examples, sampler.likelihood, sampler.prior, strategy), whole, sampler)

    def start(self, posterior: Posterior, chains: int, rng: torch.Generator) -> Tensor:  # (C, m')
        return posterior.sample(chains, rng) if self.exact is None else self.exact.earlier.sample(chains, rng)

    def completed(self, draws: Tensor, rng: torch.Generator) -> Tensor:  # (T, C, m') -> (T, C, m)
        """Weights of the whole network: the moved ones, with a draw of the last layer where it was left out."""
        if self.exact is None:
            return draws
        whole: Tensor = self.exact.completed(draws.flatten(0, 1), rng)
        return whole.reshape(*draws.shape[:2], -1)


def whole_problem(posterior: Posterior, data: Any, unpack: Unpack | None) -> Problem:
    """log p(D, theta) of all weights of the network, on all data as one batch."""
    prior, (layout, likelihood) = posterior.prior, posterior.of_all_weights()
    if prior is None:
        raise ValueError("posterior: expected one with a prior, got none; log p(D, theta) needs log p(theta).")
    sampler = posterior.exact_layer
    if sampler is not None:
        inputs = sampler.all_inputs()
        prior = _whole_prior(sampler)
        inputs = inputs if sampler.likelihood.counts is None else (inputs, sampler.likelihood.counts)
        whole = TensorData(inputs, sampler.targets, len(sampler.targets))
    elif data is None:
        raise ValueError("data: expected the examples that the posterior was fitted to, got none; pass (X, y).")
    else:
        whole = _gathered(as_data(data, device=layout.device, dtype=layout.dtype, unpack=unpack))
    args, kwargs = as_call(whole.inputs)
    strategy = suitable_strategy(layout, *args, **kwargs)
    return Problem(layout, whole, likelihood, prior, strategy)


def work_on_example(problem: Problem) -> float:
    """Multiplications of the network on one example."""
    inputs, targets = problem.data.first()
    some = min(8, len(targets))
    args, kwargs = as_call(pytree.tree_map(lambda leaf: leaf[:some], inputs))
    return multiplications(problem.layout, *args, **kwargs) / some


def _gathered(data: Any) -> TensorData:
    try:
        whole = gathered(data)
    except NotGatheredError as reason:
        raise ValueError(
            f"data: expected the same examples at every epoch, up to {MEMORY / 1e6:.0f} MB, but {reason}; pass (X, y) "
            "tensors of fewer examples, or use the posterior as it is."
        ) from reason
    size = sum(leaf.numel() * leaf.element_size() for leaf in pytree.tree_leaves((whole.inputs, whole.targets)))
    if size > MEMORY:
        raise ValueError(
            f"data: expected at most {MEMORY / 1e6:.0f} MB, for every step uses all of them, got {size / 1e6:,.0f} MB; "
            "use the posterior as it is."
        )
    return whole


def _whole_prior(sampler: ExactLastLayer) -> Prior:
    """The prior of all weights, from the two parts an exact last layer splits it into, with its scales as they are."""
    layout, marginal = sampler.layout, sampler.likelihood
    assert isinstance(sampler.prior, Normal | Relevance)  # others do not split
    scales = torch.empty(layout.num_params, dtype=layout.dtype, device=layout.device)
    last = [slot.name.rpartition(".")[0] == sampler.last for slot in layout.slots]
    each = zip(layout.slots, last, strict=True)
    chosen = torch.cat([torch.full((slot.numel,), own, device=layout.device) for slot, own in each])
    scales[~chosen] = sampler.prior.scale().detach()
    if marginal.prior is not None:
        scales[chosen] = marginal.prior.scale().detach()
    else:
        assert marginal.log_scale is not None
        scales[chosen] = marginal.log_scale.detach().exp()
    return Normal(scales).to(layout.device, layout.dtype)
