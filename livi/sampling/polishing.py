"""`livi.polish`: a fitted posterior, polished by Markov chains that start at its draws."""

from __future__ import annotations

import copy
import time
from dataclasses import asdict, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from livi import checks
from livi.model.data import Batch, Unpack
from livi.model.likelihoods import (
    ClassificationLikelihood,
    HeteroscedasticGaussian,
    Likelihood,
    RegressionLikelihood,
)
from livi.model.problem import Problem
from livi.model.warning import warn
from livi.network import apply_many, as_call
from livi.network.linearised import Linearised
from livi.network.modes import with_gradients
from livi.posterior.posterior import Posterior
from livi.running import Progress, kept_memory
from livi.sampling.chain_noise import following, learned_noise, restored
from livi.sampling.chain_target import ChainTarget
from livi.sampling.chains import ENERGY_ERROR, ChainRun, Differentiated, run_chains
from livi.sampling.convergence import effective_size, split_rhat
from livi.sampling.kept_draws import kept_as_posterior, other_data
from livi.sampling.log_joint import differentiated_joint
from livi.sampling.polish_report import PolishReport
from livi.sampling.stacking import left_out_scores, picked, stacked
from livi.sampling.tempering import Population, anneal

WARM_UP = 0.3  # share of all steps
PROBES = 32  # training inputs at which predictions are followed
FEWEST = 8  # draws of a chain; convergence cannot be measured with fewer
LARGE_RHAT = 2.0
LARGE_ERROR = 20.0  # times the energy error that was asked for, above which a warning is given
SPARE = 4  # times as many draws of each chain as equal shares need, for stacking to choose from
JUDGED = 2000  # most examples with which chains are weighted


