"""The rules: generator, noise, prior, entropy and schedule from a problem's sizes alone.

For m stochastic weights and N examples:

| m           | generator                                | noise              | prior             | entropy |
|-------------|------------------------------------------|--------------------|-------------------|---------|
| up to 300   | MLP of width m, tanh, affine skip, d = m | fixed 0.01         | N(0, 1)           | Exact   |
| up to 5,000 | MLP of width 32, tanh, affine skip       |                    | N(0, s^2)*        | Exact   |
| - classes   | - d = N / 20, 4 to 64                    | 0.1 of each tensor |                   |         |
| - numbers   | - d = 32                                 | learned per weight |                   |         |
| up to 1e6   | MMNN of 3 m weights, offset, d <= N / 10 | 0.2 of each tensor | N(0, t^2)*        | Lanczos |
| beyond      | MMNN, hidden matrices of at most 0.37    | 0.2 of each tensor | N(0, 0.2^2)       | Lanczos |
|             | sqrt(m) or 1,500 rows, offset, d as above |                    |                   |         |

* s = 3 / sqrt(fan-in), 8 / sqrt(fan-in) in the last layer of a classifier, but at least 1: narrow layers need large
  weights. t = 3 / sqrt(fan-in), from 0.3 to 1.

Where weight matrices are fixed, by `include` or `exclude`, biases have the prior of their layer's weights. Of classes
it is N(0, 4 / fan-in) whatever the size: features that were trained on the same rows look better than they are, and a
wide prior believes them. Of numbers it is that of the table, by the size of the whole network. A part of a classifier
of up to 5,000 weights is fitted at a tenth of the rates (`default_recipe`), a whole one of convolutions, from its own
trained weights, at a fifth (`from_trained`).

Chosen by `python -m benchmarks.choose_fit` for what predictions are worth on held-out rows; docs/benchmarks/choices.md
has the numbers. Noise that is learned for each weight gives the highest bound of all, and networks that underfit,
except for the noisy targets of regression. Fixed noise gives a low bound (`Posterior.diagnose` says how low) and better
predictions. Latents beyond the number of examples make a posterior unsure of what it should know.

Where the likelihood is Gaussian, the network ends in an nn.Linear and there are at most 20,000 examples, that layer is
integrated out and m counts the other weights (`family/last_layer/problem.py`); so it is for classes and labels, by a
bound, where there are 300 to 5,000 weights and about 1,000 examples in one batch (`wants_conditional`). A classifier of
5,000 to a million weights with 5,000 labels (of a text, one a character) gets a mixture of five, for as many gradients
as five MAP fits take (`default_components`). A mixture's components start at different MAP estimates, up to 300 weights
chosen from 8 K of them (`Starts.pick`). Latents are orthogonal and antithetic.

A network of 300 to 5,000 weights that gives mean and noise (`HeteroscedasticGaussian`, sampled last layer, one batch)
gets a short fit, and Markov chains from its draws (`wants_polish`): what comes back is an ensemble of their draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from livi.family.entropy import EntropyEstimator, Exact, Lanczos
from livi.family.generators import MLP, MMNN, Generator
from livi.family.generators.sizing import align, latent_side
from livi.family.noise import DiagonalNoise, FixedNoise, Noise, RelativeNoise
from livi.inference.recipe import Recipe
from livi.model.data import FULL_BATCH, Data, TensorData
from livi.model.defaults import LARGE, MIDDLE, SMALL, has_fixed_matrices
from livi.model.likelihoods import Categorical, HeteroscedasticGaussian
from livi.model.problem import Problem
from livi.network import Layout, Loop, as_call, multiplications

COMPONENTS = 5  # of a mixture by default
FEWEST = 600  # steps of a large network
MANY = 5_000  # fewest labels for a mixture by default
SHARE_OF_STARTS = 3 / 11  # share of a mixture's gradients that its MAP fits take
OF_A_PART = 0.1  # of the learning rates, for parts of classifiers
MOST_OF_A_PART = 64  # samples of a step for such a part, whose single ones are cheap
OF_FILTERS = 0.2  # of the learning rates, for trained classifiers that use their weights at many places
PLACES = 4  # at which weights are used, on average, from which they are many
BUDGET = 1.5e7  # multiplications for the Gram matrices of a step's samples, of which there are at least four


@dataclass(frozen=True)
class Size:
    """The sizes of a problem, which the rules depend on.

    Args:
        work: multiplications that each weight vector takes on a batch.
        classes: the targets are labels.
        labels: of one example; a text has one a character.
        one_by_one: weight vectors are evaluated one after the other, which makes many of them slow.
        gram: multiplications that the evidence of an integrated last layer takes, for one weight vector.
        polished: Markov chains will follow, which need a short fit only.
    """

    layout: Layout
    num_data: int
    steps_per_epoch: int
    work: float
    classes: bool = False
    labels: int = 1
    one_by_one: bool = False
    gram: float | None = None
    polished: bool = False

    @classmethod
    def of(cls, problem: Problem, *, polished: bool = False) -> Size:
        data, integrated = problem.data, problem.integrated
        args, kwargs = as_call(data.first()[0])
        return cls(
            problem.layout,
            data.num_data,
            data.steps_per_epoch,
            work=multiplications(problem.layout, *args, strategy=problem.strategy, **kwargs),
            classes=problem.classes,
            labels=data.first()[1][0].numel() if isinstance(problem.likelihood.observed, Categorical) else 1,
            one_by_one=isinstance(problem.strategy, Loop),
            gram=None if integrated is None else integrated.multiplications,
            polished=polished,
        )

    @property
    def num_params(self) -> int:
        return self.layout.num_params

    @property
    def features_only(self) -> bool:
        """A middle-sized network whose last layer is integrated out, at a cost that allows few samples."""
        if self.gram is None or self.num_params > MIDDLE:
            return False
        return max(4, int(BUDGET / self.gram)) < self.num_params

    @property
    def part_of_classes(self) -> bool:
        """A part of a classifier, of up to 5,000 weights, of which none are integrated out."""
        small = self.num_params <= MIDDLE and self.gram is None
        return self.classes and small and has_fixed_matrices(self.layout)

    @property
    def filters_of_classes(self) -> bool:
        """A classifier of 300 to 5,000 weights, used at several places of an example, as those of convolutions are."""
        middle = SMALL < self.num_params <= MIDDLE and self.gram is None and not self.part_of_classes
        return self.classes and middle and self.work * self.steps_per_epoch >= PLACES * self.num_data * self.num_params

    @property
    def narrowing(self) -> float:
        """About how much narrower the posterior is than that of as many examples as a full batch has at most.

        A fit that starts much wider than its posterior begins far below its MAP estimate: on 43,000 rows with a noise
        that varies, one fit of 3,000 steps ended 75,000 nats below it.
        """
        return min(1.0, math.sqrt(FULL_BATCH / self.num_data))


@dataclass(frozen=True)
class BySize:
    """A choice of family, generator or noise that depends on the `Size`, and not on the layout alone."""

    make: Callable[[Size], Any]

    def __call__(self, size: Size) -> Any:
        return self.make(size)


def default_generator(size: Size) -> Generator:
    layout, m = size.layout, size.num_params
    if size.features_only:
        made = MLP(16, m, hidden=(16,), activation=nn.Tanh, skip=True, offset=True)
        return made.to(layout.device, layout.dtype)
    if m <= SMALL:
        return MLP.for_layout(layout, activation=nn.Tanh, skip=True, offset=True)
    if m <= MIDDLE:
        dim = min(64, max(4, size.num_data // 20)) if size.classes else 32
        made = MLP(dim, m, hidden=(32,), activation=nn.Tanh, skip=True, offset=True)
        return made.to(layout.device, layout.dtype)
    tensors = [slot.numel for slot in layout.slots]
    side = align(min(latent_side(m, None), max(4, math.isqrt(size.num_data // 10))))
    most = None if m <= LARGE else min(1500, round(0.37 * math.sqrt(m)))
    return MMNN.for_layout(
        layout,
        budget=3.0,
        latent_dim=side * side,
        last_bias=False,
        most=most,
        aligned=True,
        offset=True,
        scale_sizes=tensors,
    )


def default_noise(size: Size) -> Noise:
    if size.features_only:
        return DiagonalNoise(size.num_params, 0.03 * size.narrowing)
    if size.num_params <= SMALL:
        return FixedNoise(0.01)
    if size.num_params <= MIDDLE and not size.classes:
        return DiagonalNoise(size.num_params, 0.03 * size.narrowing)
    return RelativeNoise.for_layout(size.layout, 0.1 if size.num_params <= MIDDLE else 0.2)


def default_entropy(size: Size) -> EntropyEstimator:
    if size.num_params <= MIDDLE:
        return Exact()
    return Lanczos(num_probes=1, tolerance=0.1, max_iterations=30)


def default_components(size: Size) -> int:
    """A mixture for classifiers of 5,000 to a million weights with many labels; else one component."""
    middle = MIDDLE < size.num_params <= LARGE
    several = size.classes and size.gram is None and middle and size.num_data * size.labels >= MANY
    return COMPONENTS if several else 1


def default_recipe(size: Size, components: int = 1) -> Recipe:
    """The schedule: as many samples per component as 100 million multiplications per step afford, up to a limit.

    Large networks are trained for a hundred epochs, within limits: few examples need few steps.

    A part of a classifier, up to 5,000 weights, is fitted at a tenth of the rates: features of trained networks are
    many and large, so that at full rates logits move by one or more in a step, and what was learned is lost at once.
    """
    recipe = _recipe_by_size(size, components)
    return _at_share(recipe, OF_A_PART) if size.part_of_classes else recipe


def _recipe_by_size(size: Size, components: int) -> Recipe:
    if size.gram is not None:
        return _with_exact_last_layer(size, size.gram, components)
    m = size.num_params
    most = 16 if size.one_by_one else MOST_OF_A_PART if size.part_of_classes else 1_000_000
    affordable = min(int(1e8 / size.work), most)
    if m <= SMALL:
        samples = max(8, min(2 * m, affordable))
        return Recipe(num_samples=samples + samples % 2, map_restarts=8 * components)
    if m <= MIDDLE:
        samples = max(8, min(64, affordable), min(256, int(0.3 * affordable)))
        few = Recipe(num_samples=samples + samples % 2, num_entropy_samples=2, map_restarts=4, spread=0.02)
        rates = replace(few, affine_rate=3e-3, nonlinear_rate=1e-3, hyper_rate=3e-2)
        if size.classes:
            return replace(rates, steps=2000, map_steps=1500, map_restarts=max(2, components))
        if size.num_data > FULL_BATCH:
            return _of_many_examples(rates, size, components)
        return (
            replace(rates, steps=600, map_steps=1000) if size.polished else replace(rates, steps=3000, map_steps=3000)
        )
    base = Recipe(num_samples=4 if m <= LARGE else 2, num_entropy_samples=1, map_restarts=1, map_rate=1e-3)
    rates = replace(base, affine_rate=3e-3, nonlinear_rate=3e-3, hyper_rate=2e-3, spread=0.1, relative_spread=True)
    rates = replace(rates, entropy_every=10)
    if m > LARGE:
        length = max(FEWEST, 15 * size.steps_per_epoch)
        rates = replace(rates, affine_rate=3e-4, nonlinear_rate=1e-3)  # of weights that are smaller, too
        return replace(rates, steps=min(20_000, length), map_steps=min(20_000, length))
    length = max(FEWEST, 100 * size.steps_per_epoch)
    alone = replace(rates, steps=min(4000, length), map_steps=min(5000, length))
    return alone if components == 1 else _of_a_mixture(alone, components)


def _of_a_mixture(alone: Recipe, components: int) -> Recipe:
    """The schedule of a mixture: as many gradients as an ensemble of five, or of as many as components.

    Components make up for what each of them misses, so that each is fitted for fewer steps and with fewer samples than
    a single one; but for at least 600 steps, in the start and in the rest.
    """
    gradients = max(COMPONENTS, components) * alone.map_steps
    samples = min(alone.num_samples, max(1, 8 // components))
    starts = round(SHARE_OF_STARTS * gradients / components)
    steps = round((1.0 - SHARE_OF_STARTS) * gradients / components / samples)
    return replace(alone, num_samples=samples, map_steps=max(FEWEST, starts), steps=max(FEWEST, steps))


def _of_many_examples(recipe: Recipe, size: Size, components: int) -> Recipe:
    """The schedule for regressions with many examples: forty epochs, but 3,000 to 20,000 steps.

    Their posterior is narrow, so that a few samples a step are enough, and it is the noise of minibatches that takes
    time to average out.
    """
    steps = min(20_000, max(3_000, 40 * size.steps_per_epoch))
    return replace(
        recipe,
        steps=steps,
        map_steps=steps // 2,
        map_restarts=max(2, components),
        num_samples=min(16, recipe.num_samples),
        spread=recipe.spread * size.narrowing,
    )


def _with_exact_last_layer(size: Size, gram: float, components: int) -> Recipe:
    """The schedule with an exact last layer: as many samples as the evidence affords, but at least 4 or 16."""
    if size.features_only:
        return _features_recipe(min(64, max(4, int(BUDGET / gram))), size.num_data, components)
    work = size.num_data * size.num_params
    recipe = default_recipe(Size(size.layout, size.num_data, 1, work, one_by_one=size.one_by_one), components)
    affordable = max(16, int(BUDGET / gram))
    samples = min(recipe.num_samples, affordable + affordable % 2)
    return replace(recipe, num_samples=samples, num_entropy_samples=min(samples, recipe.num_entropy_samples))


def _features_recipe(num_samples: int, num_data: int, components: int) -> Recipe:
    """The schedule of a middle-sized network with an exact last layer, chosen on held-out rows of ten tables.

    For few examples: from the network's own weights, at high rates. Random features with an exact last layer already
    fit well, whereas MAP estimates of them overfit and make the noise too small. For many examples, whose posterior is
    narrow: from a MAP estimate, at low rates, which would not get far from random weights.

    A step on more examples takes longer and tells more, so that fewer steps are taken from 1,024 examples on.
    """
    few = Recipe(
        steps=600 if num_data <= 1024 else 450,
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
    return replace(few, steps=1000, map_steps=1000, affine_rate=2e-3, nonlinear_rate=6e-4, hyper_rate=5e-2)


def wants_polish(problem: Problem) -> bool:
    """Whether mean and noise are both outputs of a middle-sized network, and all examples are one batch.

    Such posteriors are so stiff that a variational fit predicts worse than the network that it starts from, and chains
    do not (docs/benchmarks/polish.md).
    """
    middle = SMALL < problem.layout.num_params <= MIDDLE and problem.integrated is None
    return middle and _one_batch(problem.data) and isinstance(problem.likelihood.observed, HeteroscedasticGaussian)


def wants_conditional(problem: Problem) -> bool:
    """Whether the last layer is inferred given the others: for labels, a middle-sized network, and one batch.

    Only where that is quick, which `integrate_last_layer` decides. Chosen on validation rows by
    `python -m benchmarks.choose_classes` (docs/benchmarks/classes.md).
    """
    return problem.classes and not against_conditional(problem)


def against_conditional(problem: Problem) -> str:
    """The reason why the last layer of labels is sampled by default; empty if it is inferred given the others."""
    weights, data = problem.layout.num_params, problem.data
    if not SMALL < weights <= MIDDLE:
        return (
            f"of labels it is inferred given the others, by default, where there are {SMALL} to {MIDDLE:,} weights, "
            f"and there are {weights:,}"
        )
    if isinstance(data, TensorData) and data.augment is not None:
        return "augmentation makes other examples at every epoch"
    if not _one_batch(data):
        batches = f"they come in {data.steps_per_epoch:,}" if data.steps_per_epoch > 1 else "they come from a loader"
        return f"of labels it is inferred given the others where all examples are one batch, and {batches}"
    return ""


def _one_batch(data: Data) -> bool:
    """Whether the data are in memory, all in one batch, and the same at every epoch."""
    return isinstance(data, TensorData) and data.steps_per_epoch == 1 and data.augment is None


def from_trained(recipe: Recipe, size: Size) -> Recipe:
    """The schedule for a network that is trained already: no MAP fit, and fewer steps.

    One of convolutions that tells classes apart is fitted at a fifth of the rates. Adam moves every weight by its rate,
    and a filter moves the outputs of all places at once: logits move by 0.5 in a step at full rates, against 0.1 to 0.2
    in dense networks, and what was learned is lost within thirty. A MAP start has less to lose: it fits noise.
    """
    fewer = replace(recipe, map_steps=0, map_restarts=1, steps=max(min(600, recipe.steps), recipe.steps // 2))
    return _at_share(fewer, OF_FILTERS) if size.filters_of_classes else fewer


def from_posterior(recipe: Recipe, size: Size) -> Recipe:
    """The schedule for a posterior that is fitted already: at most 0.3 of the rates, no KL warm-up.

    At full rates a fit first loses what was learned: on 60 points of a sine, last layer sampled, one seed, 400 steps
    after 1,500 ended 2.6 nats lower at full rates, and 0.3 nats higher at 0.3 of them.
    """
    fewer = replace(from_trained(recipe, size), kl_warm_up=0.0)
    return fewer if size.filters_of_classes else _at_share(fewer, 0.3)


def _at_share(recipe: Recipe, share: float) -> Recipe:
    """The schedule at so much of the learning rates of a fit."""
    rates = {name: share * getattr(recipe, name) for name in ("affine_rate", "nonlinear_rate", "hyper_rate")}
    return replace(recipe, **rates)
