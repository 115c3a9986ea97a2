"""Deep ensembles: MAP estimates from different starts, taken as equally likely samples."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from torch import Tensor, nn

from livi import checks
from livi.family.entropy import Exact
from livi.family.noise import FixedNoise
from livi.inference import Plan, map_weights, plan
from livi.inference.start import Joint
from livi.model.likelihoods import Likelihood
from livi.network import estimate_statistics, has_batch_norm
from livi.posterior.posterior import Posterior
from livi.posterior.prediction import Ensemble
from livi.rivals.mean_field import Constant
from livi.rivals.options import refuse

UNUSED = {"progress", "checkpoint_every", "validation", "validate_every", "callbacks"}  # options of `fit` alone


def fit_ensemble(
    net: nn.Module, data: Any, likelihood: Likelihood, *, members: int = 5, steps: int | None = None, **options: Any
) -> Posterior:
    """`members` MAP estimates trained side by side, none selected; the first starts at the network's own weights.

    All share one likelihood: an observation noise that is learned is the best for all members together.

    Args:
        steps: of each MAP fit, in place of `recipe.map_steps`.
        **options: as in `livi.inference.plan`, and `seed`. `progress` is accepted, and there is none.
    """
    checks.positive_int("members", members)
    prepared, theta, joint = map_fits("fit_ensemble", net, data, likelihood, members, steps, options)
    return as_posterior(prepared, theta, joint, "ensemble")


def map_fits(
    function: str,
    net: nn.Module,
    data: Any,
    likelihood: Likelihood,
    members: int | None,
    steps: int | None,
    options: dict[str, Any],
) -> tuple[Plan, Tensor, Tensor]:
    """The plan, and MAP estimates (R, m) with their log joint densities (R,), best first; the recipe has R if None."""
    refuse(function, options, "generator", "noise", "entropy", "latents", "components", "checkpoint", "log_dir")
    refuse(function, options, "validation", "validate_every", "callbacks")
    seed = options.get("seed", 0)
    options = {name: value for name, value in options.items() if name not in UNUSED}
    # The plan prepares layout, data, prior and likelihood as for any fit; of its posterior nothing is used.
    cheapest: dict[str, Any] = {"generator": Constant.for_layout, "noise": lambda _: FixedNoise(), "entropy": Exact()}
    cheapest["last_layer"] = "sampled"
    prepared = plan(net, data, likelihood, **(options | cheapest))
    recipe = prepared.recipe
    recipe = replace(recipe, map_restarts=members or recipe.map_restarts, map_steps=steps or recipe.map_steps)
    joint = Joint(prepared.layout, prepared.bound.likelihood, prepared.bound.prior, prepared.data, prepared.strategy)
    starts = map_weights(joint, recipe, seed=seed)
    return replace(prepared, recipe=recipe), starts.theta, starts.log_joint


def as_posterior(prepared: Plan, theta: Tensor, joint: Tensor, method: str) -> Posterior:
    """A posterior of these members, with BatchNorm statistics for each."""
    bound, layout = prepared.bound, prepared.layout
    buffers = dict[str, Tensor]()
    if has_batch_norm(layout.module):
        seen = [inputs for (inputs, _), _ in zip(prepared.data.epoch(0), range(20), strict=False)]
        buffers = estimate_statistics(layout, theta, seen, per_sample=True)
    facts = {
        "method": method,
        "members": len(theta),
        "num_params": layout.num_params,
        "num_data": prepared.data.num_data,
        "likelihood": type(bound.likelihood).__name__,
        "prior": type(bound.prior).__name__,
        "recipe": asdict(prepared.recipe),
        "log_joint": joint.tolist(),
    }
    return Posterior(
        Ensemble(layout, theta).requires_grad_(False),
        bound.likelihood.requires_grad_(False),
        bound.prior.requires_grad_(False),
        buffers=buffers,
        plan=facts,
    )
