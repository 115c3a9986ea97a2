"""What rivals that go on from a MAP estimate share: where they start, and the posterior that they end with."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from livi.family.family import WeightSampler
from livi.inference import Recipe
from livi.inference.result import calibration_inputs
from livi.model.data import Batch
from livi.model.likelihoods import Likelihood
from livi.model.problem import Problem
from livi.posterior.posterior import Posterior
from livi.rivals.ensemble import MapFits


class Start(NamedTuple):
    """A MAP estimate of a problem, whose likelihood has the noise that suits it best."""

    problem: Problem
    recipe: Recipe
    theta: Tensor  # (m,)

    @property
    def gradients(self) -> int:
        """Of the MAP fits."""
        return self.recipe.map_restarts * self.recipe.map_steps


def best_map(function: str, net: nn.Module, data: Any, likelihood: Likelihood, options: dict[str, Any]) -> Start:
    """The best of `recipe.map_restarts` MAP fits, as `fit_map` has it."""
    fits = MapFits.of(function, net, data, likelihood, None, None, options)
    return Start(fits.problem, fits.recipe, fits.best().theta[0])


def loss_gradient(
    problem: Problem, theta: Tensor, batch: Batch, *, recorded: bool = False, prior: bool = True
) -> Tensor:  # (m,)
    """Of -log p(D, theta) / N, from one batch; `recorded`, to be differentiated again with respect to theta.

    Without `prior`, of -log p(D | theta) / N.
    """
    row = theta if recorded else theta.detach().requires_grad_()
    fit, penalty = problem.on_batch(row[None], batch)
    loss = -(fit + penalty if prior else fit).sum() / problem.data.num_data
    return torch.autograd.grad(loss, row, create_graph=recorded)[0]


def as_posterior(
    start: Start,
    sampler: WeightSampler,
    method: str,
    *,
    gradients: int,
    buffers: dict[str, Tensor] | None = None,
    **facts: Any,
) -> Posterior:
    """A posterior of these weights; BatchNorm statistics are each draw's own, unless there are `buffers` for all.

    Args:
        gradients: of the log joint density, at one weight vector and on one batch, that were taken behind the start.
        **facts: further ones, as JSON-able values.
    """
    problem = start.problem
    measured = buffers is None and bool(problem.layout.batch_norms)
    plan = {
        "method": method,
        "num_params": problem.layout.num_params,
        "num_data": problem.data.num_data,
        "likelihood": type(problem.likelihood).__name__,
        "prior": type(problem.prior).__name__,
        "recipe": asdict(start.recipe),
        "gradients": start.gradients + gradients,
    }
    return Posterior(
        sampler,
        problem.likelihood.requires_grad_(False),
        problem.prior.requires_grad_(False),
        buffers=buffers,
        calibration=calibration_inputs(problem.data) if measured else None,
        plan=plan | facts,
    )
