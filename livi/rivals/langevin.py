"""Langevin ensembles: short MAP fits from different starts, and a microcanonical Langevin chain from each."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from torch import nn

from livi import checks
from livi.durations import seconds
from livi.inference import polish
from livi.inference.polishing import FEWEST
from livi.inference.rules import FROM_MODES, FROM_MODES_MAP_STEPS
from livi.inference.start import measure_start
from livi.model.likelihoods import Likelihood
from livi.model.warning import warn
from livi.posterior.posterior import Posterior
from livi.rivals.map_start import MapFits

INTERRUPTED = "interrupted while sampling: keeping the networks that the chains started from; fit again for more."


def fit_langevin(
    net: nn.Module,
    data: Any,
    likelihood: Likelihood,
    *,
    chains: int = FROM_MODES.chains,
    draws: int = FROM_MODES.draws,
    steps: int | None = None,
    map_steps: int | None = None,
    energy_error: float = FROM_MODES.energy_error,
    budget: float | str | None = None,
    **options: Any,
) -> Posterior:
    """`chains` short MAP fits, a microcanonical Langevin chain from each, and draws of these in stacked shares.

    After Sommer et al. (2025), "Microcanonical Langevin Ensembles": the steps are long (an energy error of 0.5 per
    weight that falls to 0.1), so that chains leave the poor places where short fits end, and the target is met with a
    bias. What chains are worth is found by stacking (`livi.inference.stacking`), not taken as equal. Full batches: a
    step costs two gradients on all data for each chain. Where it leads and what each part contributes is in
    docs/benchmarks/small-tables.md.

    Args:
        draws: kept networks in all, about.
        steps: of each chain, by default 5,000, of which 60 % are warm-up.
        map_steps: of each MAP fit, by default 300, or `steps` where those are fewer. The first starts at the network's
            own weights.
        energy_error: of a step in the end, per weight, as in `livi.polish`.
        budget: seconds, or words such as "1 min": fewer steps where so many would take longer.
        **options: as in `fit_ensemble`, and `progress`.
    """
    checks.positive_int("chains", chains)
    progress, seed = options.pop("progress", True), options.get("seed", 0)
    map_steps = min(FROM_MODES_MAP_STEPS, steps or FROM_MODES_MAP_STEPS) if map_steps is None else map_steps
    fits = MapFits.of("fit_langevin", net, data, likelihood, chains, map_steps, options)
    problem, starts = fits.problem, fits.starts()
    steps = FROM_MODES.steps if steps is None else checks.positive_int("steps", steps)
    if budget is not None:
        gradient = measure_start(problem, chains)  # on a batch; steps of chains take two, on all of them
        left = seconds("budget", budget) - map_steps * gradient
        steps = min(steps, int(left / (2.0 * gradient * problem.data.steps_per_epoch)))
    steps = max(steps, 4 * FEWEST)
    each = min(-(-draws // chains), int((1.0 - FROM_MODES.warm_up) * steps))
    start = fits.posterior(starts, "langevin")
    try:
        chosen = replace(
            FROM_MODES, chains=chains, draws=max(FEWEST, each) * chains, steps=steps, energy_error=energy_error
        )
        return polish(start, problem.data, seed=seed, progress=progress, **asdict(chosen))
    except KeyboardInterrupt:
        warn(INTERRUPTED)
        start.plan["interrupted_at"] = 0
        return start
