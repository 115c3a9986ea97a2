"""`livi.fit`: a network and data in, a posterior out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from numbers import Real
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import nn

from livi import checks
from livi.family.ensemble import Ensemble
from livi.inference.alarms import alarms
from livi.inference.begin import Beginning, begin, spread_out
from livi.inference.callbacks import Callback, Callbacks, Row, as_callbacks
from livi.inference.divergence import REMEDY, FitError
from livi.inference.final_check import (
    Yardstick,
    expected_log_likelihood,
    leave_out,
    lost_components,
    lost_likelihood,
)
from livi.inference.loop import Trainer
from livi.inference.map_fits import map_weights
from livi.inference.options import PlanOptions, checked
from livi.inference.parameters import copied
from livi.inference.planning import plan
from livi.inference.plans import Plan
from livi.inference.progress import FitProgress
from livi.inference.ranks import Alone, joined
from livi.inference.result import Result
from livi.inference.resume import MAY_DIFFER, plan_again
from livi.inference.stopping import EarlyStopping
from livi.inference.validation import Validation, split_off, validation_of
from livi.model.likelihoods import Likelihood
from livi.model.warning import warn
from livi.network.modes import with_gradients
from livi.posterior import storage
from livi.posterior.posterior import Posterior
from livi.running import kept_memory
from livi.sampling import LANGEVIN_ENSEMBLE, LANGEVIN_MAP_STEPS, ChainSettings
from livi.sampling.polishing import polish

NARROWER = 0.25  # factor on the spread when a fit is started again
TOO_EARLY = (
    "interrupted while looking for a start: keeping a narrow posterior around the best weights so far, whose spread is "
    "the recipe's and not learned."
)


@checked(like=plan)
@with_gradients
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
    validation: Any = None,
    validate_every: int | str | None = None,
    callbacks: Sequence[Callback | Callable[[Row], object]] = (),
    distributed: bool | None = None,
    shard: bool | None = None,
    **options: Unpack[PlanOptions],
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
        validation: examples that are not fitted but scored on: (X, y), a DataLoader, or a share such as 0.1 of the
            data, which is split off by the seed: of (X, y), a Dataset, or the dataset that a DataLoader without a
            sampler of its own goes through. Rows of history then have `validation_nll`, and
            `validation_accuracy` or `validation_rmse`.
        validate_every: steps between validations, or "epoch"; a twentieth of the fit where not given. See `Validation`.
        callbacks: objects of `livi.Callback`, such as `livi.EarlyStopping()` and `livi.CSVLogger(path)`, and functions
            that are called with each logged row.
        distributed: by default all processes that torchrun started fit together, and each returns the same posterior;
            False fits in this process alone. See docs/distributed.md.
        shard: each process keeps a part of the optimiser's state; by default where parameters, gradients and that state
            would take more than a quarter of a GPU.
        **options: as in `plan`, which shows what will be done without doing it.

    Raises:
        FitError: smaller steps and a narrower start did not keep the fit from diverging, or from ending far below
            the weights that it started from; its `posterior` is what was reached. A fit that goes on from a
            checkpoint is not started again.
        ValueError: the checkpoint is of another fit; the message names what differs.
        TypeError: there is no such option; the message names the nearest.
    """
    seed, called, ranks = checks.seed(seed), as_callbacks(callbacks), joined(distributed)
    checks.positive_int("checkpoint_every", checkpoint_every)
    options = ranks.placed(options, net)
    if isinstance(validation, Real):
        data, validation = split_off(data, float(validation), seed)
    elif validation is None and validate_every is not None:
        raise ValueError("validate_every: expected only with validation data, got none; pass validation=0.1 or (X, y).")
    written = ranks.agreed(checkpoint is not None and Path(checkpoint).exists())
    resumed = storage.read_checkpoint(checkpoint) if checkpoint is not None and written else None
    if resumed is None:
        prepared = plan(net, data, likelihood, seed=seed, **options)
    else:
        prepared = plan_again(resumed, net, data, likelihood, seed=seed, **options)
    if options.get("budget") is not None:  # by the clock of one
        recipe, chains = ranks.agreed((prepared.recipe, prepared.chains))
        prepared = replace(prepared, recipe=recipe, chains=chains)
    facts = prepared.summary()
    _make_equal(prepared, ranks, facts | {"seed": seed}, resumed)
    quiet = not progress or not ranks.first
    show = FitProgress(prepared.recipe.steps, quiet=quiet, log_dir=log_dir if ranks.first else None)
    if prepared.standardised:
        show.say(f"{' and '.join(prepared.standardised)} are standardised inside, for they are far from order one")
    if prepared.merged:
        show.say(prepared.merged)
    try:
        result = Result(prepared)
        trainer = Trainer(
            prepared.bound,
            ranks.part(prepared.data, prepared.bound, fewest=prepared.problem.fewest),
            prepared.recipe,
            seed=seed,
            progress=show,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            facts=facts,
            capture=prepared.capture,
            callbacks=_watched(result, [show, *called], validation, validate_every, options, ranks),
            ranks=ranks,
            sharded=ranks.shards(prepared.bound, shard),
        )
        with kept_memory():
            return _run(prepared, trainer, result, None if resumed is None else resumed["state"])
    finally:
        show.close()


