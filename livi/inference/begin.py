"""Where the components of a posterior begin: each around its own MAP estimate, or around the network's weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from livi.inference.map_fits import MapStart
from livi.inference.plans import Plan
from livi.inference.progress import FitProgress
from livi.inference.ranks import Alone


class Beginning(NamedTuple):
    """The weights in the middle of each component, and what they explain."""

    theta: Tensor  # (K, m)
    log_likelihood: float  # of the best of them
    interrupted: bool  # by Ctrl-C, before the search was over


def begin(
    prepared: Plan,
    seed: int,
    progress: FitProgress | None = None,
    *,
    state: Mapping[str, Any] | None = None,
    save: Callable[[dict[str, Any]], None] | None = None,
    save_every: int = 500,
    ranks: Alone | None = None,
) -> Beginning:
    """Find MAP estimates to start from, and put every component around one.

    Args:
        state: the state of an interrupted search, to go on from.
        save: called with the state of the search every `save_every` steps, and when it is interrupted.
    """
    bound = prepared.bound
    likelihood = bound.likelihood.for_map(prepared.data.first()[1])
    search = MapStart(
        replace(prepared.problem, likelihood=likelihood, autocast=bound.autocast),
        prepared.recipe,
        seed=seed,
        capture=prepared.capture,
        progress=progress,
        ranks=ranks,
    )
    if state is not None:
        search.load(dict(state))
    # A scale that the priors of the last layer and of others share would shrink to nothing in a MAP fit.
    shared = {*bound.likelihood.parameters()} & {*bound.prior.parameters()}
    for parameter in shared:
        parameter.requires_grad_(False)
    starts = search.run(None if save is None else lambda: save(search.state()), save_every)
    for parameter in shared:
        parameter.requires_grad_(True)
    components, own = bound.family.num_components, prepared.start == "net"
    rows = starts.theta[:1].expand(components, -1) if own else starts.pick(components, seed)
    spread_out(prepared, rows)
    return Beginning(rows, float(starts.log_likelihood[0]), search.interrupted)


def spread_out(prepared: Plan, rows: Tensor, factor: float = 1.0) -> None:  # (K, m)
    """Put each component around its row, with the recipe's spread times `factor`."""
    recipe = prepared.recipe
    prepared.bound.family.begin_around(rows, factor * recipe.spread, relative=recipe.relative_spread)
