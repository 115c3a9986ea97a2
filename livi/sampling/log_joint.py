"""log p(D, theta) and its gradient for rows of weights, on all examples: the target of Markov chains."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from livi.model.data import Batch
from livi.model.problem import Problem, scaled_up
from livi.network import Vmap, as_call
from livi.network.dense import dense_layers
from livi.network.dense_gradient import DenseGradient
from livi.sampling.chain_target import work_on_example
from livi.sampling.chains import Differentiated, differentiated

BLOCK = 1e8  # multiplications, over all chains, for the examples that pass through the network at a time


def differentiated_joint(problem: Problem, chains: int) -> Differentiated:
    """log p(D, theta) and its gradient for rows of weights, examples in blocks where they would take much memory.

    With BatchNorm, which normalises by all examples, there is one block. Where the last layer is integrated out, all
    examples belong together too, and chains are taken in blocks instead.
    """
    inputs, targets = problem.data.first()
    total = len(targets)
    work = work_on_example(problem)
    if problem.likelihood.needs_all_examples:
        return _in_turn(
            differentiated(lambda theta: torch.stack(problem.on_batch(theta, (inputs, targets))).sum(0)),
            BLOCK / (total * work),
        )
    rows = max(1, int(BLOCK / (chains * work)))
    rows = total if problem.layout.batch_norms else rows
    parts = [slice(first, min(first + rows, total)) for first in range(0, total, rows)]
    blocks = [(pytree.tree_map(lambda leaf, part=part: leaf[part], inputs), targets[part]) for part in parts]
    return written_out(problem, blocks) or by_autograd(problem, blocks)


def by_autograd(problem: Problem, blocks: list[Batch]) -> Differentiated:
    """log p(D, theta) and its gradient for any network, likelihood and prior."""
    total = sum(len(targets) for _, targets in blocks)

    def both(theta: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = torch.zeros_like(theta[:, 0]), torch.zeros_like(theta)
        with torch.enable_grad():
            leaf = theta.detach().requires_grad_()
            for block in blocks:
                fit, penalty = problem.on_batch(leaf, block)  # the fit scaled up from the block to all examples
                part = (fit + penalty) * (len(block[1]) / total)
                gradient += torch.autograd.grad(part.sum(), leaf)[0]
                value += part.detach()
        return value, gradient

    return both


def written_out(problem: Problem, blocks: list[Batch]) -> Differentiated | None:
    """The same for networks of linear layers, by formulas in place of autograd; None for other networks."""
    if problem.strategy != Vmap() or problem.autocast is not None:
        return None
    passes: list[tuple[DenseGradient, Tensor]] = []
    for inputs, targets in blocks:
        args, kwargs = as_call(inputs)
        layers = dense_layers(problem.layout, args, kwargs)
        if layers is None:
            return None
        passes.append((DenseGradient(problem.layout, layers, *args), targets))
    likelihood, prior = problem.likelihood, problem.prior.differentiated()
    repeated = scaled_up(1.0 / sum(len(targets) for _, targets in blocks), problem.data.num_data)

    @torch.no_grad()
    def both(theta: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = prior(theta)
        for network, targets in passes:
            outputs, recorded = network.outputs(theta)
            fit, slope = likelihood.log_prob_with_gradient(outputs, targets)
            value = value.add(fit.sum(1), alpha=repeated)
            gradient = gradient.add(network.gradient(recorded, slope), alpha=repeated)
        return value, gradient

    return both


def _in_turn(both: Differentiated, most: float) -> Differentiated:
    """The same, for at most so many chains at a time."""
    size = max(1, int(most))

    def parts(theta: Tensor) -> tuple[Tensor, Tensor]:
        values, gradients = zip(*(both(rows) for rows in theta.split(size)), strict=True)
        return torch.cat(values), torch.cat(gradients)

    return parts
