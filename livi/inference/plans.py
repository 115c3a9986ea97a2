"""`Plan`: a fit that is ready to run, with its parts chosen by the user or the rules, and what it will cost."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi.draws import global_stream
from livi.durations import in_words
from livi.family.entropy import EntropyEstimator
from livi.family.family import Family
from livi.family.generators import Generator
from livi.family.implicit import ImplicitPosterior
from livi.family.latents import Latents, Orthogonal
from livi.family.noise import Noise
from livi.family.objective import Bound
from livi.inference.map_fits import measure_start
from livi.inference.measuring import Cost, measure_step
from livi.inference.recipe import Recipe
from livi.inference.rules import (
    BySize,
    Size,
    default_components,
    default_entropy,
    default_generator,
    default_noise,
    default_recipe,
    from_posterior,
    from_trained,
    wants_polish,
)
from livi.model.data import Data, LoaderData, TensorData, shapes_in_words
from livi.model.features import as_given, on_features
from livi.model.likelihoods.located import Located
from livi.model.priors import Prior
from livi.model.problem import Choice, Problem, chosen_for
from livi.network import Layout
from livi.posterior import storage
from livi.sampling import ChainSettings
from livi.spec import NotSpecifiedError, Specified, spec_of

Made = TypeVar("Made")


@dataclass(frozen=True)
class Choices:
    """What the user chose; None leaves the choice to the rules."""

    family: Choice[Family] = None
    generator: Choice[Generator] = None
    noise: Choice[Noise] = None
    entropy: EntropyEstimator | None = None
    latents: Latents | None = None
    recipe: Recipe = field(default_factory=Recipe)  # decides what it names
    components: int | None = None
    autocast: torch.dtype | None = None
    capture: bool | None = None
    start: str = "map"
    polish: bool | None = None

    def has_own_parts(self) -> bool:
        """Whether the user chose any part of the posterior or of its schedule."""
        own = (self.family, self.generator, self.noise, self.entropy, self.latents)
        return any(part is not None for part in own) or (self.components or 1) > 1 or bool(self.recipe.named)

    def components_for(self, size: Size) -> int:
        """As many as asked for, else by rule; 1 where the fit does not start from scratch or parts are given."""
        if self.components is not None:
            return self.components
        fixed = self.family is not None or self.generator is not None or isinstance(self.noise, Noise)
        named = self.recipe.named & {"num_samples", "num_entropy_samples", "map_restarts"}
        return 1 if fixed or named or self.start != "map" else default_components(size)


@dataclass(frozen=True)
class Plan:
    """A fit that is ready to run: its parts, and what they will cost. `print(plan)` shows it."""

    bound: Bound
    problem: Problem
    recipe: Recipe
    cost: Cost
    seconds_per_map_step: float
    capture: bool | None = None
    start: str = "map"
    chains: ChainSettings | None = None  # to polish the fit with

    @property
    def seconds_per_step(self) -> float:
        return self.cost.seconds

    @property
    def seconds(self) -> float:
        """Expected seconds of the whole fit: the start, the steps, and the chains if there are any."""
        start = self.recipe.map_steps * self.seconds_per_map_step
        return start + self.recipe.steps * self.seconds_per_step + self._seconds_of_chains

    @property
    def _seconds_of_chains(self) -> float:
        return self.gradients_of_chains * self.seconds_per_map_step / self.recipe.map_restarts

    @property
    def layout(self) -> Layout:
        return self.problem.layout

    @property
    def data(self) -> Data:
        return self.problem.data

    @property
    def recipe_of_all(self) -> Recipe:
        """The recipe with `num_samples` of all components together, from which gradients are counted."""
        return replace(self.recipe, num_samples=self.recipe.num_samples * self.bound.family.num_components)

    @property
    def gradients(self) -> int:
        """How many gradients of the log joint density, each at one weight vector on one batch, the fit takes."""
        recipe = self.recipe_of_all
        return recipe.map_restarts * recipe.map_steps + recipe.steps * recipe.num_samples + self.gradients_of_chains

    @property
    def gradients_of_chains(self) -> int:
        """How many of these the chains take: two a step, each on all batches."""
        chains = self.chains
        return 0 if chains is None else 2 * chains.chains * chains.steps * self.data.steps_per_epoch

    def summary(self) -> dict[str, Any]:
        """The choices and costs as JSON-able values."""
        posterior, integrated = self.bound.family, self.problem.integrated
        weights = sum(parameter.numel() for parameter in self.bound.parameters())
        likelihood, given = self.bound.likelihood, as_given(self.data)
        whole = self.layout if integrated is None else integrated.layout
        held = storage.network.held(whole)
        if isinstance(posterior, ImplicitPosterior):
            parts = [posterior.generators[0], posterior.noises[0], self.bound.prior, likelihood]
        else:
            parts = [posterior, self.bound.prior, likelihood]
        return {
            "num_params": posterior.num_params,
            "layers": len(self.layout.groups),
            "network": storage.network.layers(self.layout.module),
            "num_data": self.data.num_data,
            "steps_per_epoch": self.data.steps_per_epoch,
            "inputs": shapes_in_words(given.first()[0]),
            "standardised": self.standardised,
            "augment": _augment(self.data),
            "last_layer": "sampled" if integrated is None else f"{integrated.word}: {integrated.name}",
            "last_layer_reason": self.problem.why_sampled,
            **posterior.facts(),
            "variational_params": weights,
            "prior": type(self.bound.prior).__name__,
            "likelihood": type(likelihood.observed if likelihood.needs_all_examples else likelihood).__name__,
            "entropy": repr(self.bound.entropy),
            "latents": repr(self.bound.latents),
            "strategy": repr(self.problem.strategy),
            "device": str(self.layout.device),
            "dtype": str(self.layout.dtype).removeprefix("torch."),
            "autocast": self._autocast,
            "recipe": asdict(self.recipe),
            "chains": None if self.chains is None else asdict(self.chains),
            "specs": [_described(part) for part in parts],
            "first_batch": _digest(given.first()),
            "first_weights": _digest(_some(self.layout.flatten())) if self.start == "net" else None,
            "fixed_weights": _digest([_some(each) for name, each in held.items() if name in whole.fixed]),
            "buffers": _digest([_some(each) for name, each in held.items() if name not in whole.fixed]),
            "example_weights": _digest(getattr(likelihood, "counts", None)),
            "seconds_per_step": self.seconds_per_step,
            "seconds_per_map_step": self.seconds_per_map_step,
            "memory_bytes": self.cost.memory,
        }

    def __str__(self) -> str:
        facts = self.summary()
        recipe = self.recipe
        seconds = facts["seconds_per_step"] * recipe.steps + self._seconds_of_chains
        start = facts["seconds_per_map_step"] * recipe.map_steps
        replayed = ", replayed as CUDA graphs" if self.cost.replayed else ""
        rows = {
            "network": f"{facts['num_params']:,} stochastic weights in {_counted(facts['layers'], 'layer')}"
            f"{self._integrated_in_words()}, {facts['dtype']} on {facts['device']}{self._autocast_in_words()}",
            "data": f"{facts['num_data']:,} examples in {_counted(facts['steps_per_epoch'], 'batch', 'es')} per epoch"
            f"{self.merged and '; '}{self.merged}",
            "posterior": _posterior_in_words(facts),
            "model": f"{facts['likelihood']} likelihood, {_prior_in_words(self.bound.prior, facts['num_params'])}",
            "entropy": f"{type(self.bound.entropy).__name__} on {recipe.num_entropy_samples} of "
            f"{recipe.num_samples} samples per component",
            "start": self._start_in_words(facts["components"]),
            "schedule": f"{recipe.steps:,} steps of Adam, rates {recipe.affine_rate:g} affine, "
            f"{recipe.nonlinear_rate:g} nonlinear, {recipe.hyper_rate:g} hyper; KL warm-up {recipe.kl_warm_up:.0%}"
            f"{'' if recipe.temperature == 1.0 else f', temperature {recipe.temperature:g}'}",
            "cost": f"{1e3 * facts['seconds_per_step']:.1f} ms per step, about {in_words(start)} for the start and "
            f"{in_words(seconds)} for the rest{replayed}; {_bytes(facts['memory_bytes'])} of tensors",
        }
        if self.chains is not None:
            rows["polish"] = f"{self.chains.chains} Markov chains of {self.chains.steps:,} steps from its draws"
        if facts["standardised"]:
            rows["units"] = f"{' and '.join(facts['standardised'])} standardised inside, answers in yours"
        if self.problem.why_sampled:
            rows["last layer"] = f"sampled: {self.problem.why_sampled}"
        width = max(map(len, rows))
        return "\n".join(f"{name:<{width}}  {text}" for name, text in rows.items())

    @property
    def merged(self) -> str:
        """A note where batches of one example are merged with others; empty where none are."""
        merged = isinstance(self.data, LoaderData) and self.data.fewest > 1
        return "batches of one example join another, for BatchNorm normalises by the batch" if merged else ""

    @property
    def standardised(self) -> list[str]:
        """Which of "inputs" and "targets" are fitted in other units than the user's."""
        likelihood = self.bound.likelihood.observed
        located = isinstance(likelihood, Located) and likelihood.centre is not None
        return ["inputs"] * (self.layout.scaling is not None) + ["targets"] * located

    def _start_in_words(self, components: int) -> str:
        recipe = self.recipe
        if self.start == "posterior":
            return "the posterior that was passed"
        if not recipe.map_steps:
            relative = " of their size" if recipe.relative_spread else ""
            return f"the network's own weights, spread {recipe.spread:g}{relative}"
        return f"{components} of {recipe.map_restarts} MAP fits of {recipe.map_steps} steps, spread {recipe.spread}"

    def _integrated_in_words(self) -> str:
        if self.problem.integrated is None:
            return ""
        others = self.problem.integrated.layout.num_params - self.layout.num_params
        return f", and {others:,} of the last layer integrated out"

    @property
    def _autocast(self) -> str | None:
        return None if self.bound.autocast is None else str(self.bound.autocast).removeprefix("torch.")

    def _autocast_in_words(self) -> str:
        return "" if self._autocast is None else f", run in {self._autocast}"


