"""`livi.plan`: from a network, data, a likelihood and options to a `Plan`, a fit that is ready to run."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from livi import checks
from livi.durations import seconds
from livi.family.entropy import EntropyEstimator
from livi.family.family import Family
from livi.family.generators import Generator
from livi.family.last_layer import NotExactError, integrate_last_layer
from livi.family.latents import Latents
from livi.family.noise import Noise
from livi.inference.continuation import Continuation
from livi.inference.options import checked
from livi.inference.plans import Choices, Plan, make_plan
from livi.inference.recipe import Recipe
from livi.inference.rules import against_conditional, wants_conditional
from livi.model.data import Augment, Unpack
from livi.model.likelihoods import Likelihood
from livi.model.priors import Prior
from livi.model.problem import Choice, Problem
from livi.network import InputScaling
from livi.network.modes import with_gradients
from livi.network.parameters import Forward
from livi.posterior.posterior import Posterior

FEWEST = 50  # steps that a budget always leaves
LAST_LAYER = ("sampled", "exact", "conditional", "exact if possible")


@checked()
@with_gradients
def plan(
    net: nn.Module,
    data: Any,
    likelihood: Likelihood,
    *,
    include: str | Sequence[str] = "*",
    exclude: str | Sequence[str] = (),
    forward: Forward | None = None,
    unpack: Unpack | None = None,
    num_data: int | None = None,
    batch_size: int | None = None,
    augment: Augment | None = None,
    family: Choice[Family] = None,
    generator: Choice[Generator] = None,
    noise: Choice[Noise] = None,
    prior: Choice[Prior] = None,
    entropy: EntropyEstimator | None = None,
    latents: Latents | None = None,
    recipe: Recipe | None = None,
    steps: int | None = None,
    budget: float | str | None = None,
    start: str | Posterior = "map",
    components: int | None = None,
    polish: bool | None = None,
    autocast: torch.dtype | None = None,
    capture: bool | None = None,
    last_layer: str = "exact if possible",
    device: torch.device | str | None = None,
    standardise: bool | str = "auto",
    seed: int = 0,
) -> Plan:
    """What `fit` would do with these arguments, and what a step costs: `print(livi.plan(net, data, likelihood))`.

    Args:
        include, exclude, forward: which parameters are stochastic, and how the module is called; see `Layout`.
        unpack: batch -> (inputs, targets), for batches that are neither pairs nor dicts with a usual target name.
        num_data: N, where it cannot be found from the data. A warning says so where a DataLoader's dataset has another
            length.
        batch_size: for (X, y) data; by default all of it, up to 2,048 examples and 2 million multiplications, or
            256.
        augment: for (X, y) data, what is done to the inputs of every batch: a function of them and a torch.Generator on
            their device, such as `livi.CropFlip()` for images.
        generator, noise, prior: an object, or a function of the layout that makes one.
        family: another posterior than livi's, likewise; see `livi.Family`.
        recipe, steps: the schedule, as far as it is named; `steps` changes its length, and shortens the start in
            proportion, unless the recipe names its `map_steps`.
        budget: seconds, or a text such as "1 min": where the fit would take longer by what its first steps took, it is
            shortened, start and all, whatever the recipe names, to 50 steps at least. A clock then decides its length,
            so that the same seed may give another fit; the plan's steps repeat it.
        start: "map" begins at MAP estimates; "net" at the network's own weights, for one that is trained already: no
            MAP fit, and fewer steps. A `Posterior` of an earlier fit of this network goes on from there, for more steps
            or with more data: with its generator, noise, likelihood and prior as they were learned, without a MAP fit,
            spread or KL warm-up, at its temperature and at lower rates, where the recipe does not name them.
        components: K, the number of mixture components trained jointly. By default 1, or 5 for classifiers of 5,000 to
            a million weights that start from scratch with 5,000 labels and more (a text has one a character), where
            generator, samples and restarts are left open: the fit then takes as many gradients as an ensemble of five
            networks.
        polish: follow the fit by Markov chains from its draws, `livi.polish`, and return their draws. By default where
            the likelihood is HeteroscedasticGaussian or ContaminatedGaussian, there are 300 to 5,000 weights with a
            sampled last layer and one batch of data, and generator, noise and recipe are livi's own; the fit is then a
            short one.
        autocast: torch.bfloat16 runs the network in mixed precision where its last layer is sampled. One that is exact
            or conditional is inferred from the features, and the network then runs in full precision.
        capture: record a step as a CUDA graph and replay it. By default on a GPU where that has been found to give
            the same in less time; False never, True raises a `CaptureError` where it cannot.
        last_layer: "sampled" by the generator like all others, or "exact": integrated out under the same prior, for a
            Gaussian likelihood, a network whose output is that of an nn.Linear, and data that are the same at every
            epoch, all of which is used at every step. "conditional" does the same for classes and labels too, by the
            best Gaussian given the other weights and a lower bound in place of the evidence. "exact if possible" is
            exact for up to 20,000 examples (256 MB of batches), conditional for labels where there are 300 to 5,000
            weights and it is quick (about 1,000 examples), and else samples the layer; the plan says why. See
            `livi.family.last_layer`.
        device: where to fit; by default where the network is.
        standardise: True fits inputs and targets of any size as if they were of order one; predictions, scores and
            files are in your units all the same (see `livi.model.units`). "auto" does so for each side where it is far
            from order one and the network is not made for it: a trained one (`start="net"`) stays as it is, and so does
            one that scales inputs or outputs itself, or whose first layer is fixed by `include` or `exclude`, which a
            warning says. A posterior to start from brings its own.
    """
    seed = checks.seed(seed)
    if components is not None:
        checks.positive_int("components", components)
    checks.autocast(autocast)
    if isinstance(start, str) and start not in ("map", "net"):
        raise ValueError(f"start: expected 'map', 'net' or the Posterior of an earlier fit, got {start!r}.")
    earlier = None if isinstance(start, str) else Continuation(start)
    if earlier is not None:
        include, exclude = earlier.parameters(net, include, exclude, forward), ()
        likelihood, prior = earlier.likelihood_like(likelihood), earlier.prior_unless(prior)
        last_layer = earlier.last_layer(last_layer)
    units = _units(standardise, start)
    problem = Problem.of(
        net,
        data,
        likelihood,
        prior=prior,
        include=include,
        exclude=exclude,
        forward=forward,
        unpack=unpack,
        num_data=num_data,
        batch_size=batch_size,
        augment=augment,
        device=device,
        standardise=units,
    )
    _check_kinds(family=family, generator=generator, noise=noise, entropy=entropy, latents=latents, recipe=recipe)
    own = (copy.deepcopy(family), copy.deepcopy(generator), copy.deepcopy(noise))
    word = start if isinstance(start, str) else "posterior"
    choices = Choices(*own, entropy, latents, recipe or Recipe(), components, autocast, capture, word, polish)
    choices = choices if earlier is None else earlier.choices(choices)
    _check_family(choices)
    _check_temperature(choices)
    made = make_plan(_last_layer_of(problem, last_layer, choices, batch_size), choices, seed=seed)
    if steps is not None:
        shorter = _lasting(made, steps)
        named = "map_steps" in choices.recipe.named  # what the user says stays as it was said
        made = replace(shorter, recipe=replace(shorter.recipe, map_steps=made.recipe.map_steps)) if named else shorter
    if budget is None:
        return made
    share = seconds("budget", budget) / made.seconds
    return made if share >= 1.0 else _lasting(made, min(made.recipe.steps, max(FEWEST, int(share * made.recipe.steps))))


def _lasting(made: Plan, steps: int) -> Plan:
    chains = None if made.chains is None else made.chains.lasting(steps / made.recipe.steps)
    return replace(made, recipe=made.recipe.lasting(steps), chains=chains)


def _units(standardise: bool | str, start: str | Posterior) -> bool | str | InputScaling | None:
    """`standardise` for `Problem.of`: weights to start from keep the units that they were fitted in."""
    if standardise == "auto" and isinstance(start, Posterior):
        return start.layout.scaling
    if standardise is True and start != "map":
        raise ValueError(
            "standardise=True: expected start='map', for weights to start at would mean something else in other units, "
            f"got start={start if isinstance(start, str) else type(start).__name__!r}; leave standardise out."
        )
    return None if start != "map" and standardise in ("auto", False) else standardise


_KINDS: dict[str, tuple[Any, str]] = {
    "family": (Family, "a livi.Family, or a function of the layout that makes one"),
    "generator": (Generator, "a livi generator, or a function such as lambda layout: livi.MLP.for_layout(layout)"),
    "noise": (Noise, "a livi noise such as livi.FixedNoise(0.01), or a function of the layout that makes one"),
    "entropy": ((), "an estimator such as livi.Exact() or livi.Lanczos()"),  # any function of a generator and latents
    "latents": (Latents, "latents such as livi.family.latents.Orthogonal()"),
    "recipe": (Recipe, "a livi.Recipe, as in recipe=livi.Recipe(steps=1000)"),
}
_MAY_BE_FUNCTIONS = ("family", "generator", "noise", "entropy")


def _check_kinds(**given: Any) -> None:
    """Parts are objects, or for some of them functions of the layout. A class is neither, except a family's."""
    for name, value in given.items():
        kind, expected = _KINDS[name]
        a_class = isinstance(value, type)
        function = name in _MAY_BE_FUNCTIONS and callable(value) and (name == "family" or not a_class)
        if value is not None and not isinstance(value, kind) and not function:
            got = f"the class {value.__name__}" if a_class else type(value).__name__
            raise TypeError(f"{name}: expected {expected}, got {got}.")


