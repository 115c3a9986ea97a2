"""Findings on data that are others than those of the fit."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from livi.posterior.diagnostics.examination import Facts
from livi.posterior.diagnostics.finding import Finding

TOPIC = "data"


def on_data(facts: Facts) -> Iterator[Finding]:
    """On examples that cannot be all of those fitted to, by their number."""
    if facts.num_fitted in (None, facts.num_data):
        return
    yield Finding(
        "notice",
        TOPIC,
        f"the posterior was fitted to {facts.num_fitted:,} examples, and these stand for {facts.num_data:,}. If they "
        f"are some of those, pass num_data={facts.num_fitted}. If they are others, the log likelihood is that of "
        "held-out examples: the bound is none on the evidence, of these or of those fitted to, and what it is held "
        "against was adapted to these, so that neither says how good the fit is. Spread, correlations and entropy are "
        "of the posterior alone.",
    )


def on_other_data(own: Tensor, given: Tensor) -> Iterator[Finding]:
    """On targets that are not those which an exact last layer holds, and which were examined in their place."""
    if _same(own, given):
        return
    what = f"{len(given) if given.ndim else 1:,} others" if given.shape[:1] != own.shape[:1] else "those given"
    yield Finding(
        "notice",
        TOPIC,
        f"the last layer is exact and holds the {len(own):,} examples that it was fitted to: these were examined, and "
        f"not {what}. For a score on other examples ask for posterior.predict(x).log_prob(y).",
    )


def _same(own: Tensor, given: Tensor) -> bool:
    """Whether these are the same numbers, in any order, to the precision of the network."""
    if own.numel() != given.numel() or not own.numel():
        return False
    ours, theirs = (values.detach().flatten().double().cpu().sort().values for values in (own, given))
    return bool(torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6 * float(ours.abs().max())))
