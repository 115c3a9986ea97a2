"""`livi.fit`: a network and data in, a posterior out."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi import checks, storage
from livi.data import Data, TensorData, Unpack, as_data, some_inputs
from livi.entropy import EntropyEstimator
from livi.fitted import Posterior
from livi.generators import Generator
from livi.latents import Latents
from livi.layout import Layout, as_call, multiplications
from livi.layout.parameters import Forward
from livi.likelihoods import Likelihood
from livi.noise import Noise
from livi.priors import Prior
from livi.training.alarms import FitWarning, alarms
from livi.training.judgement import lost_likelihood
from livi.training.last import exact_last_layer, sampler_of
from livi.training.loop import FitError, Trainer
from livi.training.memory import kept_memory
from livi.training.plan import Choice, Choices, Plan, make_plan
from livi.training.progress import Progress
from livi.training.recipe import Recipe
from livi.training.start import Joint, MapStart

NARROWER = 0.25  # of the spread, where a fit is started again
FULL_BATCH_WORK = 2e6  # multiplications of the network on all examples, up to which a step uses them all
CALIBRATION = 512  # examples to measure the BatchNorm statistics of drawn networks on
TOO_EARLY = (
    "interrupted while looking for a start: keeping a narrow posterior around the best weights so far, whose spread is "
    "the recipe's and not learned."
)


def fit(
    net: nn.Module,
    data: Any,
    likelihood: Likelihood,
    *,
    seed: int = 0,
    progress: bool = True,
    log_dir: str | Path | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 500,
    **options: Any,
) -> Posterior:
    """An implicit posterior over the weights of `net`, from defaults that need no tuning.

    Starts at the best of a few MAP fits, spreads out narrowly, and maximises the bound L' while the KL term is warmed
    up (see `Recipe`). Network, likelihood and other objects passed in are copied, never modified.

    Args:
        net: any nn.Module.
        data: (X, y) tensors or arrays, a DataLoader, or any re-iterable of batches (see `unpack`).
        likelihood: Gaussian() for regression, Categorical() for classes, Bernoulli() for yes or no, ...
        seed: decides every random draw of the fit.
        progress: show a progress bar (plain lines when not on a terminal).
        log_dir: write TensorBoard scalars there as well.
        checkpoint: a file to write now and then; where it exists, the fit goes on from it, bit for bit on a CPU.
        **options: as in `plan`, which shows what will be done without doing it.

    Raises:
        FitError: smaller steps and a narrower start did not keep the fit from diverging, or from ending far below
            the weights that it started from; its `posterior` is what was reached.
        ValueError: the checkpoint is of another fit; the message names what differs.
    """
    unknown = sorted(options.keys() - inspect.signature(plan).parameters.keys())
    if unknown:
        known = ", ".join(list(inspect.signature(plan).parameters)[3:-1])
        raise TypeError(f"fit: expected options among {known}, got {unknown[0]!r}; correct the name.")
    resumed = storage.read_checkpoint(checkpoint) if checkpoint is not None and Path(checkpoint).exists() else None
    if resumed is None:
        prepared = plan(net, data, likelihood, seed=seed, **options)
    else:
        prepared = plan_again(resumed, net, data, likelihood, seed=seed, **options)
    show = Progress(prepared.recipe.steps, quiet=not progress, log_dir=log_dir)
    trainer = Trainer(
        prepared.bound,
        prepared.data,
        prepared.recipe,
        seed=seed,
        progress=show,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        facts=prepared.summary(),
        capture=prepared.capture,
    )
    try:
        with kept_memory():
            return _run(prepared, trainer, show, None if resumed is None else resumed["state"])
    finally:
        show.close()


def _run(prepared: Plan, trainer: Trainer, progress: Progress, state: dict[str, Any] | None) -> Posterior:
    """From the start, or from a checkpoint's state, to the posterior."""
    if state is not None and "bound" in state:
        trainer.load(state)
        trouble = _train(prepared, trainer)
    else:
        rows = _start(prepared, trainer, progress, None if state is None else state["start"])
        if trainer.interrupted:
            warnings.warn(TOO_EARLY, FitWarning, stacklevel=4)
            return _finish(prepared, trainer)
        before = {name: value.detach().cpu().clone() for name, value in prepared.bound.state_dict().items()}
        trouble = _train(prepared, trainer)
        if trouble and not trainer.interrupted:
            progress.say(f"{trouble} Starting again, {NARROWER:g} times as wide and at half the rates.")
            prepared.bound.load_state_dict(before)
            spread_out(prepared, rows, NARROWER)
            trainer.restart(rate_scale=0.5)
            trouble = _train(prepared, trainer)
    posterior = _finish(prepared, trainer)
    if trouble:
        error = FitError(
            f"{trouble} Standardise inputs and targets, check the data for extreme values, or raise "
            "Recipe.num_samples or lower its rates; what was reached is this error's `posterior`."
        )
        error.posterior = posterior
        raise error
    return posterior