def _posterior_in_words(facts: dict[str, Any]) -> str:
    weights = f"{facts['variational_params']:,} variational parameters"
    if "generator" not in facts:
        return f"{facts['family']}, {weights}"
    kind = f"{facts['components']} x {facts['generator']}, latent_dim {facts['latent_dim']}"
    return f"{kind}, {weights}, {facts['noise']}"


def _prior_in_words(prior: Prior, num_params: int) -> str:
    """Its kind, and the standard deviations that it gives to single weights where it knows them."""
    name, std = type(prior).__name__, prior.std(num_params)
    if std is None:
        return f"{name} prior"
    least, most = f"{float(std.min()):.3g}", f"{float(std.max()):.3g}"
    learned = " at first, learned" if any(True for _ in prior.parameters()) else ""
    return f"{name} prior of std {least if least == most else f'{least} to {most}'}{learned}"


def make_plan(problem: Problem, choices: Choices, *, seed: int) -> Plan:
    """Fill in what the user left open, and measure one step on the first batch."""
    by_rule = choices.start != "posterior" and not choices.has_own_parts() and wants_polish(problem)
    polished = by_rule if choices.polish is None else choices.polish
    size = Size.of(problem, polished=polished)
    components = choices.components_for(size)
    recipe = choices.recipe.over(default_recipe(size, components))
    if choices.start != "map":
        rule = from_trained if choices.start == "net" else from_posterior
        recipe = replace(choices.recipe.over(rule(recipe, size)), map_steps=0)
    with global_stream(seed, problem.layout.device):  # from which generators initialise themselves
        family = chosen_for(_of_layout(choices.family, size), problem.layout)
        family = family or ImplicitPosterior(size.layout, *parts(size, components, choices.generator, choices.noise))
    recipe = replace(recipe, map_restarts=max(recipe.map_restarts, family.num_components))
    autocast = choices.autocast if problem.integrated is None else None
    bound = Bound(
        family,
        problem.likelihood,
        problem.prior,
        num_data=problem.data.num_data,
        entropy=choices.entropy or default_entropy(size),
        num_samples=recipe.num_samples * family.num_components,
        num_entropy_samples=recipe.num_entropy_samples * family.num_components,
        latents=choices.latents or Orthogonal(),
        strategy=problem.strategy,
        autocast=autocast,
    )
    if not polished and autocast is None:  # chains go on with the inputs
        problem = on_features(problem)
    cost = measure_step(bound, problem.data.first(), recipe, capture=choices.capture)
    starting = replace(problem, autocast=autocast)
    climbing = measure_start(starting, recipe.map_restarts) if recipe.map_steps or polished else 0.0
    chains = ChainSettings() if polished else None
    return Plan(bound, problem, recipe, cost, climbing, choices.capture, choices.start, chains)


