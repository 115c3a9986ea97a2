"""Ordinary training of a network, without livi: Adam, minibatches, weight decay, a cosine schedule."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from livi.inference.recipe import cosine
from livi.model.likelihoods import Categorical, Gaussian, Likelihood, RegressionLikelihood
from livi.posterior.prediction import ClassificationPrediction, RegressionPrediction

MIN_BATCHED = 500  # fewer rows are one batch
BATCH = 64


@dataclass(frozen=True)
class Training:
    """How a plain network is trained.

    Args:
        rate: initial learning rate of Adam, which falls to zero along a cosine.
        weight_decay: that of Adam, on all weights.
    """

    rate: float
    epochs: int
    weight_decay: float = 1e-4


@dataclass(frozen=True)
class PlainNetwork:
    """A trained network in evaluation mode; with a `Gaussian` likelihood also the log noise of each output."""

    net: nn.Module
    log_std: Tensor | None  # (k,)


def train(
    net: nn.Module,
    inputs: Tensor,  # (n, ...)
    targets: Tensor,  # (n,) or (n, k)
    likelihood: Likelihood,
    training: Training,
    *,
    seed: int,
    steps: int | None = None,
) -> PlainNetwork:
    """Train a copy of the network by its mean negative log likelihood.

    The noise of a `Gaussian` is a parameter for each output, without weight decay.

    Args:
        seed: of the order of the rows.
        steps: limit for a trial run.
    """
    net, rng = copy.deepcopy(net).train(), torch.Generator().manual_seed(seed)
    log_std = targets.std(0).log().requires_grad_() if isinstance(likelihood, Gaussian) else None
    noise = [] if log_std is None else [log_std]
    optimiser = torch.optim.Adam(
        [
            {"params": list(net.parameters()), "weight_decay": training.weight_decay},
            {"params": noise, "weight_decay": 0.0},
        ],
        lr=training.rate,
    )
    size = len(inputs) if len(inputs) < MIN_BATCHED else BATCH
    total = training.epochs * math.ceil(len(inputs) / size)
    total = total if steps is None else min(steps, total)
    step = 0
    while step < total:
        for rows in torch.randperm(len(inputs), generator=rng).split(size)[: total - step]:
            for group in optimiser.param_groups:
                group["lr"] = training.rate * cosine(step / total)
            optimiser.zero_grad()
            loss = -_log_prob(net(inputs[rows]), targets[rows], likelihood, log_std).mean()
            loss.backward()
            optimiser.step()
            step += 1
    return PlainNetwork(net.eval(), None if log_std is None else log_std.detach())


def warm_up() -> None:
    """Train something tiny for a step, so that the seconds of no fit include what torch loads at its first step."""
    with torch.random.fork_rng(devices=[]):
        net = nn.Linear(1, 2)
    train(net, torch.ones(2, 1), torch.tensor([0, 1]), Categorical(), Training(1e-3, 1), seed=0)


@torch.no_grad()
def predict_plain(
    members: Sequence[PlainNetwork],
    inputs: Tensor,  # (n, ...)
    likelihood: Likelihood,
) -> ClassificationPrediction | RegressionPrediction:
    """The average of the predictive distributions of these networks.

    Raises:
        TypeError: the likelihood is none of those of the benchmark.
    """
    outputs = torch.stack([member.net(inputs) for member in members]).double()
    if isinstance(likelihood, Categorical):
        return ClassificationPrediction(outputs, likelihood)
    noises = [member.log_std for member in members if member.log_std is not None]
    if noises:
        return RegressionPrediction(outputs, torch.stack(noises).exp()[:, None])
    if isinstance(likelihood, RegressionLikelihood):
        return RegressionPrediction(*likelihood.moments(outputs))
    raise TypeError(
        f"likelihood: expected Categorical, Gaussian or HeteroscedasticGaussian, got {type(likelihood).__name__}; "
        "give the problem one of these."
    )


def _log_prob(
    outputs: Tensor,  # (n, ...)
    targets: Tensor,  # (n, ...)
    likelihood: Likelihood,
    log_std: Tensor | None,  # (k,)
) -> Tensor:  # (n,)
    if log_std is None:
        return likelihood.log_prob(outputs[None], targets)[0]
    unit = (targets - outputs) * (-log_std).exp()
    return (-0.5 * unit.square() - log_std - 0.5 * math.log(2.0 * math.pi)).sum(1)
