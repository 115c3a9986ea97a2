"""Choosing generator, noise, prior, estimator, samples and schedule from a problem's size, and saying so beforehand.

The rules, for m stochastic weights:

| m            | generator                                          | noise          | entropy                 |
|--------------|----------------------------------------------------|----------------|-------------------------|
| up to 300    | MLP of width m, tanh, full affine skip, d = m      | fixed 0.01     | Exact                   |
| up to 5,000  | MLP of width 32, tanh, affine skip, d = 32         | diagonal       | Exact (32 x 32)         |
| up to 1e6    | MMNN of 4 m weights, offset, per-layer scale       | fixed 0.05     | Lanczos, 1 probe        |
| beyond       | CMMNN of 2 m weights, offset, per-layer scale      | fixed 0.05     | Lanczos, 1 probe        |

Where the likelihood is Gaussian, the network's output is that of an nn.Linear and there are at most 20,000 examples,
that layer is integrated out and m counts the other weights; a middle-sized network has d = 16 then, and starts from its
own weights instead of a MAP estimate (`training/last.py`). A mixture's components start at different MAP estimates, up
to 300 weights chosen from 8 K of them (`Starts.pick`).
The prior is N(0, 1), the paper's; latents are orthogonal and antithetic. Learning the prior's scale (type II) raises
the bound by pruning weights, and learning the noise of a large network lets it grow until weights that the data do not
pin down look like the prior. Neither is the default: pass `prior=livi.Normal(learned=True)`, or
`prior=livi.Relevance.for_layout`, which is good with an exact last layer; `noise=livi.LearnedNoise()`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi import storage
from livi.data import Data
from livi.entropy import EntropyEstimator, Exact, Lanczos
from livi.generators import CMMNN, MLP, MMNN, Generator
from livi.last_layer import LinearGaussian
from livi.latents import Latents, Orthogonal
from livi.layout import Layout, Loop, Strategy, multiplications, suitable_strategy
from livi.layout.evaluation import synchronise
from livi.layout.statistics import as_call
from livi.likelihoods import Likelihood
from livi.noise import DiagonalNoise, FixedNoise, Noise
from livi.objective import Bound
from livi.posterior import ImplicitPosterior
from livi.priors import Normal, Prior
from livi.spec import NotSpecifiedError, Specified, spec_of
from livi.training.recipe import Recipe
from livi.training.start import Joint, measure_start

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
            "start": "the network's own weights, spread "
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
    prior = made_from(choices.prior, layout) or Normal(1.0)
    entropy = choices.entropy or default_entropy(layout)
    args, kwargs = as_call(inputs)
    strategy = suitable_strategy(layout, *args, **kwargs)
    if default is None:
        work = multiplications(layout, *args, **kwargs)
        default = default_recipe(layout, work, choices.components, one_by_one=strategy == Loop())
    recipe = choices.recipe.over(default)
    if choices.start == "net":
        recipe = choices.recipe.over(from_trained(recipe))
    recipe = replace(recipe, map_restarts=max(recipe.map_restarts, choices.components))
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)  # generators initialise themselves from torch's global stream
        generators = [
            made_from(choices.generator, layout) or default_generator(layout) for _ in range(choices.components)
        ]
        noises = [made_from(choices.noise, layout) or default_noise(layout) for _ in range(choices.components)]
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


def default_generator(layout: Layout) -> Generator:
    m = layout.num_params
    if m <= 300:
        return MLP.for_layout(layout, activation=nn.Tanh, skip=True, offset=True)
    if m <= 5_000:
        return MLP(32, m, hidden=(32,), activation=nn.Tanh, skip=True, offset=True).to(layout.device, layout.dtype)
    kind, budget = (MMNN, 4.0) if m <= 1_000_000 else (CMMNN, 2.0)
    return kind.for_layout(layout, budget=budget, offset=True, scale_sizes=layout.group_sizes)


def default_noise(layout: Layout) -> Noise:
    if layout.num_params <= 300:
        return FixedNoise(0.01)
    if layout.num_params <= 5_000:
        return DiagonalNoise(layout.num_params, 0.03)
    return FixedNoise(0.05)


def default_entropy(layout: Layout) -> EntropyEstimator:
    if layout.num_params <= 5_000:
        return Exact()
    return Lanczos(num_probes=1, tolerance=0.1, max_iterations=30)


def default_recipe(layout: Layout, work: float, components: int, *, one_by_one: bool = False) -> Recipe:
    """As many samples per component as 100 million multiplications per step afford, at most 2 d; fewer for larger m.

    Args:
        work: multiplications of one pass over a batch, for one weight vector.
        one_by_one: weight vectors are evaluated one after the other, which makes many of them slow.
    """
    m = layout.num_params
    affordable = min(int(1e8 / work), 16 if one_by_one else 1_000_000)
    if m <= 300:
        samples = max(8, min(2 * m, affordable))
        recipe = Recipe(num_samples=samples + samples % 2, map_restarts=8 * components)
    elif m <= 5_000:
        samples = max(8, min(64, affordable))
        narrow = Recipe(num_samples=samples + samples % 2, num_entropy_samples=2, map_restarts=4, spread=0.02)
        recipe = replace(narrow, steps=3000, map_steps=3000, affine_rate=3e-3, nonlinear_rate=1e-3)
    else:
        base = Recipe(num_samples=4 if m <= 1_000_000 else 2, num_entropy_samples=1, map_restarts=1, map_rate=1e-3)
        recipe = replace(base, affine_rate=1e-3, nonlinear_rate=1e-3, hyper_rate=2e-3, spread=0.01)
    return replace(recipe, num_entropy_samples=min(recipe.num_entropy_samples, recipe.num_samples))


def from_trained(recipe: Recipe) -> Recipe:
    """For a network that is trained already: no MAP fit, and fewer steps."""
    return replace(recipe, map_steps=0, map_restarts=1, steps=max(1, recipe.steps // 3))


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