def _train(prepared: Plan, trainer: Trainer) -> str:
    """Run to the end; what went wrong, if something did."""
    try:
        trainer.run()
    except FitError as error:
        return str(error)
    if trainer.interrupted:
        return ""
    return lost_likelihood(prepared.bound, prepared.data, trainer.start_log_likelihood, trainer.rng)


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
    generator: Choice[Generator] = None,
    noise: Choice[Noise] = None,
    prior: Choice[Prior] = None,
    entropy: EntropyEstimator | None = None,
    latents: Latents | None = None,
    recipe: Recipe | None = None,
    steps: int | None = None,
    start: str = "map",
    components: int = 1,
    autocast: torch.dtype | None = None,
    capture: bool | None = None,
    last_layer: str = "exact if possible",
    device: torch.device | str | None = None,
    seed: int = 0,
) -> Plan:
    """What `fit` would do with these arguments, and what a step costs: `print(livi.plan(net, data, likelihood))`.

    Args:
        include, exclude, forward: which parameters are stochastic, and how the module is called; see `Layout`.
        unpack: batch -> (inputs, targets), for batches that are neither pairs nor dicts with a usual target name.
        num_data: N, where it cannot be found from the data.
        batch_size: for (X, y) data; by default all of it, up to 2,048 examples and 2 million multiplications, or
            256.
        generator, noise, prior: an object, or a function of the layout that makes one.
        recipe, steps: the schedule, as far as it is named; `steps` alone changes its length, and shortens the start in
            proportion.
        start: "map" begins at MAP estimates; "net" at the network's own weights, for one that is trained already: no
            MAP fit, and fewer steps.
        components: K, the number of mixture components trained jointly.
        autocast: torch.bfloat16 runs the network in mixed precision.
        capture: record a step as a CUDA graph and replay it. By default on a GPU where that has been found to give
            the same in less time; False never, True raises a `CaptureError` where it cannot.
        last_layer: "sampled" by the generator like all others, or "exact": integrated out under the same prior, for a
            Gaussian likelihood, a network whose output is that of an nn.Linear, and data that are the same at every
            epoch, all of which is used at every step. "exact if possible" does so for up to 20,000 examples (256 MB
            of batches), and else samples it; the plan says why. See `livi.last_layer`.
        device: where to fit; by default where the network is.
    """
    if not isinstance(likelihood, Likelihood):
        raise TypeError(
            f"likelihood: expected one of livi's such as Gaussian() or Categorical(), got {type(likelihood).__name__}."
        )
    if not isinstance(net, nn.Module):
        raise TypeError(f"net: expected a torch.nn.Module, got {type(net).__name__}.")
    checks.positive_int("components", components)
    if start not in ("map", "net"):
        raise ValueError(f"start: expected 'map' or 'net', got {start!r}.")
    module = copy.deepcopy(net) if device is None else copy.deepcopy(net).to(checks.device(device))
    layout = Layout(module, include, exclude, forward=forward)
    if layout.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"net: expected weights in float32 or float64, got {layout.dtype}; fit `net.float()`, with "
            "autocast=torch.bfloat16 where speed matters."
        )
    batches = as_data(
        data, device=layout.device, dtype=layout.dtype, unpack=unpack, batch_size=batch_size, num_data=num_data
    )
    chosen = copy.deepcopy(likelihood).to(layout.device, layout.dtype).started_from(batches.first()[1])
    _try_first_batch(layout, batches, chosen)
    if isinstance(batches, TensorData) and batch_size is None:
        batches = batches.within(FULL_BATCH_WORK / _work_per_example(layout, batches))
    own = (copy.deepcopy(generator), copy.deepcopy(noise), copy.deepcopy(prior))
    choices = Choices(*own, entropy, latents, recipe or Recipe(), components, autocast, capture, start)
    exact = exact_last_layer(last_layer, layout, batches, chosen, choices, batch_size=batch_size, seed=seed)
    if isinstance(exact, Plan):
        made = exact
    else:
        made = replace(make_plan(layout, batches, chosen, choices, seed=seed), why_sampled=exact)
    return made if steps is None else replace(made, recipe=made.recipe.lasting(steps))


