"""The rules: generator, noise, prior, entropy and schedule from a problem's sizes alone.

For m stochastic weights and N examples:

| m           | generator                                | noise              | prior             | entropy |
|-------------|------------------------------------------|--------------------|-------------------|---------|
| up to 300   | MLP of width m, tanh, affine skip, d = m | fixed 0.01         | N(0, 1)           | Exact   |
| up to 5,000 | MLP of width 32, tanh, affine skip       |                    | N(0, s^2)*        | Exact   |
| - classes   | - d = N / 20, 4 to 64                    | 0.1 of each tensor |                   |         |
| - numbers   | - d = 32                                 | learned per weight |                   |         |
| up to 1e6   | MMNN of 4 m weights, offset, d <= N / 10 | 0.2 of each tensor | N(0, 1)           | Lanczos |
| beyond      | CMMNN of 3 m weights, offset             | 0.2 of each tensor | N(0, 1)           | Lanczos |

* s = 3 / sqrt(fan-in), 8 / sqrt(fan-in) in the last layer of a classifier, but at least 1: narrow layers need large
  weights.

Chosen by `python -m benchmarks.choose_fit` for what predictions are worth on held-out rows; docs/benchmarks/choices.md
has the numbers. Noise that is learned for each weight gives the highest bound of all, and networks that underfit,
except for the noisy targets of regression. Fixed noise gives a low bound (`Posterior.diagnose` says how low) and better
predictions. Latents beyond the number of examples make a posterior unsure of what it should know.

Where the likelihood is Gaussian, the network ends in an nn.Linear and there are at most 20,000 examples, that layer is
integrated out and m counts the other weights (`training/last.py`). A mixture's components start at different MAP
estimates, up to 300 weights chosen from 8 K of them (`Starts.pick`). Latents are orthogonal and antithetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import nn

from livi.family.entropy import EntropyEstimator, Exact, Lanczos
from livi.family.generators import CMMNN, MLP, MMNN, Generator
from livi.family.generators.sizing import latent_side
from livi.family.noise import DiagonalNoise, FixedNoise, Noise, RelativeNoise
from livi.inference.recipe import Recipe
from livi.model.priors import Normal, Prior
from livi.network import Layout

SMALL, MIDDLE, LARGE = 300, 5_000, 1_000_000  # weights up to which a network is one


@dataclass(frozen=True)
class Size:
    """What the rules look at.

    Args:
        work: multiplications of one pass over a batch, for one weight vector.
        classes: the targets are labels.
        one_by_one: weight vectors are evaluated one after the other, which makes many of them slow.
    """

    layout: Layout
    num_data: int
    steps_per_epoch: int
    work: float
    classes: bool = False
    one_by_one: bool = False

    @property
    def num_params(self) -> int:
        return self.layout.num_params


def default_generator(size: Size) -> Generator:
    layout, m = size.layout, size.num_params
    if m <= SMALL:
        return MLP.for_layout(layout, activation=nn.Tanh, skip=True, offset=True)
    if m <= MIDDLE:
        dim = min(64, max(4, size.num_data // 20)) if size.classes else 32
        made = MLP(dim, m, hidden=(32,), activation=nn.Tanh, skip=True, offset=True)
        return made.to(layout.device, layout.dtype)
    tensors = [slot.numel for slot in layout.slots]
    side = min(latent_side(m, None), max(4, math.isqrt(size.num_data // 10)))
    kind, budget = (MMNN, 4.0) if m <= LARGE else (CMMNN, 3.0)
    return kind.for_layout(layout, budget=budget, latent_dim=side * side, offset=True, scale_sizes=tensors)


def default_noise(size: Size) -> Noise:
    if size.num_params <= SMALL:
        return FixedNoise(0.01)
    if size.num_params <= MIDDLE and not size.classes:
        return DiagonalNoise(size.num_params, 0.03)
    return RelativeNoise.for_layout(size.layout, 0.1 if size.num_params <= MIDDLE else 0.2)


def default_prior(layout: Layout, *, classes: bool) -> Prior:
    """Of the whole network: integrating its last layer out changes nothing about the model."""
    if layout.num_params <= SMALL or layout.num_params > MIDDLE:
        return Normal(1.0)
    last = layout.groups[-1].slots
    gains = [8.0 if classes and slot in last else 3.0 for slot in layout.slots]
    scales = [max(1.0, gain / math.sqrt(slot.fan_in)) for gain, slot in zip(gains, layout.slots, strict=True)]
    each = zip(layout.slots, scales, strict=True)
    return Normal(torch.cat([torch.full((slot.numel,), scale) for slot, scale in each]))


def default_entropy(size: Size) -> EntropyEstimator:
    if size.num_params <= MIDDLE:
        return Exact()
    return Lanczos(num_probes=1, tolerance=0.1, max_iterations=30)


def default_recipe(size: Size, components: int = 1) -> Recipe:
    """As many samples per component as 100 million multiplications per step afford, at most 2 d; fewer for larger m.

    Large networks are trained for a hundred epochs, within limits: few examples need few steps.
    """
    m = size.num_params
    affordable = min(int(1e8 / size.work), 16 if size.one_by_one else 1_000_000)
    if m <= SMALL:
        samples = max(8, min(2 * m, affordable))
        return Recipe(num_samples=samples + samples % 2, map_restarts=8 * components)
    if m <= MIDDLE:
        samples = max(8, min(64, affordable), min(256, int(0.3 * affordable)))
        few = Recipe(num_samples=samples + samples % 2, num_entropy_samples=2, map_restarts=4, spread=0.02)
        rates = replace(few, affine_rate=3e-3, nonlinear_rate=1e-3, hyper_rate=3e-2)
        if size.classes:
            return replace(rates, steps=2000, map_steps=1500, map_restarts=max(2, components))
        return replace(rates, steps=3000, map_steps=3000)
    base = Recipe(num_samples=4 if m <= LARGE else 2, num_entropy_samples=1, map_restarts=1, map_rate=1e-3)
    rates = replace(base, affine_rate=1e-3, nonlinear_rate=1e-3, hyper_rate=2e-3, spread=0.1, relative_spread=True)
    length = 100 * size.steps_per_epoch
    return replace(rates, steps=min(4000, max(600, length)), map_steps=min(5000, max(600, length)))


def from_trained(recipe: Recipe) -> Recipe:
    """For a network that is trained already: no MAP fit, and fewer steps."""
    return replace(recipe, map_steps=0, map_restarts=1, steps=max(min(600, recipe.steps), recipe.steps // 2))


def from_posterior(recipe: Recipe) -> Recipe:
    """For a posterior that is fitted already: as `from_trained`, without a KL warm-up, and at 0.3 of the rates.

    At full rates a fit first loses what was learned: on 60 points of a sine, with a sampled last layer, 400 more steps
    after 1,500 ended 2.6 nats lower at full rates, and 0.3 nats higher at 0.3 of them.
    """
    names = ("affine_rate", "nonlinear_rate", "hyper_rate")
    rates = {name: 0.3 * getattr(recipe, name) for name in names}
    return replace(from_trained(recipe), kl_warm_up=0.0, **rates)
