"""What methods that start with MAP fits share: the fits, gradients of the loss, and the `Posterior` they return."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, ParamSpec

import torch
from torch import Tensor, nn

from livi import checks
from livi.family.ensemble import Ensemble
from livi.family.family import WeightSampler
from livi.inference import Recipe, Starts, best_map_weights, map_weights
from livi.inference.options import fields_of_recipe
from livi.inference.result import CALIBRATION, calibration_inputs
from livi.inference.rules import Size, default_recipe
from livi.model.data import Batch
from livi.model.likelihoods import Likelihood
from livi.model.problem import Problem
from livi.posterior.posterior import Posterior
from livi.posterior.prediction.chunks import measure_statistics
from livi.rivals.options import OF_PROBLEM, refuse

P = ParamSpec("P")
_REFUSED = (
    *("generator", "noise", "entropy", "latents", "components", "family", "start"),
    *("checkpoint", "log_dir", "validation", "validate_every", "callbacks", "last_layer"),
)
_IGNORED = {*_REFUSED, "progress", "checkpoint_every", "capture", "autocast", "seed", "recipe"}


def checked(fit: Callable[P, Posterior]) -> Callable[P, Posterior]:
    """Decorate a function that begins with MAP fits: misspelt options are named, with the nearest that there is."""
    own = [one.name for one in inspect.signature(fit).parameters.values() if one.kind is not one.VAR_KEYWORD]

    @functools.wraps(fit)
    def call(*args: P.args, **kwargs: P.kwargs) -> Posterior:
        checks.options(fit.__name__, kwargs, [*own, *OF_PROBLEM, *sorted(_IGNORED)], fields_of_recipe("map_"))
        return fit(*args, **kwargs)

    return call


@dataclass(frozen=True)
class MapFits:
    """MAP fits of a problem: `recipe.map_restarts` of them, `recipe.map_steps` long.

    Attributes:
        capture: as in `livi.inference.fit`.
    """

    problem: Problem
    recipe: Recipe
    seed: int
    capture: bool | None

    @classmethod
    def of(
        cls,
        function: str,
        net: nn.Module,
        data: Any,
        likelihood: Likelihood,
        members: int | None,
        steps: int | None,
        options: dict[str, Any],
    ) -> MapFits:
        """MAP fits from the arguments of `function`; where `members` or `steps` is None, the recipe's number counts.

        Raises:
            TypeError: an option that a MAP fit has no use for, such as a last layer that is not "sampled".
            ValueError: the recipe's temperature is not 1.
        """
        sampled = options.get("last_layer") == "sampled"
        refuse(function, options | {"last_layer": None} if sampled else options, *_REFUSED)
        problem = Problem.of(
            net, data, likelihood, **{name: value for name, value in options.items() if name not in _IGNORED}
        )
        problem = replace(problem, autocast=checks.autocast(options.get("autocast")))
        recipe = (options.get("recipe") or Recipe()).over(default_recipe(Size.of(problem)))
        if recipe.temperature != 1.0:
            raise ValueError(
                f"{function}: expected temperature 1, for MAP fits have no KL term to weigh, got "
                f"{recipe.temperature:g}; leave it out of the recipe, or divide the prior's variance by it."
            )
        recipe = replace(
            recipe,
            map_restarts=recipe.map_restarts if members is None else members,
            map_steps=recipe.map_steps if steps is None else steps,
        )
        return cls(problem, recipe, checks.seed(options.get("seed", 0)), options.get("capture"))

    def starts(self) -> Starts:
        """The weights of all fits, best first."""
        return map_weights(self.problem, self.recipe, seed=self.seed, capture=self.capture)

    def best(self) -> Starts:
        """The weights of the best fit, for which a learned noise is fitted again."""
        return best_map_weights(self.problem, self.recipe, seed=self.seed, capture=self.capture)

    def posterior(self, starts: Starts, method: str) -> Posterior:
        """The posterior in which these members are equally likely."""
        members = Ensemble(self.problem.layout, starts.theta).requires_grad_(False)
        joint = starts.log_joint.tolist()
        return as_posterior(self.problem, self.recipe, members, method, members=len(starts.theta), log_joint=joint)


class Start(NamedTuple):
    """A MAP estimate of a problem; a learned noise in its likelihood is fitted to this estimate."""

    problem: Problem
    recipe: Recipe
    theta: Tensor  # (m,)


def best_map(function: str, net: nn.Module, data: Any, likelihood: Likelihood, options: dict[str, Any]) -> Start:
    """The best of `recipe.map_restarts` MAP fits, as in `fit_map`."""
    fits = MapFits.of(function, net, data, likelihood, None, None, options)
    return Start(fits.problem, fits.recipe, fits.best().theta[0])


def loss_gradient(
    problem: Problem, theta: Tensor, batch: Batch, *, recorded: bool = False, prior: bool = True
) -> Tensor:  # (m,)
    """The gradient of -log p(D, theta) / N, from one batch.

    Args:
        recorded: keep the graph, so that the gradient can be differentiated again; theta must then require gradients.
        prior: False leaves out log p(theta).
    """
    row = theta if recorded else theta.detach().requires_grad_()
    fit, penalty = problem.on_batch(row[None], batch)
    loss = -(fit + penalty if prior else fit).sum() / problem.data.num_data
    return torch.autograd.grad(loss, row, create_graph=recorded)[0]


def as_posterior(
    problem: Problem,
    recipe: Recipe,
    sampler: WeightSampler,
    method: str,
    *,
    gradients: int = 0,
    buffers: dict[str, Tensor] | None = None,
    **facts: Any,
) -> Posterior:
    """The `Posterior` with this sampler, and with the problem, recipe and `facts` in its plan.

    Args:
        gradients: number of gradients of the log joint density taken after the MAP fits, each at one weight vector and
            on one batch.
        buffers: BatchNorm statistics for all draws. By default each draw has its own.
        **facts: further entries of the plan, as values that JSON can hold.
    """
    if buffers is None and isinstance(sampler, Ensemble):
        buffers = own_statistics(problem, sampler.theta)
    measured = buffers is None and problem.layout.batch_norms
    plan = {
        "method": method,
        "num_params": problem.layout.num_params,
        "num_data": problem.data.num_data,
        "steps_per_epoch": problem.data.steps_per_epoch,
        "likelihood": type(problem.likelihood).__name__,
        "prior": type(problem.prior).__name__,
        "recipe": asdict(recipe),
        "gradients": recipe.map_restarts * recipe.map_steps + gradients,
    }
    return Posterior(
        sampler,
        problem.likelihood.requires_grad_(False),
        problem.prior.requires_grad_(False),
        buffers=buffers,
        calibration=calibration_inputs(problem.data) if measured else None,
        plan=plan | facts,
    )


def own_statistics(problem: Problem, theta: Tensor) -> dict[str, Tensor]:  # (S, m), with S rows
    """BatchNorm statistics of networks with these fixed weights, from 512 examples or a training batch if larger.

    So a network trained on all data in one batch predicts with the statistics that it was trained with.
    """
    if not problem.layout.batch_norms:
        return {}
    inputs = calibration_inputs(problem.data, max(CALIBRATION, len(problem.data.first()[1])))
    return measure_statistics(problem.layout, theta, inputs, strategy=problem.strategy)
