"""Deep ensembles: MAP estimates from different starts, taken as equally likely samples."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor, nn

from livi import checks
from livi.family.ensemble import Ensemble
from livi.inference import Recipe, Starts, best_map_weights, map_weights
from livi.inference.rules import Size, default_recipe
from livi.model.likelihoods import Likelihood
from livi.model.problem import Problem
from livi.network import estimate_statistics
from livi.posterior import Posterior
from livi.rivals.options import refuse

_REFUSED = (
    *("generator", "noise", "entropy", "latents", "components", "family", "start"),
    *("checkpoint", "log_dir", "validation", "validate_every", "callbacks", "last_layer"),
)
_IGNORED = {*_REFUSED, "progress", "checkpoint_every", "capture", "autocast", "seed", "recipe"}


def fit_ensemble(
    net: nn.Module, data: Any, likelihood: Likelihood, *, members: int = 5, steps: int | None = None, **options: Any
) -> Posterior:
    """`members` MAP estimates trained side by side, none selected; the first starts at the network's own weights.

    All share one likelihood: an observation noise that is learned is the best for all members together.

    Args:
        steps: of each MAP fit, in place of `recipe.map_steps`.
        **options: as in `livi.Problem.of`, and `recipe`, `seed`, `autocast`, `capture`. `progress` is accepted, and
            there is none; of `last_layer` only "sampled", which all layers are.
    """
    checks.positive_int("members", members)
    fits = MapFits.of("fit_ensemble", net, data, likelihood, members, steps, options)
    return as_posterior(fits.problem, fits.recipe, fits.starts(), "ensemble")


@dataclass(frozen=True)
class MapFits:
    """What MAP fits are of, the recipe that says how many and how long, and how they are looked for."""

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
        """From what `function` is given; the recipe has number and steps where they are None.

        Raises:
            TypeError: an option that a MAP fit has no use for, such as a last layer that is not "sampled" like all
                others.
        """
        sampled = options.get("last_layer") == "sampled"
        refuse(function, options | {"last_layer": None} if sampled else options, *_REFUSED)
        problem = Problem.of(
            net, data, likelihood, **{name: value for name, value in options.items() if name not in _IGNORED}
        )
        problem = replace(problem, autocast=options.get("autocast"))
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
        """All of them, best first."""
        return map_weights(self.problem, self.recipe, seed=self.seed, capture=self.capture)

    def best(self) -> Starts:
        """The best alone, with a noise of its own."""
        return best_map_weights(self.problem, self.recipe, seed=self.seed, capture=self.capture)


def as_posterior(problem: Problem, recipe: Recipe, starts: Starts, method: str) -> Posterior:
    """A posterior of these members, with BatchNorm statistics for each."""
    layout = problem.layout
    buffers = dict[str, Tensor]()
    if layout.batch_norms:
        seen = [inputs for (inputs, _), _ in zip(problem.data.epoch(0), range(20), strict=False)]
        buffers = estimate_statistics(layout, starts.theta, seen, per_sample=True)
    facts = {
        "method": method,
        "members": len(starts.theta),
        "num_params": layout.num_params,
        "num_data": problem.data.num_data,
        "likelihood": type(problem.likelihood).__name__,
        "prior": type(problem.prior).__name__,
        "recipe": asdict(recipe),
        "gradients": recipe.map_restarts * recipe.map_steps,
        "log_joint": starts.log_joint.tolist(),
    }
    return Posterior(
        Ensemble(layout, starts.theta).requires_grad_(False),
        problem.likelihood.requires_grad_(False),
        problem.prior.requires_grad_(False),
        buffers=buffers,
        plan=facts,
    )
