"""Refitting the likelihood's own parameters, such as its noise, for one network of several that shared them.

Networks fitted side by side share one likelihood, whose noise is the best for all of them together: too large for the
best one alone.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi.inference.recipe import cosine
from livi.model.data import Batch
from livi.model.likelihoods import Likelihood
from livi.model.problem import Problem

STEPS, RATE = 200, 0.1  # of Adam, whose rate falls to zero by a cosine: enough for a logarithm to change by ten
BATCHES = 40
MEMORY = 256_000_000  # bytes of outputs and targets

Limits: TypeAlias = list[tuple[nn.Parameter, float | Tensor]]


def fit_noise(problem: Problem, theta: Tensor, limits: Limits) -> None:  # (m,)
    """Maximise p(D | theta) over the parameters of `learned_beside`; where that fails they stay as they are.

    Args:
        limits: below which parameters must not fall, as `Likelihood.lower_limits` gave them before the MAP fits.

    Cost: the network's outputs at one weight vector on at most 40 batches, or 256 MB of them, and 200 steps on those.
    """
    learned = learned_beside(problem.likelihood)
    if not learned:
        return
    seen = _outputs_and_targets(problem, theta)
    before = [parameter.detach().clone() for parameter in learned]
    optimiser = torch.optim.Adam(learned, RATE, betas=(0.8, 0.9))
    first = last = _backward(problem.likelihood, seen)
    for step in range(STEPS):
        optimiser.param_groups[0]["lr"] = RATE * cosine(step / STEPS)
        optimiser.step()
        with torch.no_grad():
            for parameter, least in limits:
                parameter.clamp_(min=least)
        optimiser.zero_grad()
        last = _backward(problem.likelihood, seen)
    optimiser.zero_grad()
    if not bool(last <= first):
        with torch.no_grad():
            for parameter, value in zip(learned, before, strict=True):
                parameter.copy_(value)


def learned_beside(likelihood: Likelihood) -> list[nn.Parameter]:
    """The likelihood's own learned parameters; none where its noise is given, or an output of the network."""
    return [parameter for parameter in likelihood.parameters() if parameter.requires_grad]


def _backward(likelihood: Likelihood, seen: list[Batch]) -> Tensor:  # ()
    """The mean negative log likelihood; its gradients are accumulated."""
    count, total = sum(len(targets) for _, targets in seen), seen[0][1].new_zeros(())
    for outputs, targets in seen:
        loss = -likelihood.log_prob(outputs, targets).sum() / count
        loss.backward()
        total = total.to(loss) + loss.detach()
    return total


@torch.no_grad()
def _outputs_and_targets(problem: Problem, theta: Tensor) -> list[Batch]:
    """The network's outputs and the targets of some batches; as one batch where every output has a row per example."""
    found: list[Batch] = []
    size = 0
    for inputs, targets in problem.batches(BATCHES):
        found.append((problem.outputs(theta[None], inputs), targets))
        leaves = [leaf for leaf in pytree.tree_leaves(found[-1]) if isinstance(leaf, Tensor)]
        size += sum(leaf.numel() * leaf.element_size() for leaf in leaves)
        if size > MEMORY:
            break
    if not all(_has_rows(outputs, len(targets)) for outputs, targets in found):
        return found
    try:
        outputs = pytree.tree_map(lambda *leaves: torch.cat(leaves, 1), *(outputs for outputs, _ in found))
        return [(outputs, torch.cat([targets for _, targets in found]))]
    except (RuntimeError, ValueError):  # padded to different lengths
        return found


def _has_rows(outputs: Any, count: int) -> bool:
    return all(isinstance(leaf, Tensor) and leaf.shape[1:2] == (count,) for leaf in pytree.tree_leaves(outputs))