def _check_family(choices: Choices) -> None:
    """Raise where a family is combined with generators, components or an entropy, which it has itself."""
    if choices.family is None:
        return
    given = [name for name in ("generator", "noise", "entropy", "latents") if getattr(choices, name) is not None]
    given += ["components"] if (choices.components or 1) > 1 else []
    if given:
        raise TypeError(f"{', '.join(given)}: expected none beside family=, which decides that itself; leave it out.")


def _check_temperature(choices: Choices) -> None:
    """Raise where chains, which sample the untempered posterior, are combined with another temperature."""
    if choices.polish and choices.recipe.temperature != 1.0:
        raise ValueError(
            f"polish=True: expected temperature 1, for chains sample the posterior itself, got "
            f"{choices.recipe.temperature:g}; leave one of them out."
        )


def _last_layer_of(problem: Problem, mode: str, choices: Choices, batch_size: int | None) -> Problem:
    """The problem with its last layer integrated out; or as it is, with the reason in `why_sampled`."""
    if mode not in LAST_LAYER:
        raise ValueError(f"last_layer: expected one of {', '.join(map(repr, LAST_LAYER))}, got {mode!r}.")
    if mode == "sampled":
        return replace(problem, why_sampled="as asked")
    sizes = {"generator": _weights_of(choices.generator), "noise": _weights_of(choices.noise)}
    asked = mode != "exact if possible"
    labels = mode == "conditional" or (not asked and wants_conditional(problem))
    try:
        if choices.family is not None:
            raise NotExactError("the family is one of the user's own")
        if choices.recipe.temperature != 1.0:
            raise NotExactError("its evidence is that of the untempered likelihood, and temperature is not 1")
        if problem.classes and not asked and not labels:
            raise NotExactError(against_conditional(problem))
        return integrate_last_layer(problem, asked=asked, labels=labels, batch_size=batch_size, sizes=sizes)
    except NotExactError as reason:
        if asked:
            raise ValueError(
                f"last_layer={mode!r}: expected a last layer that can be integrated out, but {reason}; change that, or "
                "pass last_layer='sampled'."
            ) from reason
        return replace(problem, why_sampled=str(reason))


def _weights_of(part: Choice[Generator] | Choice[Noise]) -> int | None:
    """How many weights a given generator or noise is for; None where it is made for the layout or fits any number."""
    if isinstance(part, Generator):
        return part.num_params
    return part.std().numel() if isinstance(part, Noise) and part.std().ndim else None
