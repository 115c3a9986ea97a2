"""What is diagnosed: the parts of a fitted posterior, `Effort` (how much work to put in), and draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from livi import checks
from livi.family.family import Draw, Family, WeightSampler
from livi.family.generators import Generator
from livi.family.implicit import ImplicitPosterior
from livi.family.noise import Noise
from livi.network import Layout, as_call
from livi.posterior.diagnostics.estimate import NUM_BATCHES
from livi.posterior.fitted import Fitted


@dataclass(frozen=True)
class Effort:
    """How much work the expensive checks may do.

    Args:
        num_latents: latents per component at which the entropy estimators are compared, and the local rank is taken.
        num_densities: weight vectors whose density log q is estimated, shared by the components.
        num_importance: importance samples for each of them.
        num_starts: random places, besides the true one, from which a search for further latents behind each of them
            begins. More find more folds of the generator.
        num_shapes: weights whose marginal density is examined when none are named.
        max_exact_dim: largest latent_dim for the exact log-determinant, which takes O(d^3 + m d^2) for each latent.
        max_density_dim: largest latent_dim for log q, which takes up to 20 dense Jacobians for each vector and start.
        max_weights: weights that enter correlations, ranks and shapes; of more, a random choice within each layer.
        max_matrix: largest number of weights whose whole correlation matrix is kept.
        num_prior: weight vectors drawn from the prior, for the bound of a posterior that has learned nothing.
        mean_field_steps: steps of a mean-field Gaussian's optimisation, for its bound; 0 leaves it out.
        max_mean_field: largest number of weights for it.
    """

    num_latents: int = 4
    num_densities: int = 64
    num_importance: int = 128
    num_starts: int = 3
    num_shapes: int = 6
    max_exact_dim: int = 1024
    max_density_dim: int = 256
    max_weights: int = 10_000
    max_matrix: int = 512
    num_prior: int = 128
    mean_field_steps: int = 300
    max_mean_field: int = 200_000

    def __post_init__(self) -> None:
        counts = ("num_latents", "num_densities", "num_importance", "num_starts", "num_shapes", "max_weights")
        for name in (*counts, "num_prior"):
            checks.positive_int(name, getattr(self, name))
        if self.mean_field_steps != 0:
            checks.positive_int("mean_field_steps", self.mean_field_steps)


@torch.no_grad()
def batches(sampler: WeightSampler, num_samples: int, rng: torch.Generator | None) -> Iterator[Draw]:
    """At least num_samples draws, in at most NUM_BATCHES independent batches of one size that every component shares
    equally."""
    components = sampler.num_components if isinstance(sampler, Family) else 1
    count = max(1, min(NUM_BATCHES, num_samples // components))
    size = -(-num_samples // (count * components)) * components
    for _ in range(count):
        batch = sampler.draw(size, rng) if isinstance(sampler, Family) else Draw(sampler.sample(size, rng))
        _check_draws(batch.theta, size, sampler.layout)
        yield batch


def generators_of(posterior: ImplicitPosterior) -> list[tuple[Generator, Tensor]]:
    """Each component's generator and noise standard deviation, () or (m,)."""
    pairs = []
    for generator, noise in zip(posterior.generators, posterior.noises, strict=True):
        assert isinstance(generator, Generator)
        assert isinstance(noise, Noise)
        pairs.append((generator, noise.std().detach()))
    return pairs


def check_subject(posterior: Any) -> None:
    if not isinstance(posterior, Fitted):
        missing = [n for n in ("sampler", "likelihood", "prior", "buffers") if not hasattr(posterior, n)]
        raise TypeError(
            f"posterior: expected what livi.fit returns, got {type(posterior).__name__} without {', '.join(missing)}."
        )


def fit_estimator(posterior: Fitted) -> str:
    """The class of the entropy estimator that the posterior was fitted with, where a plan says so."""
    plan = getattr(posterior, "plan", {})
    return str(plan.get("entropy", "")).partition("(")[0] if isinstance(plan, Mapping) else ""


def num_fitted(posterior: Fitted) -> int | None:
    """How many examples the posterior was fitted to, where a plan says so."""
    plan = getattr(posterior, "plan", {})
    found = plan.get("num_data") if isinstance(plan, Mapping) else None
    return found if isinstance(found, int) else None


def check_data(inputs: Any, targets: Any, num_data: int | None) -> int:
    """The number of examples in the whole data set: those given, where nothing else is said."""
    if not isinstance(targets, Tensor):
        raise TypeError(f"targets: expected a tensor, an array or a list of numbers, got {type(targets).__name__}.")
    if targets.ndim < 1 or len(targets) < 1:
        raise ValueError(f"targets: expected at least one example, got shape {tuple(targets.shape)}.")
    args, kwargs = as_call(inputs)
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor) and value.ndim and len(value) == len(targets):
            break
    else:
        raise ValueError(
            f"inputs: expected a tensor with the targets' {len(targets)} rows, or a tuple or dict of the module's "
            f"arguments that holds one, got {_described(inputs)}."
        )
    if num_data is None:
        return len(targets)
    if checks.positive_int("num_data", num_data) < len(targets):
        raise ValueError(
            f"num_data: expected at least the {len(targets)} examples given, got {num_data}; "
            "it is the size of the whole data set."
        )
    return num_data


def _described(inputs: Any) -> str:
    return f"shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else type(inputs).__name__


def _check_draws(theta: Any, size: int, layout: Layout) -> None:
    expected = (size, layout.num_params)
    if not isinstance(theta, Tensor) or theta.shape != expected:
        got = tuple(theta.shape) if isinstance(theta, Tensor) else type(theta).__name__
        raise ValueError(f"sampler: expected samples of shape {expected}, got {got}.")
    broken = int((~torch.isfinite(theta)).any(1).sum())
    if broken:
        raise ValueError(
            f"sampler: expected finite weights, got NaN or inf in {broken} of {size} draws; "
            "fit again with smaller learning rates."
        )