def _start(prepared: Plan, trainer: Trainer, progress: Progress, state: dict[str, Any] | None) -> Tensor:  # (K, m)
    """Put every component around its own start, and write the first checkpoint; the weights in the middle."""
    joint = Joint(prepared.layout, prepared.bound.likelihood, prepared.bound.prior, prepared.data, prepared.strategy)
    search = MapStart(joint, prepared.recipe, seed=trainer.seed, capture=prepared.capture, progress=progress)
    if state is not None:
        search.load(state)

    def save() -> None:
        assert trainer.checkpoint is not None
        kept = {"facts": trainer.facts, "state": {"start": search.state(), "seed": trainer.seed}}
        storage.write_checkpoint(trainer.checkpoint, kept)

    # A scale that the priors of the last layer and of others share would shrink to nothing in a MAP fit.
    shared = {*joint.likelihood.parameters()} & {*joint.prior.parameters()}
    for parameter in shared:
        parameter.requires_grad_(False)
    starts = search.run(None if trainer.checkpoint is None else save, trainer.checkpoint_every)
    for parameter in shared:
        parameter.requires_grad_(True)
    components = prepared.bound.posterior.num_components
    own = prepared.start == "net"
    rows = starts.theta[:1].expand(components, -1) if own else starts.pick(components, trainer.seed)
    spread_out(prepared, rows)
    trainer.interrupted = search.interrupted
    trainer.start_log_likelihood = float(starts.log_likelihood[0])
    if trainer.checkpoint is not None and not trainer.interrupted:
        trainer.save()
    return rows


def spread_out(prepared: Plan, rows: Tensor, factor: float = 1.0) -> None:  # (K, m)
    """Put each component around its row, as wide as the recipe says, or a share of that."""
    recipe, posterior = prepared.recipe, prepared.bound.posterior
    for generator, noise, row in zip(posterior.generators, posterior.noises, rows, strict=True):
        assert isinstance(generator, Generator)
        assert isinstance(noise, Noise)
        noise.init_around(row)
        spread: float | list[float] = factor * recipe.spread
        if recipe.relative_spread and generator.scale_sizes is not None:
            sizes = [float(part.square().mean().sqrt()) for part in row.split(generator.scale_sizes)]
            spread = [factor * recipe.spread * max(size, 0.01) for size in sizes]
        generator.init_around(row, spread)


def _finish(prepared: Plan, trainer: Trainer) -> Posterior:
    bound = prepared.bound
    unconverged = float(trainer.missed) / max(1, trainer.step)
    if trainer.history and not trainer.interrupted:
        recent = [row["log_likelihood"] for row in trainer.history[-10:]]
        for text in alarms(bound, sum(recent) / len(recent), trainer.start_log_likelihood, unconverged, trainer.rng):
            warnings.warn(text, FitWarning, stacklevel=3)
    bound.requires_grad_(False)
    facts = prepared.summary() | {"interrupted_at": trainer.step if trainer.interrupted else None}
    if prepared.last is not None:
        sampler = sampler_of(prepared.last, bound, *prepared.data.first())
        return Posterior(sampler, sampler.likelihood.noise, bound.prior, history=trainer.history, plan=facts)
    calibration = some_inputs(prepared.data, CALIBRATION) if bound.posterior.layout.statistics() else None
    return Posterior(
        bound.posterior, bound.likelihood, bound.prior, calibration=calibration, history=trainer.history, plan=facts
    )


