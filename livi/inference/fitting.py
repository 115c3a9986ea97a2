"""`livi.fit`: a network and data in, a posterior out."""

from __future__ import annotations

import copy
import inspect
import warnings
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi.family.implicit import ImplicitPosterior
from livi.family.last_layer import ExactLastLayer
from livi.inference.alarms import alarms
from livi.inference.begin import begin, spread_out
from livi.inference.judgement import lost_likelihood
from livi.inference.loop import FitError, Trainer
from livi.inference.memory import kept_memory
from livi.inference.planning import plan
from livi.inference.plans import Plan
from livi.inference.progress import Progress
from livi.inference.resume import plan_again
from livi.model.data import Data, TensorData, some_inputs
from livi.model.likelihoods import Likelihood
from livi.model.problem import FitWarning
from livi.posterior import storage
from livi.posterior.posterior import Posterior

NARROWER = 0.25  # of the spread, where a fit is started again
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
        begun = begin(
            prepared,
            trainer.seed,
            progress,
            state=None if state is None else state["start"],
            save=None if trainer.checkpoint is None else trainer.save_search,
            save_every=trainer.checkpoint_every,
        )
        trainer.start_log_likelihood, trainer.interrupted = begun.log_likelihood, begun.interrupted
        if trainer.checkpoint is not None and not begun.interrupted:
            trainer.save()
        if begun.interrupted:
            warnings.warn(TOO_EARLY, FitWarning, stacklevel=4)
            return _finish(prepared, trainer)
        before = _on_cpu(prepared.bound.state_dict())
        trouble = _train(prepared, trainer)
        if trouble and not trainer.interrupted:
            progress.say(f"{trouble} Starting again, {NARROWER:g} times as wide and at half the rates.")
            prepared.bound.load_state_dict(before)
            spread_out(prepared, begun.theta, NARROWER)
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


def _on_cpu(state: Any) -> Any:
    """A copy that takes no memory of a GPU; a family may have more than tensors in it."""
    return pytree.tree_map(
        lambda leaf: leaf.detach().cpu().clone() if isinstance(leaf, Tensor) else copy.deepcopy(leaf), state
    )


def _train(prepared: Plan, trainer: Trainer) -> str:
    """Run to the end; what went wrong, if something did."""
    try:
        trainer.run()
    except FitError as error:
        return str(error)
    if trainer.interrupted:
        return ""
    return lost_likelihood(prepared.bound, prepared.data, trainer.start_log_likelihood, trainer.rng)


def _finish(prepared: Plan, trainer: Trainer) -> Posterior:
    bound = prepared.bound
    unconverged = float(trainer.missed) / max(1, trainer.step)
    if trainer.history and not trainer.interrupted:
        recent = [row["log_likelihood"] for row in trainer.history[-10:]]
        for text in alarms(bound, sum(recent) / len(recent), trainer.start_log_likelihood, unconverged, trainer.rng):
            warnings.warn(text, FitWarning, stacklevel=3)
    bound.requires_grad_(False)
    facts = prepared.summary() | {"interrupted_at": trainer.step if trainer.interrupted else None}
    if prepared.problem.integrated is not None:
        assert isinstance(bound.posterior, ImplicitPosterior)
        sampler = ExactLastLayer.of(prepared.problem, bound.posterior, bound.likelihood, bound.prior)
        return Posterior(sampler, sampler.likelihood.noise, bound.prior, history=trainer.history, plan=facts)
    calibration = _calibration(prepared.data) if bound.posterior.layout.statistics() else None
    return Posterior(
        bound.posterior, bound.likelihood, bound.prior, calibration=calibration, history=trainer.history, plan=facts
    )


def _calibration(data: Data) -> Any:
    """Inputs of a few hundred examples, from all over the data where they are at hand: rows may come in an order."""
    shuffled = TensorData(data.inputs, data.targets, CALIBRATION) if isinstance(data, TensorData) else data
    return some_inputs(shuffled, CALIBRATION)
