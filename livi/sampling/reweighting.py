"""`livi.reweight`: draws of a fitted posterior in the shares that the exact posterior gives them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from livi import checks
from livi.family.implicit import ImplicitPosterior
from livi.family.last_layer import ExactLastLayer
from livi.model.data import Unpack
from livi.model.problem import Problem
from livi.model.warning import warn
from livi.network.modes import with_gradients
from livi.posterior.diagnostics.entropy import MAX_ENTRIES
from livi.posterior.diagnostics.log_det import largest_latent_dim
from livi.posterior.diagnostics.subject import Effort
from livi.posterior.importance_weights import ImportanceWeights
from livi.posterior.posterior import Posterior
from livi.running import CtrlC, Progress, kept_memory
from livi.sampling.chain_target import ChainTarget, work_on_example
from livi.sampling.kept_draws import kept_as_posterior, other_data
from livi.sampling.resampling import resampled
from livi.sampling.reweight_report import ReweightReport

BLOCK = 1e8  # multiplications of the networks that are evaluated at a time
NUMBERS = 2**23  # in the matrices and latents for the densities of a block of draws


@with_gradients
def reweight(
    posterior: Posterior,
    data: Any = None,
    *,
    num_samples: int = 2000,
    draws: int = 400,
    num_importance: int = 32,
    seed: int = 0,
    progress: bool = True,
    unpack: Unpack | None = None,
) -> Posterior:
    """The same model's posterior by importance sampling: draws of this one in shares of p(D, theta) / q(theta).

    Weights are of all data, under the posterior's own prior and likelihood, whose scales and noise stay as fitted.
    The largest are smoothed (Vehtari et al. 2024, "Pareto smoothed importance sampling"), and draws are kept by
    systematic resampling: an `Ensemble`, which predicts, is saved and diagnosed like any other. log q is estimated over
    the latents behind each draw, so that p / q is unbiased; that of a mixture is the mixture's, which gives every
    component the share that its evidence deserves. Where the last layer is exact, the earlier weights alone are
    weighted, on their evidence, and each kept draw gets a draw of that layer of its own.

    How it went is in `print(ReweightReport.of(reweighted))`: effective draws, the Pareto shape, the ELBO, the log
    evidence. A warning says where the weights cannot be relied on, as for most networks of more than a hundred or so
    weights (docs/benchmarks/reweight.md); `livi.polish` is for these. A mode without a draw of q is not noticed.

    Ctrl-C ends the drawing, and keeps what was drawn by then.

    Args:
        data: as for `livi.fit`, the same examples that the posterior was fitted to; at most 256 MB. A posterior with an
            exact last layer holds its own, which are used.
        num_samples: draws of q to weigh; of a mixture the next multiple of its components.
        draws: kept networks, some of them alike where weights are uneven.
        num_importance: latents for log q of each draw and component.
        seed: decides every random draw.
        progress: show a progress bar.
        unpack: batch -> (inputs, targets), as in `livi.plan`.

    Cost: for each draw and component about ten dense Jacobians of the generator, and `num_importance` evaluations.

    Raises:
        TypeError: a posterior whose density is not known.
        ValueError: no prior, too many weights or latents for log q, data that are too large or differ from epoch to
            epoch, or not one draw that the data allow.
    """
    checks.positive_int("num_samples", num_samples)
    checks.positive_int("draws", draws)
    checks.positive_int("num_importance", num_importance)
    seed = checks.seed(seed)
    if not isinstance(posterior, Posterior):
        raise TypeError(f"posterior: expected what livi.fit returns, got {type(posterior).__name__}.")
    sampler = _with_density(posterior)
    started = time.perf_counter()
    target = ChainTarget.of(posterior, data, unpack)
    for text in _doubts(posterior, target, data, unpack):
        warn(text)
    rng = torch.Generator(posterior.layout.device).manual_seed(seed)
    show = Progress(num_samples, quiet=not progress, unit="draws")
    with kept_memory():
        weighed = _weighed(sampler, target.moved, num_samples, num_importance, rng, show)
    show.close()
    if not bool(torch.isfinite(weighed.log_weights).any()):
        raise ValueError(
            f"posterior: expected draws that the data allow, got none of {len(weighed.theta)} with a finite log "
            "p(D, theta); fit again, with smaller rates."
        )
    weights = ImportanceWeights(weighed.log_weights)
    rows = resampled(weights.smoothed, draws, rng)
    theta = target.completed(weighed.theta[rows][None], rng)[0]
    report = _report(weighed, weights, rows, sampler.num_components, time.perf_counter() - started)
    finished = kept_as_posterior(posterior, target.whole.likelihood, target.whole, theta, {"reweight": report.facts()})
    for text in _alarms(report, num_samples):
        warn(text)
    return finished


def _with_density(posterior: Posterior) -> ImplicitPosterior:
    """The implicit posterior whose draws are weighted: the sampler itself, or that of the earlier layers.

    Raises:
        TypeError, ValueError: its log q is not known, or not affordable.
    """
    sampler = posterior.sampler
    remedy = "use livi.polish, which needs no log q"
    if isinstance(sampler, ExactLastLayer):
        if sampler.likelihood.word != "exact":
            raise TypeError(
                "posterior: expected a last layer that is exact or sampled, got one given the others by a bound; fit "
                f'with last_layer="sampled", or {remedy}.'
            )
        sampler = sampler.earlier
    if not isinstance(sampler, ImplicitPosterior):
        raise TypeError(
            f"posterior: expected one by a generator, whose density can be estimated, got {type(sampler).__name__}; "
            f"reweight a fit of livi.fit(..., polish=False), or {remedy}."
        )
    latent_dim, most = largest_latent_dim(sampler), Effort().max_density_dim
    if latent_dim > most or latent_dim * sampler.num_params > MAX_ENTRIES:
        raise ValueError(
            f"posterior: expected at most {most} latents, and {MAX_ENTRIES:,} latents times weights, for the density "
            f"of its draws, got {latent_dim:,} x {sampler.num_params:,}; {remedy}."
        )
    return sampler


@dataclass(frozen=True)
class _Weighed:
    """Draws of q, and log p(D, theta) - log q(theta) of each; -inf where that is not finite."""

    theta: Tensor  # (S, m')
    log_weights: Tensor  # (S,)
    components: Tensor  # (S,) the mixture component that each comes from
    density_error: Tensor  # (S,)


@torch.no_grad()
def _weighed(
    sampler: ImplicitPosterior,
    problem: Problem,
    num_samples: int,
    num_importance: int,
    rng: torch.Generator,
    show: Progress,
) -> _Weighed:
    """Draws and their log weights, block by block; Ctrl-C stops after the present block and keeps what there is."""
    components, latent_dim = sampler.num_components, largest_latent_dim(sampler)
    affordable = NUMBERS // (latent_dim * (latent_dim + 2 * num_importance))
    size = components * max(1, min(250, affordable) // components)
    blocks: list[_Weighed] = []
    # The log joint contains log p of the scales, which are held fixed here.
    scales = sum(float(part.log_prob_of_scales()) for part in (problem.prior, problem.likelihood))
    show.begin(0, num_samples, "reweight")
    try:
        with CtrlC() as ctrl_c:
            left = components * -(-num_samples // components)
            while left > 0:
                draw = sampler.draw(min(size, left), rng)
                density = sampler.log_prob_of(draw, num_importance=num_importance, rng=rng)
                log_weights = _log_joint(problem, draw.theta).double() - scales - density.log_prob
                log_weights = log_weights.where(torch.isfinite(log_weights), -torch.inf)
                owners = torch.arange(components, device=rng.device).repeat_interleave(len(draw.latents[0]))
                blocks.append(_Weighed(draw.theta, log_weights, owners, density.standard_error))
                left -= len(draw.theta)
                show.show(num_samples - left, {})
                ctrl_c.check()
    except KeyboardInterrupt:
        if not blocks:
            raise
    names = ("theta", "log_weights", "components", "density_error")
    return _Weighed(*(torch.cat([getattr(block, name) for block in blocks]) for name in names))


def _log_joint(problem: Problem, theta: Tensor) -> Tensor:  # (S, m') -> (S,)
    """log p(D, theta), some rows at a time."""
    batch = problem.data.first()
    size = max(1, int(BLOCK / (len(batch[1]) * work_on_example(problem))))
    return torch.cat([torch.stack(problem.on_batch(rows, batch)).sum(0) for rows in theta.split(size)])


def _report(
    weighed: _Weighed, weights: ImportanceWeights, rows: Tensor, components: int, seconds: float
) -> ReweightReport:
    bound, evidence, worth = weights.bound, weights.log_evidence, weights.worth
    shares = torch.zeros(components, dtype=weights.smoothed.dtype, device=weights.smoothed.device)
    shares.index_add_(0, weighed.components, weights.smoothed.exp())
    return ReweightReport(
        samples=worth.samples,
        draws=len(rows),
        distinct=len(rows.unique()),
        effective=worth.effective,
        pareto_shape=worth.pareto_shape,
        bound=(bound.value, bound.standard_error),
        log_evidence=(evidence.value, evidence.standard_error),
        shares=tuple(shares.tolist()),
        density_error=float(weighed.density_error.median()),
        seconds=seconds,
    )


def _doubts(posterior: Posterior, target: ChainTarget, data: Any, unpack: Unpack | None) -> list[str]:
    """Warnings where the weights' target is not what the given posterior and data suggest."""
    found = other_data(posterior, target, data, unpack, "reweight", "the weights are")
    if posterior.temperature != 1.0:
        found.append(
            "reweight: weights are those of the posterior itself; that draws come from one of temperature "
            f"{posterior.temperature:g} costs effective draws."
        )
    return found


def _alarms(report: ReweightReport, meant: int) -> list[str]:
    found = []
    if report.samples < meant:
        found.append(f"interrupted: weighing the {report.samples:,} of {meant:,} draws that were made.")
    if not report.reliable:
        found.append(
            f"Weights that cannot be relied on: {report.trouble()}. What was fitted is too far from the posterior to "
            "be mended by weights; use livi.polish, or a longer fit, or raise num_samples."
        )
    return found
