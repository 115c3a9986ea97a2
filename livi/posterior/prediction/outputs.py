"""Predictions under a likelihood of which only log_prob is known, such as a user's own function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from livi.model.likelihoods import Likelihood
from livi.posterior.prediction.mixture import Targets, check_targets, differentiable_in, log_mean_exp, without_last_one


@dataclass(frozen=True, eq=False)
class SampledOutputs:
    """The network's outputs at S weight samples, and the likelihood of targets given them.

    `outputs` is what the network returns, with a leading sample axis: a tensor, or a dict or tuple of them, in which
    case `mean` and `std` have the same structure. The likelihood is kept, not copied: `log_prob` follows its
    parameters if they are trained further.

    >>> import torch
    >>> from livi.model.likelihoods import FunctionLikelihood
    >>> laplace = FunctionLikelihood(lambda out, y: -(out.squeeze(-1) - y).abs() - torch.log(torch.tensor(2.0)))
    >>> prediction = SampledOutputs(torch.zeros(3, 2, 1), laplace)
    >>> prediction.mean, prediction.log_prob(torch.zeros(2))
    (tensor([0., 0.]), tensor([-0.6931, -0.6931]))
    """

    outputs: Any  # (S, B, ...)
    likelihood: Likelihood

    @property
    def mean(self) -> Any:  # (B, ...)
        """Average output; a last axis of one is dropped."""
        return pytree.tree_map(lambda leaf: without_last_one(leaf).mean(0), self.outputs)

    @property
    def std(self) -> Any:  # (B, ...)
        """Spread of the outputs over weight samples (of the S samples themselves: 0 for one)."""
        return pytree.tree_map(lambda leaf: without_last_one(leaf).std(0, correction=0), self.outputs)

    def log_prob(self, targets: Targets) -> Tensor:  # (B, ...) -> (B,)
        """log 1/S sum_s p(y | outputs_s) for each example."""
        leaves = [leaf for leaf in pytree.tree_leaves(self.outputs) if isinstance(leaf, Tensor)]
        with differentiable_in(leaves):
            return log_mean_exp(self.likelihood.log_prob(self.outputs, check_targets(targets, leaves[0].device)))

    def __repr__(self) -> str:
        shapes = pytree.tree_map(lambda leaf: tuple(leaf.shape), self.outputs)
        return f"SampledOutputs({shapes}, {type(self.likelihood).__name__})"
