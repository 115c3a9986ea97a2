"""A learned noise is refitted while Markov chains warm up, by Monte Carlo EM, and fixed from then on.

The noise of a variational fit is too large where the fit is worse than the chains are (docs/benchmarks/polish.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from livi.model.likelihoods import Likelihood
from livi.model.problem import Problem

CHANGE_EVERY = 3  # steps of the warm-up
NOISE_RATE = 0.1  # largest change of the noise's logarithm at a time
CHAINS_AT_ONCE = 4  # whose gradients are computed together


def learned_noise(likelihood: Likelihood) -> list[nn.Parameter]:
    """Parameters of the likelihood itself; none where its noise was given."""
    return list(likelihood.observed.parameters())


@contextmanager
def restored(parameters: list[nn.Parameter]) -> Iterator[None]:
    """On leaving, put these parameters back as they were, since the polished posterior must not change."""
    before = [(parameter.detach().clone(), parameter.requires_grad, parameter.grad) for parameter in parameters]
    try:
        yield
    finally:
        for parameter, (value, learned, gradient) in zip(parameters, before, strict=True):
            parameter.data.copy_(value)
            parameter.requires_grad_(learned).grad = gradient


def following(problem: Problem, noise: list[nn.Parameter], warming: int) -> Callable[[int, Tensor], bool]:
    """A function that moves the noise towards the chains' highest mean log likelihood, by ever smaller steps."""
    learned = [parameter.requires_grad_() for parameter in noise]
    optimiser = torch.optim.Adam(learned, NOISE_RATE, betas=(0.8, 0.9))  # short averages: the chains still move
    batch, limits = problem.data.first(), problem.likelihood.lower_limits()

    def adjust(step: int, theta: Tensor) -> bool:
        if step % CHANGE_EVERY != 0:
            return False
        optimiser.param_groups[0]["lr"] = NOISE_RATE * (1.0 - step / warming)
        optimiser.zero_grad()
        for rows in theta.split(CHAINS_AT_ONCE):
            with torch.enable_grad():
                (-problem.on_batch(rows, batch)[0].sum() / len(theta)).backward()
        optimiser.step()
        with torch.no_grad():
            for parameter, least in limits:
                parameter.clamp_(min=least)
        return True

    return adjust