def _make_equal(prepared: Plan, ranks: Alone, facts: dict[str, Any], resumed: dict[str, Any] | None) -> None:
    """Raise where ranks are about to make different fits; then give all of them the same network and posterior."""
    fixed = {name: value for name, value in facts.items() if name not in {*MAY_DIFFER, "buffers"}}  # made equal below
    reached = None if resumed is None else resumed["state"].get("step", "the start")
    ranks.check_same("fit", fixed | {"recipe": facts["recipe"], "the checkpoint's step": reached})
    integrated = prepared.problem.integrated
    ranks.equal(prepared.bound, prepared.layout.module, *([] if integrated is None else [integrated.layout.module]))


def _watched(
    result: Result,
    callbacks: list[Callback],
    validation: Any,
    every: int | str | None,
    options: PlanOptions,
    ranks: Alone,
) -> Callbacks:
    """The callbacks with their validation, whose first batch is scored now, so that mistakes show before the fit."""
    prepared = result.prepared
    scoring: Validation | None = None
    metrics: tuple[str, ...] = ()
    if validation is not None:
        scoring = validation_of(
            validation,
            every,
            steps=prepared.recipe.steps,
            steps_per_epoch=prepared.data.steps_per_epoch,
            device=prepared.layout.device,
            dtype=prepared.layout.dtype,
            unpack=options.get("unpack"),
            ranks=ranks,
        )
        try:
            metrics = tuple(scoring.scores(result.copied(prepared.bound), batches=1))
        except (RuntimeError, TypeError, ValueError) as error:
            raise type(error)(f"validation: the first batch cannot be scored: {error}") from error
    for callback in callbacks:
        if isinstance(callback, EarlyStopping):
            callback.check(metrics)
    return Callbacks(callbacks, posterior=result.posterior, validation=scoring, metrics=metrics)


def _run(prepared: Plan, trainer: Trainer, result: Result, state: dict[str, Any] | None) -> Posterior:
    """Run the fit, from its start or from a checkpoint's state, and return the posterior."""
    if state is not None and "bound" in state:
        trainer.load(state)
        trouble = _train(result, trainer)
    else:
        begun = _begin(prepared, trainer, None if state is None else state["start"])
        if trainer.interrupted:
            warn(TOO_EARLY)
            return _finish(result, trainer)
        if trainer.checkpoint is not None:
            trainer.save()
        before = copied(prepared.bound.state_dict())
        trouble = _train(result, trainer)
        if trouble and not trainer.interrupted and prepared.chains is not None and prepared.problem.integrated is None:
            prepared.bound.load_state_dict(before)
            return _from_modes(prepared, trainer, result, trouble)
        if trouble and not trainer.interrupted:
            narrower = "" if begun is None else f"{NARROWER:g} times as wide and "
            trainer.progress.say(f"{trouble} Starting again, {narrower}at half the rates.")
            prepared.bound.load_state_dict(before)
            if begun is not None:
                spread_out(prepared, begun.theta, NARROWER)
                trainer.ranks.equal(prepared.bound)
            trainer.restart(rate_scale=0.5)
            trouble = _train(result, trainer)
    posterior = _finish(result, trainer)
    if trouble:
        error = FitError(
            f"{trouble.removesuffix(f' {REMEDY}.')} {REMEDY}; what was reached is this error's `posterior`."
        )
        error.posterior = posterior
        raise error
    return posterior if prepared.chains is None or trainer.interrupted else _polished(prepared, posterior, trainer)