@with_gradients
def polish(
    posterior: Posterior,
    data: Any = None,
    *,
    chains: int = 16,
    draws: int = 400,
    steps: int = 1000,
    warm_up: float = WARM_UP,
    energy_error: float = ENERGY_ERROR,
    first_error: float | None = None,
    start: Literal["draws", "prior"] = "draws",
    weighting: Literal["equal", "stacked"] = "equal",
    seed: int = 0,
    progress: bool = True,
    unpack: Unpack | None = None,
) -> Posterior:
    """The same model's posterior by Markov chains on all data, which start at draws of this one: an `Ensemble`.

    Microcanonical Langevin chains without a Metropolis test (see `livi.sampling.chains`), all at once, each step two
    gradients of log p(D, theta) on the whole data set. Their target is the exact posterior under the posterior's own
    prior and likelihood, whose scales stay as fitted. So does a noise that was given; one that was learned follows the
    chains during the warm-up, for that of a fit is too large where it fits less well than the chains do. Measured on
    regression networks of a few hundred weights (docs/benchmarks/polish.md), from fits and from cold starts, such as
    the members of `livi.rivals.fit_ensemble`. Where the posterior has an exact last layer, chains move the earlier
    weights alone, and each draw is completed by an exact one of that layer.

    How it went is in `print(PolishReport.of(polished))`. Chains that diverge, or stay hopelessly below the others, are
    left out and a warning says so; another says where chains disagree about predictions.

    Args:
        data: as for `livi.fit`, the same examples that the posterior was fitted to. They are put together into one
            batch, and take at most 256 MB. A posterior with an exact last layer holds its own, which are used.
        chains: how many, side by side. Different modes need different chains; a dozen agree or not.
        draws: kept networks in all, from the steps behind the warm-up.
        steps: of each chain.
        warm_up: share of the steps that choose the step size, and are not kept.
        energy_error, first_error: mean squared error of a step per weight, which decides its size, and that of the
            first step. Larger ones explore more, with a larger bias (docs/benchmarks/polish.md).
        start: where chains start. "draws": at draws of the posterior. "prior": at draws of the prior, which are cooled
            down to the posterior together and resampled on the way (see `livi.sampling.tempering`); it takes more
            chains, a hundred or so, and finds modes and their shares that the posterior knows nothing of. Of the
            posterior only the model is then used: prior, noise, scales.
        weighting: "stacked" keeps draws of each chain in shares by which the chains together predict examples left
            out best (see `livi.sampling.stacking`), for chains that do not mix; "equal" the same number of each.
        seed: decides every random draw.
        progress: show a progress bar.
        unpack: batch -> (inputs, targets), as in `livi.plan`.

    Raises:
        ValueError: data that are too large or differ from epoch to epoch, a posterior without a prior, or not one
            chain that holds.
    """
    seed = checks.seed(seed)
    _check_options(chains, draws, warm_up, weighting, start)
    _check_posterior(posterior)
    started = time.perf_counter()
    target = ChainTarget.of(posterior, data, unpack)
    for text in _doubts(posterior, target, data, unpack):
        warn(text)
    rng = torch.Generator(posterior.layout.device).manual_seed(seed)
    show = Progress(steps, quiet=not progress)
    show.begin(0, steps, "polish")
    warming, each = max(1, int(warm_up * steps)), -(-draws // chains)
    density, noise = differentiated_joint(target.moved, chains), learned_noise(target.moved.likelihood)
    with kept_memory(), restored(noise):
        cooled = _cooled(target, density, chains, energy_error, rng) if start == "prior" else None
        run = run_chains(
            density,
            target.start(posterior, chains, rng) if cooled is None else cooled.theta,
            steps=steps,
            warm_up=warming,
            draws=each if weighting == "equal" else max(each, min(SPARE * each, steps - warming)),
            rng=rng,
            energy_error=energy_error,
            first_error=first_error,
            watch=lambda step, values: _show(show, step, values),
            adjust=following(target.moved, noise, warming) if noise else None,
        )
        networks = target.completed(run.draws, rng)
        theta, weights = _kept(target.whole, networks, draws, weighting)
        show.close()
        report = _report(target.whole, networks, run, time.perf_counter() - started, len(theta), weights, cooled)
        likelihood = target.whole.likelihood
        likelihood = copy.deepcopy(likelihood).requires_grad_(False) if noise else likelihood
        finished = kept_as_posterior(posterior, likelihood, target.whole, theta, {"polish": asdict(report)})
    for text in _alarms(report, chains, energy_error):
        warn(text)
    return finished


def _check_options(chains: int, draws: int, warm_up: float, weighting: str, start: str) -> None:
    checks.positive_int("chains", chains)
    if checks.positive_int("draws", draws) < FEWEST * chains:
        raise ValueError(
            f"draws: expected at least {FEWEST * chains}, {FEWEST} for each of {chains} chains, got {draws}; ask for "
            "more, or for fewer chains."
        )
    if not 0.0 < warm_up < 1.0:
        raise ValueError(f"warm_up: expected a share of the steps between 0 and 1, got {warm_up!r}.")
    if weighting not in ("equal", "stacked"):
        raise ValueError(f"weighting: expected 'equal' or 'stacked', got {weighting!r}.")
    if start not in ("draws", "prior"):
        raise ValueError(f"start: expected 'draws' or 'prior', got {start!r}.")


def _check_posterior(posterior: Posterior) -> None:
    if not isinstance(posterior, Posterior):
        raise TypeError(f"posterior: expected what livi.fit returns, got {type(posterior).__name__}.")
    if isinstance(posterior.layout, Linearised):
        raise TypeError(
            "polish: expected weights of the network itself, got those of its linearisation; polish a fit of the "
            "network, such as livi.fit's or fit_map's."
        )


def _cooled(
    target: ChainTarget, density: Differentiated, chains: int, energy_error: float, rng: torch.Generator
) -> Population:
    """Draws of the prior, one for each chain, cooled down to the posterior."""
    prior, layout = target.moved.prior, target.moved.layout
    begun = prior.sample(chains, layout.num_params, rng).to(layout.device, layout.dtype)
    found = anneal(density, prior.log_prob, begun, energy_error=energy_error, rng=rng)
    # The log joint contains log p of the last layer's scales, if they have a prior; p(D | all scales) does not.
    scales = float(target.moved.likelihood.log_prob_of_scales())
    return replace(found, log_evidence=found.log_evidence - scales)


@torch.no_grad()
def _kept(problem: Problem, networks: Tensor, draws: int, weighting: str) -> tuple[Tensor, tuple[float, ...]]:
    """The networks to keep, of (T, C, m), chain by chain, and the chains' weights where they are not equal."""
    if weighting == "equal":
        return networks.transpose(0, 1).flatten(0, 1), ()
    scores, counts = _log_likelihoods(problem, networks)
    weights = stacked(left_out_scores(scores), counts)
    rows = picked(weights, draws, each=len(networks))
    return torch.cat([networks[some, i] for i, some in enumerate(rows)]), tuple(weights.tolist())


def _log_likelihoods(problem: Problem, draws: Tensor) -> tuple[Tensor, Tensor | None]:  # (T, C, m) -> (T, C, N), (N,)
    """Log likelihood of each example (of at most JUDGED) under each network, and the examples' weights, if any."""
    inputs, targets = _evenly_spaced(problem, JUDGED)
    args, kwargs = as_call(inputs)
    found, counts = [], None
    for theta in draws:
        outputs = apply_many(problem.layout, theta, *args, batch_statistics=True, strategy=problem.strategy, **kwargs)
        likelihood, own, weights = problem.likelihood.without_weights(outputs)
        counts = None if weights is None else weights[0]
        found.append(likelihood.log_prob(own, targets))
    return torch.stack(found), counts


def _show(progress: Progress, step: int, values: Tensor) -> None:
    if step % 50 == 0:
        progress.show(step, {"log_joint": float(values.mean())})


@torch.no_grad()
def _report(
    problem: Problem,
    networks: Tensor,
    run: ChainRun,
    seconds: float,
    kept: int,
    weights: tuple[float, ...],
    cooled: Population | None,
) -> PolishReport:
    followed = followed_predictions(problem, networks)
    rhat, effective = split_rhat(followed), effective_size(followed)
    levels = run.log_density[..., None]
    return PolishReport(
        chains=run.draws.shape[1],
        draws=kept,
        steps=run.gradients // 2,
        gradients=run.gradients + (0 if cooled is None else cooled.gradients),
        seconds=seconds,
        energy_error=float(run.energy_error.median()),
        step_size=float(run.step_size.median()),
        length=run.length,
        failed=run.failed,
        dropped=[f"chain {number} {why}" for number, why in run.dropped.items()],
        rhat=(float(rhat.median()), float(rhat.max())),
        effective=(float(effective.median()), float(effective.min())),
        rhat_log_joint=float(split_rhat(levels)),
        effective_log_joint=float(effective_size(levels)),
        log_joint=float(run.log_density.mean()),
        weights=weights,
        temperatures=0 if cooled is None else cooled.temperatures,
        ancestors=0 if cooled is None else cooled.ancestors,
        log_evidence=None if cooled is None else cooled.log_evidence,
    )


def followed_predictions(problem: Problem, draws: Tensor) -> Tensor:  # (T, C, m) -> (T, C, Q)
    """What each network predicts at some training inputs."""
    inputs, _ = _evenly_spaced(problem, PROBES)
    args, kwargs = as_call(inputs)
    found = []
    for theta in draws:
        outputs = apply_many(problem.layout, theta, *args, batch_statistics=True, strategy=problem.strategy, **kwargs)
        found.append(_numbers(problem.likelihood, outputs))
    return torch.stack(found)


def _evenly_spaced(problem: Problem, most: int) -> Batch:
    """At most so many examples, evenly spaced in the data; all of them under BatchNorm."""
    inputs, targets = problem.data.first()
    count = len(targets) if problem.layout.batch_norms else min(most, len(targets))
    rows = torch.linspace(0, len(targets) - 1, count, device=targets.device).long()
    return pytree.tree_map(lambda leaf: leaf[rows], inputs), targets[rows]


def _numbers(likelihood: Likelihood, outputs: Any) -> Tensor:  # (C, Q)
    """From outputs (C, B, ...): probabilities, or means (and deviations that vary), or else the outputs themselves."""
    likelihood, outputs, _ = likelihood.without_weights(outputs)
    if isinstance(likelihood, ClassificationLikelihood):
        parts = [likelihood.probabilities(outputs)]
    elif isinstance(likelihood, RegressionLikelihood):
        mean, std = likelihood.moments(outputs)
        parts = [mean, std] if std.shape == mean.shape and isinstance(likelihood, HeteroscedasticGaussian) else [mean]
    else:
        parts = [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    return torch.cat([part.detach().flatten(1) for part in parts], 1)


def _doubts(posterior: Posterior, target: ChainTarget, data: Any, unpack: Unpack | None) -> list[str]:
    """Warnings where the chains' target is not what the given posterior and data suggest."""
    found = other_data(posterior, target, data, unpack, "polish", "the chains are")
    if posterior.temperature != 1.0:
        found.append(
            "polish: chains sample the posterior itself; that they start at one of temperature "
            f"{posterior.temperature:g} makes no difference in the end."
        )
    return found


def _alarms(report: PolishReport, chains: int, meant: float) -> list[str]:
    found = []
    if report.dropped:
        found.append(
            f"Left out {len(report.dropped)} of {chains} chains: {'; '.join(report.dropped[:3])}. The others are kept."
        )
    if report.energy_error > LARGE_ERROR * meant:
        found.append(
            f"Steps too long for where the chains went: a squared energy error of {report.energy_error:.1e} per weight "
            f"where {meant:g} was meant, for their size was chosen while chains were elsewhere. Variances will "
            "be off; raise steps, or start from a better fit."
        )
    if report.rhat[0] > LARGE_RHAT:
        found.append(
            f"Chains disagree about predictions: R-hat is {report.rhat[0]:.2f} at half of the inputs and up to "
            f"{report.rhat[1]:.2f} at others, where 1 is agreement. Each chain knows its own part of the posterior: "
            "together they still average over it, as an ensemble does, but with unknown weights. Raise steps, or start "
            "from a better fit."
        )
    return found
