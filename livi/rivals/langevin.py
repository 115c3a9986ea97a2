"""Langevin ensembles: a microcanonical Langevin chain from each of several short MAP fits."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from torch import nn

from livi import checks
from livi.durations import seconds
from livi.inference.map_fits import measure_start
from livi.model.likelihoods import Likelihood
from livi.model.warning import warn
from livi.posterior.posterior import Posterior
from livi.rivals.map_start import MapFits, checked
from livi.sampling import LANGEVIN_ENSEMBLE, LANGEVIN_MAP_STEPS, polish
from livi.sampling.polishing import FEWEST

INTERRUPTED = "interrupted while sampling: keeping the networks that the chains started from; fit again for more."


@checked
def fit_langevin(
    net: nn.Module,
    data: Any,
    likelihood: Likelihood,
    *,
    chains: int = LANGEVIN_ENSEMBLE.chains,
    draws: int = LANGEVIN_ENSEMBLE.draws,
    steps: int | None = None,
    map_steps: int | None = None,
    energy_error: float = LANGEVIN_ENSEMBLE.energy_error,
    budget: float | str | None = None,
    **options: Any,
) -> Posterior:
    """Microcanonical Langevin chains, each from a short MAP fit of its own; their draws are weighted by stacking.

    After Sommer et al. (2025), "Microcanonical Langevin Ensembles". Steps are long, with an energy error per weight
    that falls from 0.5 to 0.1: chains leave the poor modes where short MAP fits end, and the draws are biased. Chains
    do not count equally; stacking weights them (`livi.sampling.stacking`). A step of each chain costs two gradients on
    all data. Results, and what each part contributes, are in docs/benchmarks/small-tables.md.

    Args:
        draws: number of networks kept from all chains together, approximately.
        steps: of each chain, by default 5,000 and at least 32, of which 60 % are warm-up.
        map_steps: of each MAP fit, by default 300, or `steps` if that is less. The first fit starts at the network's
            own weights.
        energy_error: mean squared energy error of a step, per weight, reached at the end of the warm-up, as in
            `livi.polish`.
        budget: longest time, in seconds or as text such as "1 min"; chains get fewer steps if needed.
        **options: as in `fit_ensemble`, and `progress`.
    """
    checks.positive_int("chains", chains)
    progress, seed = options.pop("progress", True), options.get("seed", 0)
    map_steps = min(LANGEVIN_MAP_STEPS, steps or LANGEVIN_MAP_STEPS) if map_steps is None else map_steps
    fits = MapFits.of("fit_langevin", net, data, likelihood, chains, map_steps, options)
    problem, starts = fits.problem, fits.starts()
    steps = LANGEVIN_ENSEMBLE.steps if steps is None else checks.positive_int("steps", steps)
    if budget is not None:
        gradient = measure_start(problem, chains)  # on one batch; a step of chains takes two on all batches
        left = seconds("budget", budget) - map_steps * gradient
        steps = min(steps, int(left / (2.0 * gradient * problem.data.steps_per_epoch)))
    steps = max(steps, 4 * FEWEST)
    each = min(-(-draws // chains), int((1.0 - LANGEVIN_ENSEMBLE.warm_up) * steps))
    start = fits.posterior(starts, "langevin")
    try:
        chosen = replace(
            LANGEVIN_ENSEMBLE, chains=chains, draws=max(FEWEST, each) * chains, steps=steps, energy_error=energy_error
        )
        return polish(start, problem.data, seed=seed, progress=progress, **asdict(chosen))
    except KeyboardInterrupt:
        warn(INTERRUPTED)
        start.plan["interrupted_at"] = 0
        return start