def _from_modes(prepared: Plan, trainer: Trainer, result: Result, trouble: str) -> Posterior:
    """Chains from short MAP fits, after the fit that they were to start from has failed."""
    assert prepared.chains is not None
    trainer.progress.say(f"{trouble} Chains start at {LANGEVIN_ENSEMBLE.chains} short MAP fits instead.")
    chains = LANGEVIN_ENSEMBLE.lasting(prepared.chains.steps / ChainSettings().steps)
    map_steps = min(LANGEVIN_MAP_STEPS, prepared.recipe.map_steps)
    recipe = replace(prepared.recipe, map_restarts=chains.chains, map_steps=map_steps)
    starts, failed = map_weights(prepared.problem, recipe, seed=trainer.seed), _finish(result, trainer)
    members = Posterior(
        Ensemble(prepared.layout, starts.theta).requires_grad_(False),
        failed.likelihood,
        failed.prior,
        history=failed.history,
        plan=failed.plan | {"failed": trouble, "gradients": failed.plan["gradients"] + chains.chains * map_steps},
    )
    return _polished(replace(prepared, chains=chains), members, trainer)


def _polished(prepared: Plan, posterior: Posterior, trainer: Trainer) -> Posterior:
    """The posterior polished by the plan's chains; the posterior itself where Ctrl-C ends them."""
    assert prepared.chains is not None
    quiet = trainer.progress.quiet
    try:
        found = polish(posterior, prepared.data, seed=trainer.seed, progress=not quiet, **asdict(prepared.chains))
        assert isinstance(found.sampler, nn.Module)
        trainer.ranks.equal(found.sampler)
        return found
    except KeyboardInterrupt:
        text = "interrupted while polishing: keeping what the chains started from; fit again for more."
        warn(text)
        posterior.plan["interrupted_at"] = trainer.step
        return posterior


def _begin(prepared: Plan, trainer: Trainer, state: dict[str, Any] | None) -> Beginning | None:
    """Put the posterior around its start. None where it starts with the parameters of an earlier posterior."""
    if prepared.start == "posterior":
        rng = torch.Generator(prepared.layout.device).manual_seed(trainer.seed)
        trainer.start_log_likelihood = expected_log_likelihood(prepared.bound, prepared.data, rng)
        return None
    begun = begin(
        prepared,
        trainer.seed,
        trainer.progress,
        state=state,
        save=None if trainer.checkpoint is None else trainer.save_search,
        save_every=trainer.checkpoint_every,
        ranks=trainer.ranks,
    )
    trainer.ranks.equal(prepared.bound)
    trainer.start_log_likelihood, trainer.interrupted = trainer.ranks.agreed(begun.log_likelihood), begun.interrupted
    return begun


def _train(result: Result, trainer: Trainer) -> str:
    """Train to the end; returns what went wrong, or an empty text."""
    try:
        trainer.run()
    except FitError as error:
        return str(error)
    if trainer.interrupted:
        return ""
    prepared = result.prepared
    judged = (prepared.bound, prepared.data, _yardstick(result, trainer), trainer.rng)
    lost = trainer.ranks.agreed(lost_likelihood(*judged))
    if not lost:
        leave_out(prepared.bound, trainer.ranks.agreed(lost_components(*judged)))
    return lost


def _yardstick(result: Result, trainer: Trainer) -> Yardstick:
    return Yardstick(trainer.start_log_likelihood, result.constant_log_likelihood, trainer.recipe.temperature)


def _finish(result: Result, trainer: Trainer) -> Posterior:
    bound = trainer.bound
    trainer.stepper.reset()  # a GPU's memory is for what comes next
    unconverged = float(trainer.missed) / max(1.0, float(trainer.estimated))
    final = trainer.history and not trainer.interrupted and result.prepared.chains is None  # chains do not follow
    if final and trainer.ranks.first:
        reached = expected_log_likelihood(bound, result.prepared.data, trainer.rng)
        for text in alarms(bound, reached, _yardstick(result, trainer), unconverged, trainer.rng):
            warn(text)
    facts = trainer.facts | bound.family.facts()  # a component may have been left out
    recipe, drawn = trainer.recipe, trainer.recipe.num_samples * trainer.facts.get("components", 1)
    facts |= {
        "gradients": recipe.map_restarts * recipe.map_steps + (trainer.repeated + trainer.step) * drawn,
        "interrupted_at": trainer.step if trainer.interrupted else None,
        "stopped_at": trainer.step if trainer.stopped else None,
        "stopped_because": trainer.stopped or None,
        "parameters_of": trainer.parameters_of,
    }
    return result.posterior(bound, trainer.history, facts)
