"""Fits that integrate the last layer out: whether they are possible, and their plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor, nn

from livi.data import FULL_BATCH, Data, TensorData
from livi.generators import Generator
from livi.last_layer import ExactLastLayer, LinearGaussian, earlier_layout, find_last
from livi.layout import Layout
from livi.likelihoods import Gaussian, Likelihood
from livi.noise import Noise
from livi.objective import Bound
from livi.priors import Normal
from livi.training.plan import Choice, Choices, Last, Plan, default_recipe, made_from, make_plan
from livi.training.recipe import Recipe

CHOICES = ("sampled", "exact", "exact if possible")
BUDGET = 2.5e7  # multiplications for Gram matrices


def exact_last_layer(
    mode: str,
    layout: Layout,
    data: Data,
    likelihood: Likelihood,
    choices: Choices,
    *,
    batch_size: int | None,
    seed: int,
) -> Plan | None:
    """The plan of a fit with an exact last layer, or None where it is sampled.

    Raises:
        ValueError: it was asked for and is not possible; the message says why.
    """
    if mode not in CHOICES:
        raise ValueError(f"last_layer: expected one of {', '.join(map(repr, CHOICES))}, got {mode!r}.")
    if mode == "sampled":
        return None
    found = _found(layout, data, likelihood, choices, batch_size)
    if isinstance(found, _Found) and (mode == "exact" or found.multiplications(data.num_data) <= BUDGET):
        return _plan(found, data, choices, seed)
    if mode == "exact":
        raise ValueError(f"last_layer='exact': expected {found}.")
    return None


@dataclass(frozen=True)
class _Found:
    last: Last
    earlier: Layout
    likelihood: LinearGaussian
    prior: Normal

    def multiplications(self, num_data: int) -> float:
        """What a sample's Gram matrix costs; without end where there are more examples than a full batch has."""
        linear = self.last.layout.module.get_submodule(self.last.name)
        assert isinstance(linear, nn.Linear)
        return num_data * (linear.in_features + 1) ** 2 if num_data <= FULL_BATCH else float("inf")


def _found(
    layout: Layout, data: Data, likelihood: Likelihood, choices: Choices, batch_size: int | None
) -> _Found | str:
    """What an exact last layer needs, or what it would need instead."""
    if type(likelihood) is not Gaussian:
        return f"a Gaussian likelihood, got {type(likelihood).__name__}"
    if not isinstance(data, TensorData) or not isinstance(data.inputs, Tensor):
        return "(X, y) tensors or arrays, all of which a step needs, got batches"
    if batch_size is not None and batch_size < data.num_data:
        return f"all examples at every step, got batches of {batch_size}"
    name = find_last(layout, data.inputs[:1])
    if name is None:
        return (
            "a network without BatchNorm whose output is that of an nn.Linear with a bias, all of its weights "
            "stochastic and others before it, got another"
        )
    earlier = earlier_layout(layout, name)
    try:
        earlier.verify(data.inputs[:1])
    except TypeError:
        return "a last layer whose inputs depend on other stochastic weights, got one that stands alone"
    for name_of, size in (("generator", _size(choices.generator)), ("noise", _size(choices.noise))):
        if size not in (None, earlier.num_params):
            return f"a {name_of} of {earlier.num_params} weights, those before the last layer, got one of {size}"
    prior = made_from(choices.prior, earlier) or Normal(1.0)
    if not isinstance(prior, Normal) or prior.log_scale.numel() not in (1, len(prior.sizes or ())):
        return f"a Normal prior of one scale, or one a layer, got {type(prior).__name__}"
    learned = isinstance(prior.log_scale, nn.Parameter)
    scale = float(prior.log_scale.detach().exp().mean())
    noise = likelihood.obs_std().item() if likelihood.given else None
    marginal = LinearGaussian(
        noise, learned=isinstance(likelihood.log_std, nn.Parameter), scale=scale, learn_scale=learned
    )
    return _Found(Last(layout, name), earlier, marginal.to(layout.device, layout.dtype), prior)


def _plan(found: _Found, data: Data, choices: Choices, seed: int) -> Plan:
    assert isinstance(data, TensorData)
    whole = TensorData(data.inputs, data.targets, data.num_data)
    found.likelihood.start_from(data.targets)
    recipe = choices.recipe or _recipe(found, whole, choices.components)
    choices = replace(choices, prior=found.prior, recipe=recipe)
    made = make_plan(found.earlier, whole, found.likelihood, choices, seed=seed)
    return replace(made, last=found.last)


def _recipe(found: _Found, data: TensorData, components: int) -> Recipe:
    """The default, with as many samples as 25 million multiplications a step afford, but at least 16."""
    recipe = default_recipe(found.earlier, data.num_data, components)
    cost = found.multiplications(data.num_data) * components
    affordable = max(16, int(BUDGET / cost))
    samples = min(recipe.num_samples, affordable + affordable % 2)
    return replace(recipe, num_samples=samples, num_entropy_samples=min(samples, recipe.num_entropy_samples))


def sampler_of(last: Last, bound: Bound, inputs: Tensor, targets: Tensor) -> ExactLastLayer:
    """The posterior over all weights, from a fitted bound over the earlier ones."""
    assert isinstance(bound.likelihood, LinearGaussian)
    posterior = bound.posterior
    parts = list(posterior.generators), list(posterior.noises)
    return ExactLastLayer(last.layout, last.name, *parts, bound.likelihood, bound.prior, inputs, targets)  # type: ignore[arg-type]


def _size(part: Choice[Generator] | Choice[Noise]) -> int | None:
    """How many weights a given generator or noise is for; None where it is made to measure or fits any number."""
    if isinstance(part, Generator):
        return part.num_params
    return part.std().numel() if isinstance(part, Noise) and part.std().ndim else None
