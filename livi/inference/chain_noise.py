"""A noise that was learned, following Markov chains: Monte Carlo EM during their warm-up, fixed from then on.

That of a variational fit is too large where it fits less well than the chains do (docs/benchmarks/polish.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from livi.family.last_layer import Marginal
from livi.model.likelihoods import Likelihood
from livi.model.problem import Problem

FOLLOWED = 3  # steps of the warm-up from one change of a learned noise to the next
NOISE_RATE = 0.1  # by which its logarithm changes at most
TOGETHER = 4  # chains that say in which direction, at a time


def learned_noise(likelihood: Likelihood) -> list[nn.Parameter]:
    """What was learned beside the network's outputs; nothing where it was given."""
    return list((likelihood.observed if isinstance(likelihood, Marginal) else likelihood).parameters())


@contextmanager
def restored(parameters: list[nn.Parameter]) -> Iterator[None]:
    """Afterwards they are as before: the posterior that is polished stays as it is."""
    before = [(parameter.detach().clone(), parameter.requires_grad, parameter.grad) for parameter in parameters]
    try:
        yield
    finally:
        for parameter, (value, learned, gradient) in zip(parameters, before, strict=True):
            parameter.data.copy_(value)
            parameter.requires_grad_(learned).grad = gradient


def following(problem: Problem, noise: list[nn.Parameter], warming: int) -> Callable[[int, Tensor], bool]:
    """Steps of the noise towards the highest mean log likelihood of the chains, ever smaller ones: Monte Carlo EM."""
    learned = [parameter.requires_grad_() for parameter in noise]
    optimiser = torch.optim.Adam(learned, NOISE_RATE, betas=(0.8, 0.9))  # short memories: chains are on their way
    batch, limits = problem.data.first(), problem.likelihood.lower_limits()

    def adjust(step: int, theta: Tensor) -> bool:
        if step % FOLLOWED != 0:
            return False
        optimiser.param_groups[0]["lr"] = NOISE_RATE * (1.0 - step / warming)
        optimiser.zero_grad()
        for rows in theta.split(TOGETHER):
            with torch.enable_grad():
                (-problem.on_batch(rows, batch)[0].sum() / len(theta)).backward()
        optimiser.step()
        with torch.no_grad():
            for parameter, least in limits:
                parameter.clamp_(min=least)
        return True

    return adjust
