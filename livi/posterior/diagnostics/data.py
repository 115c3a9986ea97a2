"""Findings on diagnosed data that are not the data of the fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from livi.model.data import Batch
from livi.posterior.diagnostics.examination import Facts
from livi.posterior.diagnostics.finding import Finding

TOPIC = "data"
NEAR = 1e-4  # standard deviations of a column, up to which numbers count as equal but for rounding


def on_data(facts: Facts) -> Iterator[Finding]:
    """A finding if the examples, by their number, cannot be all of those that were fitted."""
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


def on_other_data(own: Batch, given: Batch) -> Iterator[Finding]:
    """A finding if the given examples are not those that an exact last layer holds, which were examined instead."""
    if same_examples(own, given):
        return
    held, count = len(own[1]), len(given[1]) if given[1].ndim else 1
    what = f"{count:,} others" if count != held else "those given, which are others"
    yield Finding(
        "notice",
        TOPIC,
        f"the last layer is exact and holds the {held:,} examples that it was fitted to: these were examined, and "
        f"not {what}. For a score on other examples ask for posterior.predict(x).log_prob(y).",
    )


def same_examples(own: Batch, given: Batch) -> bool:
    """Whether these are the same examples, in any order, to the precision of the network.

    Each example has one number: the sum of its inputs and targets, in units of their spread and times factors of 1 to
    2. What stands beside the inputs on one side alone, as weights of the examples do, is not compared.
    """
    rng = torch.Generator().manual_seed(0)
    ours = theirs = torch.zeros((), dtype=torch.float64, device="cpu")
    for one, other in zip(_columns(own), _columns(given), strict=False):
        if one.shape != other.shape:
            return False
        centre, spread = one.mean(0), torch.maximum(one.std(0, correction=0), 1e-6 * one.abs().amax(0))
        factors = (1.0 + torch.rand(len(centre), generator=rng, dtype=one.dtype, device="cpu")) / spread.clamp_min(
            1e-12
        )
        ours, theirs = ours + (one - centre) @ factors, theirs + (other - centre) @ factors
    return torch.allclose(ours.sort().values, theirs.sort().values, rtol=0.0, atol=NEAR)


def _columns(batch: Batch) -> Iterator[Tensor]:  # (N, p)
    """The targets, then each tensor of the inputs, with one row per example."""
    inputs, targets = batch
    inputs = [inputs[name] for name in sorted(inputs)] if isinstance(inputs, Mapping) else inputs
    for leaf in (targets, *pytree.tree_leaves(inputs)):
        if isinstance(leaf, Tensor):
            yield leaf.detach().cpu().double().reshape(leaf.shape[0] if leaf.ndim else 1, -1)
