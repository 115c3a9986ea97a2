"""A fit that is ready to run: its parts, put together from what the user chose and the rules, and what it will cost."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi.family.entropy import EntropyEstimator
from livi.family.generators import Generator
from livi.family.implicit import ImplicitPosterior
from livi.family.last_layer import LinearGaussian
from livi.family.latents import Latents, Orthogonal
from livi.family.noise import Noise
from livi.family.objective import Bound
from livi.inference.recipe import Recipe
from livi.inference.rules import (
    Size,
    default_entropy,
    default_generator,
    default_noise,
    default_prior,
    default_recipe,
    from_posterior,
    from_trained,
)
from livi.inference.start import Joint, measure_start
from livi.model.data import Data
from livi.model.likelihoods import ClassificationLikelihood, Likelihood
from livi.model.priors import Prior
from livi.network import Layout, Loop, Strategy, multiplications, suitable_strategy
from livi.network.evaluation import synchronise
from livi.network.statistics import as_call
from livi.posterior import storage
from livi.spec import NotSpecifiedError, Specified, spec_of

T = TypeVar("T")
Choice: TypeAlias = (
    T | Callable[[Layout], T] | None
)  # an object, a function of the layout that makes one, or the rules'


@dataclass(frozen=True)
class Choices:
    """What the user fixed; None leaves the choice to the rules."""

    generator: Choice[Generator] = None
    noise: Choice[Noise] = None
    prior: Choice[Prior] = None
    entropy: EntropyEstimator | None = None
    latents: Latents | None = None
    recipe: Recipe = field(default_factory=Recipe)  # decides what it names
    components: int = 1
    autocast: torch.dtype | None = None
    capture: bool | None = None
    start: str = "map"


@dataclass(frozen=True)
class Last:
    """A last layer to be integrated out: the whole network's layout, and the layer's name."""

    layout: Layout
    name: str


@dataclass(frozen=True)
class Plan:
    """A fit ready to run: its parts, and what they will cost. `print(plan)` shows it."""

    bound: Bound
    data: Data
    recipe: Recipe
    strategy: Strategy
    seconds_per_step: float
    seconds_per_map_step: float
    saved_bytes: int
    capture: bool | None = None
    start: str = "map"
    last: Last | None = None
    why_sampled: str = ""  # the last layer; empty where it is not

    @property
    def layout(self) -> Layout:
        return self.bound.posterior.layout

    def summary(self) -> dict[str, Any]:
        """The choices and costs as JSON-able values."""
        posterior = self.bound.posterior
        generator = posterior.generators[0]
        assert isinstance(generator, Generator)
        weights = sum(parameter.numel() for parameter in self.bound.parameters())
        likelihood = self.bound.likelihood
        return {
            "num_params": posterior.num_params,
            "layers": len(self.layout.groups),
            "network": storage.network.layers(self.layout.module),
            "num_data": self.data.num_data,
            "steps_per_epoch": self.data.steps_per_epoch,
            "last_layer": "sampled" if self.last is None else f"exact: {self.last.name}",
            "last_layer_reason": self.why_sampled,
            "components": posterior.num_components,
            "generator": type(generator).__name__,
            "latent_dim": generator.latent_dim,
            "variational_params": weights,
            "noise": type(posterior.noises[0]).__name__,
            "prior": type(self.bound.prior).__name__,
            "likelihood": type(likelihood.noise if isinstance(likelihood, LinearGaussian) else likelihood).__name__,
            "entropy": repr(self.bound.entropy),
            "latents": repr(self.bound.latents),
            "strategy": repr(self.strategy),
            "device": str(self.layout.device),
            "dtype": str(self.layout.dtype).removeprefix("torch."),
            "recipe": asdict(self.recipe),
            "specs": [_described(part) for part in (generator, posterior.noises[0], self.bound.prior, likelihood)],
            "first_batch": _digest(self.data.first()),
            "seconds_per_step": self.seconds_per_step,
            "seconds_per_map_step": self.seconds_per_map_step,
            # parameters, gradients and Adam's moments, and a copy of all but the gradients to go back to
            "memory_bytes": self.saved_bytes + 7 * weights * self.layout.dtype.itemsize,
        }

    def __str__(self) -> str:
        facts = self.summary()
        recipe = self.recipe
        seconds = facts["seconds_per_step"] * recipe.steps
        start = facts["seconds_per_map_step"] * recipe.map_steps
        rows = {
            "network": f"{facts['num_params']:,} stochastic weights in {_counted(facts['layers'], 'layer')}"
            f"{self._integrated()}, "
            f"{facts['dtype']} on {facts['device']}",
            "data": f"{facts['num_data']:,} examples in {_counted(facts['steps_per_epoch'], 'batch', 'es')} an epoch",
            "posterior": f"{facts['components']} x {facts['generator']}, latent_dim {facts['latent_dim']}, "
            f"{facts['variational_params']:,} variational parameters, {facts['noise']}",
            "model": f"{facts['likelihood']} likelihood, {facts['prior']} prior",
            "entropy": f"{type(self.bound.entropy).__name__} on {recipe.num_entropy_samples} of "
            f"{recipe.num_samples} samples a component",
            "start": "the posterior that was passed"
            if self.start == "posterior"
            else "the network's own weights, spread "
            f"{recipe.spread:g}{' of their size' if recipe.relative_spread else ''}"
            if not recipe.map_steps
            else f"{facts['components']} of {recipe.map_restarts} MAP fits of {recipe.map_steps} steps, spread "
            f"{recipe.spread}",
            "schedule": f"{recipe.steps:,} steps of Adam, rates {recipe.affine_rate:g} affine, "
            f"{recipe.nonlinear_rate:g} nonlinear, {recipe.hyper_rate:g} hyper; KL warm-up {recipe.kl_warm_up:.0%}",
            "cost": f"{1e3 * facts['seconds_per_step']:.1f} ms a step, about {_duration(start)} for the start and "
            f"{_duration(seconds)} for the rest{self._at_most()}; {_bytes(facts['memory_bytes'])} of tensors",
        }
        if self.why_sampled:
            rows["last layer"] = f"sampled: {self.why_sampled}"
        width = max(map(len, rows))
        return "\n".join(f"{name:<{width}}  {text}" for name, text in rows.items())

    def _integrated(self) -> str:
        if self.last is None:
            return ""
        return f", and {self.last.layout.num_params - self.layout.num_params:,} of the last layer integrated out"

    def _at_most(self) -> str:
        captured = self.layout.device.type == "cuda" and self.capture is not False
        return ", less where a step can be replayed as a CUDA graph" if captured else ""


def make_plan(
    layout: Layout,
    data: Data,
    likelihood: Likelihood,
    choices: Choices,
    *,
    seed: int,
    default: Recipe | None = None,
) -> Plan:
    """Fill in what the user left open, and measure one step on the first batch.

    Args:
        default: the recipe for what the user's does not name, in place of the rules'.
    """
    inputs, targets = data.first()
    args, kwargs = as_call(inputs)
    strategy = suitable_strategy(layout, *args, **kwargs)
    size = Size(
        layout,
        data.num_data,
        data.steps_per_epoch,
        work=multiplications(layout, *args, **kwargs),
        classes=isinstance(likelihood, ClassificationLikelihood),
        one_by_one=strategy == Loop(),
    )
    prior = made_from(choices.prior, layout) or default_prior(layout, classes=size.classes)
    entropy = choices.entropy or default_entropy(size)
    default = default or default_recipe(size, choices.components)
    recipe = choices.recipe.over(default)
    if choices.start != "map":
        rule = from_trained if choices.start == "net" else from_posterior
        recipe = replace(choices.recipe.over(rule(recipe)), map_steps=0)
    recipe = replace(recipe, map_restarts=max(recipe.map_restarts, choices.components))
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)  # generators initialise themselves from torch's global stream
        generators = [
            made_from(choices.generator, layout) or default_generator(size) for _ in range(choices.components)
        ]
        noises = [made_from(choices.noise, layout) or default_noise(size) for _ in range(choices.components)]
    if len({id(part) for part in (*generators, *noises)}) < 2 * choices.components:
        raise ValueError(
            "components: expected a generator and noise for each component, got one object for several; "
            "pass a function such as generator=lambda layout: livi.MMNN.for_layout(layout)."
        )
    bound = Bound(
        ImplicitPosterior(layout, generators, noises),
        likelihood,
        prior,
        num_data=data.num_data,
        entropy=entropy,
        num_samples=recipe.num_samples * choices.components,
        num_entropy_samples=recipe.num_entropy_samples * choices.components,
        latents=choices.latents or Orthogonal(),
        strategy=strategy,
        autocast=choices.autocast,
    )
    seconds, saved = measure_step(bound, inputs, targets)
    joint = Joint(layout, likelihood, prior, data, strategy)
    climbing = measure_start(joint, recipe.map_restarts) if recipe.map_steps else 0.0
    return Plan(bound, data, recipe, strategy, seconds, climbing, saved, choices.capture, choices.start)


def measure_step(bound: Bound, inputs: Any, targets: Tensor) -> tuple[float, int]:
    """Seconds of one forward and backward pass, and bytes that autograd keeps between them."""
    rng = torch.Generator(device=bound.posterior.layout.device).manual_seed(0)
    saved = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal saved
        saved += tensor.numel() * tensor.element_size()
        return tensor

    seconds = float("inf")
    for _ in range(3):
        saved = 0
        synchronise(bound.posterior.layout.flatten())
        started = time.perf_counter()
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            loss = -bound(inputs, targets, rng).bound
        loss.backward()
        synchronise(loss)
        seconds = min(seconds, time.perf_counter() - started)
    bound.zero_grad(set_to_none=True)
    return seconds, saved


def _described(part: nn.Module) -> Any:
    """How a part was made, as JSON; a part made with a function is known by its class alone."""
    try:
        return spec_of(part) if isinstance(part, Specified) else type(part).__name__
    except NotSpecifiedError:
        return type(part).__name__


def _digest(batch: Any) -> str:
    """A short fingerprint of a batch, to recognise the same data by."""
    digest = hashlib.sha256()
    for leaf in pytree.tree_leaves(batch):
        if isinstance(leaf, Tensor):
            digest.update(str((leaf.shape, leaf.dtype)).encode())
            digest.update(leaf.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def made_from(choice: Choice[T], layout: Layout) -> T | None:
    """The object that the user chose, or had made for this layout."""
    if callable(choice) and not isinstance(choice, nn.Module):
        return choice(layout)
    return choice  # type: ignore[return-value]  # a module is callable too, but is the object itself


def _counted(number: int, noun: str, ending: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
