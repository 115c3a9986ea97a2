"""Fits that integrate the last layer out: whether they are possible, and their plan."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace

from torch import Tensor, nn

from livi.data import Data, TensorData
from livi.generators import MLP, Generator
from livi.last_layer import ExactLastLayer, LinearGaussian, earlier_layout, find_last
from livi.layout import Layout
from livi.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood, Weighted, pass_weights
from livi.noise import DiagonalNoise, Noise
from livi.objective import Bound
from livi.priors import Normal, Prior, Relevance
from livi.training.plan import Choice, Choices, Last, Plan, default_recipe, made_from, make_plan
from livi.training.recipe import Recipe

CHOICES = ("sampled", "exact", "exact if possible")
# Beyond so many examples, or multiplications for one sample's Gram matrix, the layer is sampled unless asked otherwise.
ROWS, LIMIT = 20_000, 5e7
BUDGET = 2.5e7  # multiplications for the Gram matrices of a step's samples, of which there are at least four


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
    if isinstance(found, _Found) and (mode == "exact" or found.is_cheap):
        return _plan(found, choices, seed)
    if mode == "exact":
        raise ValueError(f"last_layer='exact': expected {found}.")
    return None


@dataclass(frozen=True)
class _Found:
    last: Last
    earlier: Layout
    likelihood: LinearGaussian
    prior: Prior
    data: TensorData

    @property
    def multiplications(self) -> float:
        """What a sample's Gram matrix costs."""
        linear = self.last.layout.module.get_submodule(self.last.name)
        assert isinstance(linear, nn.Linear)
        return self.data.num_data * (linear.in_features + 1) ** 2

    @property
    def is_cheap(self) -> bool:
        return self.data.num_data <= ROWS and self.multiplications <= LIMIT


def _found(
    layout: Layout, data: Data, likelihood: Likelihood, choices: Choices, batch_size: int | None
) -> _Found | str:
    """What an exact last layer needs, or what it would need instead."""
    if not isinstance(data, TensorData):
        return "(X, y) tensors or arrays, all of which a step needs, got batches"
    inputs, counts = data.inputs, None
    if isinstance(likelihood, Weighted) and layout.forward is pass_weights:
        likelihood, (inputs, counts) = likelihood.base, inputs
        layout = Layout(layout.module, include=[slot.name for slot in layout.slots])
    if type(likelihood) not in (Gaussian, HeteroscedasticGaussian):
        return f"a Gaussian likelihood, got {type(likelihood).__name__}"
    assert isinstance(likelihood, Gaussian | HeteroscedasticGaussian)
    if not isinstance(inputs, Tensor):
        return f"(X, y) tensors or arrays, got a {type(inputs).__name__} of inputs"
    if batch_size is not None and batch_size < data.num_data:
        return f"all examples at every step, got batches of {batch_size}"
    varying = isinstance(likelihood, HeteroscedasticGaussian)
    name = find_last(layout, inputs[:8], beside=varying)
    if name is None:
        of = "whose first column is that" if varying else "whose output is that"
        return (
            f"a network without BatchNorm {of} of an nn.Linear with a bias, all of its weights stochastic and others "
            "before it, got another"
        )
    earlier = earlier_layout(layout, name)
    try:
        earlier.verify(inputs[:1])
    except TypeError:
        return "a last layer whose inputs depend on other stochastic weights, got one that stands alone"
    for name_of, size in (("generator", _size(choices.generator)), ("noise", _size(choices.noise))):
        if size not in (None, earlier.num_params):
            return f"a {name_of} of {earlier.num_params} weights, those before the last layer, got one of {size}"
    prior = made_from(choices.prior, earlier) or Normal(1.0)
    scale = _scale_of(prior, layout.module.get_submodule(name))
    if scale is None:
        return f"a Normal prior of one scale, or one a layer, or a Relevance prior, got {type(prior).__name__}"
    marginal = LinearGaussian(
        copy.deepcopy(likelihood),
        scale=scale,
        learn_scale=isinstance(prior.log_scale, nn.Parameter),
        counts=counts,
    )
    whole = TensorData(inputs, data.targets, data.num_data)
    return _Found(Last(layout, name), earlier, marginal.to(layout.device, layout.dtype), prior, whole)


def _scale_of(prior: Prior, linear: nn.Module) -> float | None:
    """The last layer's scale under a prior for the earlier weights, or None where it has no single one."""
    assert isinstance(linear, nn.Linear)
    if isinstance(prior, Relevance):
        return prior.gain / math.sqrt(linear.in_features)
    if isinstance(prior, Normal) and prior.log_scale.numel() in (1, len(prior.sizes or ())):
        return float(prior.log_scale.detach().exp().mean())
    return None


def _plan(found: _Found, choices: Choices, seed: int) -> Plan:
    found.likelihood.start_from(found.data.targets)
    affordable = max(4, int(BUDGET / found.multiplications))
    num_params = found.earlier.num_params
    if num_params <= 5_000 and affordable < num_params:
        default = _recipe(min(64, affordable), found.data.num_data, choices.components)
        choices = replace(
            choices,
            generator=choices.generator or _generator,
            noise=choices.noise or (lambda layout: DiagonalNoise(layout.num_params, 0.03)),
        )
    else:
        default = _small_or_large(found, choices.components)
    choices = replace(choices, prior=found.prior)
    made = make_plan(found.earlier, found.data, found.likelihood, choices, seed=seed, default=default)
    return replace(made, last=found.last)


def _recipe(num_samples: int, num_data: int, components: int) -> Recipe:
    """For a middle-sized network, chosen on held-out training rows of ten tables.

    Of few examples, from the network's own weights and at high rates: random features with an exact last layer already
    fit well, where a MAP estimate of them is too sure, and takes the noise with it. Of many, whose posterior is narrow,
    from a MAP estimate and at low rates, which find their way from there only.
    """
    few = Recipe(
        steps=1000,
        map_steps=0,
        map_restarts=components,
        affine_rate=1e-2,
        nonlinear_rate=3e-3,
        hyper_rate=2e-2,
        spread=0.02,
        num_samples=num_samples + num_samples % 2,
        num_entropy_samples=2,
    )
    if num_data <= 2048:
        return few
    return replace(few, steps=1500, map_steps=1500, affine_rate=2e-3, nonlinear_rate=6e-4, hyper_rate=5e-2)


def _generator(layout: Layout) -> Generator:
    made = MLP(16, layout.num_params, hidden=(16,), activation=nn.Tanh, skip=True, offset=True)
    return made.to(layout.device, layout.dtype)


def _small_or_large(found: _Found, components: int) -> Recipe:
    """That of a sampled last layer, with as many samples as are affordable, but at least 16."""
    recipe = default_recipe(found.earlier, found.data.num_data * found.earlier.num_params, components)
    affordable = max(16, int(BUDGET / found.multiplications))
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