def _work_per_example(layout: Layout, data: TensorData) -> float:
    """Multiplications of the network, from its first few examples."""
    some = pytree.tree_map(lambda leaf: leaf[: min(8, data.num_data)], data.inputs)
    args, kwargs = as_call(some)
    return multiplications(layout, *args, **kwargs) / min(8, data.num_data)


def _try_first_batch(layout: Layout, data: Data, likelihood: Likelihood) -> None:
    """The network runs, its parameters matter, its outputs suit the targets, and a N(0, 1) prior can reach these."""
    inputs, targets = data.first()
    args, kwargs = as_call(inputs)
    try:
        unused = layout.verify(*args, **kwargs)
    except (RuntimeError, TypeError, AttributeError) as error:
        shapes = [
            f"{tuple(leaf.shape)} {leaf.dtype}" for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)
        ]
        raise type(error)(f"the network failed on its first batch of inputs {', '.join(shapes)}: {error}") from error
    with torch.no_grad():  # raises where outputs and targets do not go together
        outputs = layout.apply(layout.flatten(), *args, batch_statistics=True, **kwargs)
        likelihood.log_prob(pytree.tree_map(lambda leaf: leaf[None], outputs), targets)
    if unused:
        warnings.warn(
            f"the outputs do not depend on {', '.join(unused[:4])}: their posterior will be the prior. "
            "Exclude them by pattern if that is not meant; saturated units from unstandardised inputs look the same.",
            FitWarning,
            stacklevel=4,
        )
    if targets.is_floating_point() and float(targets.abs().median()) > 20.0:
        warnings.warn(
            f"targets: expected values of order 1, got a median size of {float(targets.abs().median()):.3g}; "
            "standardise them (and the inputs), or give the prior a scale that can reach them.",
            FitWarning,
            stacklevel=4,
        )


def plan_again(
    resumed: dict[str, Any], net: nn.Module, data: Any, likelihood: Likelihood, *, seed: int, **options: Any
) -> Plan:
    """The plan of a checkpoint's fit, by its own recipe, which may be lengthened; an error names what differs."""
    before = resumed["facts"]
    if resumed["state"]["seed"] != seed:
        raise ValueError(f"checkpoint: expected seed {resumed['state']['seed']} as before, got {seed}.")
    kept = Recipe(**before["recipe"] | {"betas": tuple(before["recipe"]["betas"])})
    asked, steps = options.pop("recipe", None) or Recipe(), options.pop("steps", None)
    wanted = {name: getattr(asked, name) for name in asked.named} | ({} if steps is None else {"steps": steps})
    for name, value in wanted.items():
        if value != getattr(kept, name) and not (name == "steps" and value > kept.steps):
            raise ValueError(
                f"checkpoint: expected the same recipe as before, or more steps, but {name} was {getattr(kept, name)} "
                f"and is {value}; pass the same arguments, or another checkpoint file."
            )
    prepared = plan(net, data, likelihood, seed=seed, recipe=kept, **options)
    now = prepared.summary()
    free = {
        "seconds_per_step",
        "seconds_per_map_step",
        "memory_bytes",
        "strategy",
        "device",
        "recipe",
        "last_layer_reason",
    }
    for name in sorted((now.keys() & before.keys()) - free, key=lambda name: (name != "num_data", name)):
        if before.get(name) != now[name]:
            raise ValueError(
                f"checkpoint: expected the same fit as before, but {_difference(name, before.get(name), now[name])}; "
                "pass the same arguments, or another checkpoint file."
            )
    return replace(prepared, recipe=kept.lengthened(max(kept.steps, wanted.get("steps", 0))))


def _difference(name: str, before: Any, now: Any) -> str:
    """What was and is, of the innermost part that differs."""
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        before, now = dict(enumerate(before)), dict(enumerate(now))
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*now, *(key for key in before if key not in now)]:
            if before.get(key) != now.get(key):
                return _difference(f"{name}.{key}", before.get(key), now.get(key))
    return f"{name} was {before} and is {now}"