def parts(
    size: Size, components: int, generator: Choice[Generator], noise: Choice[Noise]
) -> tuple[list[Generator], list[Noise]]:
    """A generator and a noise for each component, chosen by the user or by the rules."""
    return generators_and_noises(
        size.layout,
        components,
        (_of_layout(generator, size), lambda _: _on_cpu(default_generator, size)),
        (_of_layout(noise, size), lambda _: _on_cpu(default_noise, size)),
    )


def _of_layout(choice: Choice[Made], size: Size) -> Choice[Made]:
    return (lambda _: choice(size)) if isinstance(choice, BySize) else choice


def _on_cpu(rule: Callable[[Size], Made], size: Size) -> Made:
    """What a rule makes, built on the CPU, so that a seed gives the same initial weights on every device."""
    with torch.device("cpu"):
        return rule(size)


def generators_and_noises(
    layout: Layout,
    components: int,
    generator: tuple[Choice[Generator], Callable[[Layout], Generator]],
    noise: tuple[Choice[Noise], Callable[[Layout], Noise]],
) -> tuple[list[Generator], list[Noise]]:
    """A generator and a noise for each component, each given as a pair: the user's choice, and the default."""
    generators = [chosen_for(generator[0], layout) or generator[1](layout) for _ in range(components)]
    noises = [chosen_for(noise[0], layout) or noise[1](layout) for _ in range(components)]
    if len({id(part) for part in (*generators, *noises)}) < 2 * components:
        raise ValueError(
            "components: expected a generator and noise for each component, got one object for several; "
            "pass a function such as generator=lambda layout: livi.MMNN.for_layout(layout)."
        )
    return generators, noises


def _described(part: nn.Module) -> Any:
    """How a part was made, as JSON; only its class where it was made with a function, which JSON cannot hold."""
    try:
        return spec_of(part) if isinstance(part, Specified) else type(part).__name__
    except NotSpecifiedError:
        return type(part).__name__


def _augment(data: Data) -> str | None:
    """The name of the augmentation, to recognise the same data by."""
    made = data.augment if isinstance(data, TensorData) else None
    return getattr(made, "__qualname__", None) or (None if made is None else repr(made))


def _digest(batch: Any) -> str:
    """A short fingerprint of a batch, to recognise the same data by."""
    digest = hashlib.sha256()
    for leaf in pytree.tree_leaves(batch):
        if isinstance(leaf, Tensor):
            digest.update(str((leaf.shape, leaf.dtype)).encode())
            digest.update(leaf.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _some(weights: Tensor, most: int = 4096) -> Tensor:
    """Every n-th weight, by which a network is recognised."""
    return weights.flatten()[:: max(1, weights.numel() // most)]


def _counted(number: int, noun: str, ending: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
