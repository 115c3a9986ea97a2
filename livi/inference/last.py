"""Fits that integrate the last layer out: whether they are possible, and their plan."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi.family.generators import MLP, Generator
from livi.family.last_layer import (
    ExactLastLayer,
    LinearGaussian,
    NotExactError,
    check_columns,
    earlier_layout,
    find_last,
)
from livi.family.noise import DiagonalNoise, Noise
from livi.family.objective import Bound
from livi.inference.gather import check_size, gathered
from livi.inference.plan import Choice, Choices, Last, Plan, made_from, make_plan
from livi.inference.recipe import Recipe
from livi.inference.rules import Size, default_prior, default_recipe
from livi.model.data import Batch, Data, TensorData
from livi.model.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood, Weighted, pass_weights
from livi.model.priors import Normal, Prior, Relevance
from livi.network import Layout

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
) -> Plan | str:
    """The plan of a fit with an exact last layer, or why it is sampled.

    Raises:
        ValueError: it was asked for and is not possible; the message says why.
    """
    if mode not in CHOICES:
        raise ValueError(f"last_layer: expected one of {', '.join(map(repr, CHOICES))}, got {mode!r}.")
    if mode == "sampled":
        return "as asked"
    try:
        found = _found(layout, data, likelihood, choices, batch_size, asked=mode == "exact")
    except NotExactError as reason:
        if mode == "exact":
            raise ValueError(
                f"last_layer='exact': expected a last layer that can be integrated out, but {reason}; change that, or "
                "pass last_layer='sampled'."
            ) from reason
        return str(reason)
    return _plan(found, choices, seed)


@dataclass(frozen=True)
class _Found:
    last: Last
    earlier: Layout
    likelihood: LinearGaussian
    prior: Prior
    data: TensorData
    multiplications: float  # for the Gram matrix of a sample, and its factors


def _found(
    layout: Layout, data: Data, likelihood: Likelihood, choices: Choices, batch_size: int | None, *, asked: bool
) -> _Found:
    """What an exact last layer needs. Whatever costs most is looked at last.

    Raises:
        NotExactError: something is missing.
    """
    base, counts = likelihood, None
    weighted = isinstance(likelihood, Weighted) and layout.forward is pass_weights
    if isinstance(likelihood, Weighted) and weighted:
        base = likelihood.base
        layout = Layout(layout.module, include=[slot.name for slot in layout.slots])
    if type(base) not in (Gaussian, HeteroscedasticGaussian):
        raise NotExactError(f"the likelihood is {type(base).__name__}, not Gaussian")
    assert isinstance(base, Gaussian | HeteroscedasticGaussian)
    if batch_size is not None and batch_size < data.num_data:
        raise NotExactError(f"every step needs all examples, and batches of {batch_size:,} were asked for")
    if data.num_data > ROWS and not asked:
        raise NotExactError(f"there are {data.num_data:,} examples, more than {ROWS:,}")
    if not isinstance(data, TensorData):
        check_size(data)
    inputs, targets = _some(data)
    varying = isinstance(base, HeteroscedasticGaussian)
    name = find_last(layout, inputs[0] if weighted else inputs, beside=varying)
    linear = layout.module.get_submodule(name)
    assert isinstance(linear, nn.Linear)
    outputs = targets[:1].numel()
    if outputs != linear.out_features:
        raise NotExactError(f"an example has {outputs} targets, and {name!r} gives {linear.out_features} outputs")
    width = linear.in_features + 1
    factors = outputs if isinstance(base, Gaussian) and base.log_std.numel() > 1 else 1
    multiplications = float(data.num_data * width**2 + (factors - 1) * width**3)
    if multiplications > LIMIT and not asked:
        raise NotExactError(f"{data.num_data:,} examples of {width - 1:,} features take too long")
    earlier = earlier_layout(layout, name, beside=varying)
    for name_of, size in (("generator", _size(choices.generator)), ("noise", _size(choices.noise))):
        if size not in (None, earlier.num_params):
            raise NotExactError(
                f"the {name_of} is of {size:,} weights, and {earlier.num_params:,} come before the last layer"
            )
    prior, last_prior = _split(made_from(choices.prior, layout) or default_prior(layout, classes=False), layout, name)
    whole = gathered(data)
    if weighted:
        whole, counts = TensorData(whole.inputs[0], whole.targets, whole.num_data), whole.inputs[1]
    marginal = LinearGaussian(copy.deepcopy(base), counts=counts, prior=last_prior)
    marginal.to(layout.device, layout.dtype)
    return _Found(Last(layout, name), earlier, marginal, prior, whole, multiplications)


def _split(prior: Prior, layout: Layout, name: str) -> tuple[Prior, Normal | Relevance]:
    """The prior of the earlier weights, and that of the last layer's."""
    linear = layout.module.get_submodule(name)
    assert isinstance(linear, nn.Linear)
    chosen = torch.zeros(layout.num_params, dtype=torch.bool)
    for slot in layout.slots:
        chosen[slot.start : slot.stop] = slot.name.rpartition(".")[0] == name
    try:
        earlier, last = prior.split(chosen.to(layout.device))
        if not isinstance(last, Normal | Relevance):
            raise NotExactError(f"the prior of the last layer is {type(last).__name__}, not normal")
        check_columns(last, linear.in_features, linear.out_features)
    except ValueError as reason:
        raise NotExactError(str(reason)) from reason
    return earlier, last


def _some(data: Data, most: int = 32) -> Batch:
    """A few examples, from all over the data where they are at hand."""
    inputs, targets = (data.inputs, data.targets) if isinstance(data, TensorData) else data.first()
    rows = torch.linspace(0, len(targets) - 1, min(most, len(targets)), device=targets.device).long()
    return pytree.tree_map(lambda leaf: leaf[rows], inputs), targets[rows]


def _plan(found: _Found, choices: Choices, seed: int) -> Plan:
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
    work = found.data.num_data * found.earlier.num_params
    recipe = default_recipe(Size(found.earlier, found.data.num_data, 1, work), components)
    affordable = max(16, int(BUDGET / found.multiplications))
    samples = min(recipe.num_samples, affordable + affordable % 2)
    return replace(recipe, num_samples=samples, num_entropy_samples=min(samples, recipe.num_entropy_samples))


def sampler_of(last: Last, bound: Bound, inputs: Any, targets: Tensor) -> ExactLastLayer:
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
