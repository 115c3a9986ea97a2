"""Deep ensembles: MAP estimates from different starts, taken as equally likely samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from livi import checks
from livi.baselines.mean_field import Constant
from livi.baselines.options import refuse
from livi.entropy import Exact
from livi.fitted import Posterior
from livi.layout import Layout, estimate_statistics, has_batch_norm
from livi.likelihoods import Likelihood
from livi.noise import FixedNoise
from livi.prediction import FunctionDraws, Prediction
from livi.spec import Specified
from livi.training import Plan, map_weights, plan


class Ensemble(Specified, nn.Module):
    """K weight vectors, each as likely as the others.

    Args:
        layout: which weights, in which order. Moving or converting the ensemble moves its module along.
        theta: the members, one a row.

    >>> members = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> Ensemble(Layout(nn.Linear(2, 1)), members).sample(4, torch.Generator().manual_seed(0)).sum(0)
    tensor([10., 14., 18.])
    """

    def __init__(self, layout: Layout, theta: Tensor) -> None:  # (K, m)
        super().__init__()
        checks.matrix("theta", theta, layout.num_params)
        self.layout = layout
        self.theta: Tensor
        self.register_buffer("theta", theta.detach().clone().to(layout.device, layout.dtype))

    @property
    def num_members(self) -> int:
        return self.theta.shape[0]

    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (S, m)
        """Members in equal shares; a remainder goes to randomly chosen ones."""
        return self.theta[self.choose(num_samples, rng)]

    def choose(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (S,)
        """The members' numbers in a random order, over and over."""
        checks.positive_int("num_samples", num_samples)
        order = torch.randperm(self.num_members, generator=rng, device=rng.device if rng else None)
        return order.repeat(-(-num_samples // self.num_members))[:num_samples].to(self.theta.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self.layout.module._apply(fn, recurse)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]


class EnsemblePosterior(Posterior):
    """An ensemble of networks with BatchNorm, of which each has its own statistics: `buffers` have a leading axis K.

    Members have little in common but their outputs; statistics averaged over them would suit none.
    """

    sampler: Ensemble

    def functions(self, num_samples: int, rng: torch.Generator | None = None) -> FunctionDraws:
        return self._chosen(num_samples, rng).functions(num_samples)

    def predict(
        self, inputs: Any, *, num_samples: int = 100, rng: torch.Generator | None = None, **options: Any
    ) -> Prediction:
        return self._chosen(num_samples, rng).predict(inputs, num_samples=num_samples, **options)

    def _chosen(self, num_samples: int, rng: torch.Generator | None) -> Posterior:
        """A posterior that gives these members, with their statistics, in this order."""
        rows = self.sampler.choose(num_samples, rng)
        buffers = {name: values[rows] for name, values in self.buffers.items()}
        return Posterior(_InOrder(self.layout, self.sampler.theta[rows]), self.likelihood, self.prior, buffers=buffers)


@dataclass(frozen=True)
class _InOrder:
    layout: Layout
    theta: Tensor  # (S, m)

    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # noqa: ARG002
        return self.theta[:num_samples]


def fit_ensemble(
    net: nn.Module, data: Any, likelihood: Likelihood, *, members: int = 5, steps: int | None = None, **options: Any
) -> Posterior:
    """`members` MAP estimates trained side by side, none selected; the first starts at the network's own weights.

    All share one likelihood: an observation noise that is learned is the best for all members together.

    Args:
        steps: of each MAP fit, in place of `recipe.map_steps`.
        **options: as in `livi.training.plan`, and `seed`. `progress` is accepted, and there is none.
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
    seed = options.get("seed", 0)
    options = {name: value for name, value in options.items() if name not in ("progress", "checkpoint_every")}
    # The plan prepares layout, data, prior and likelihood as for any fit; of its posterior nothing is used.
    cheapest: dict[str, Any] = {"generator": Constant.for_layout, "noise": lambda _: FixedNoise(), "entropy": Exact()}
    cheapest["last_layer"] = "sampled"
    prepared = plan(net, data, likelihood, **(options | cheapest))
    recipe = prepared.recipe
    recipe = replace(recipe, map_restarts=members or recipe.map_restarts, map_steps=steps or recipe.map_steps)
    bound = prepared.bound
    starts = map_weights(
        prepared.layout, bound.likelihood, bound.prior, prepared.data, recipe, seed=seed, strategy=prepared.strategy
    )
    return replace(prepared, recipe=recipe), starts.theta, starts.log_joint


def as_posterior(prepared: Plan, theta: Tensor, joint: Tensor, method: str) -> Posterior:
    """A posterior of these members, with BatchNorm statistics for each."""
    bound, layout = prepared.bound, prepared.layout
    kind, buffers = Posterior, dict[str, Tensor]()
    if has_batch_norm(layout.module):
        seen = [inputs for (inputs, _), _ in zip(prepared.data.epoch(0), range(20), strict=False)]
        buffers = estimate_statistics(layout, theta, seen, per_sample=len(theta) > 1)
        kind = EnsemblePosterior if len(theta) > 1 else Posterior
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
    return kind(
        Ensemble(layout, theta).requires_grad_(False),
        bound.likelihood.requires_grad_(False),
        bound.prior.requires_grad_(False),
        buffers=buffers,
        plan=facts,
    )
