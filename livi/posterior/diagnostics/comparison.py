"""Findings on the bound compared with its references."""

from __future__ import annotations

import math
from collections.abc import Iterator

from livi.posterior.diagnostics.bound import BoundCheck
from livi.posterior.diagnostics.estimate import Estimate, Skipped
from livi.posterior.diagnostics.examination import Facts
from livi.posterior.diagnostics.finding import LARGE, Finding
from livi.posterior.diagnostics.reference import NoiseCost, PriorBound, ReferenceCheck

HEAVY = 0.2  # share of the worst draw in a mean over draws from the prior, above which that mean says little
NO_LEARNING, MEAN_FIELD = "bound against no learning", "bound against mean field"


def on_references(bound: BoundCheck, found: ReferenceCheck, facts: Facts) -> Iterator[Finding]:
    """Findings on a bound that is known; a mixture's is credited with log K, by which it may be too low."""
    own = bound.bound
    if isinstance(own, Estimate) and math.isfinite(own.value):
        granted = Estimate(own.value + math.log(facts.num_components), own.standard_error)
        yield from _on_no_learning(granted, bound, found, facts)
        yield from _on_mean_field(granted, bound, found, facts)


def _on_no_learning(own: Estimate, bound: BoundCheck, found: ReferenceCheck, facts: Facts) -> Iterator[Finding]:
    references: list[tuple[Estimate, str, bool]] = []  # with whether its value is certain enough to judge by
    if isinstance(found.equal, float):
        words = "of a model without weights, to which every class is equally probable"
        references.append((Estimate(found.equal, 0.0), words, True))
    if isinstance(found.prior, PriorBound):
        but = ", but for the last layer, which is exact" if found.prior.exact_layer else ""
        words = f"of the prior itself, which has learned nothing{but}{_tail(found.prior)}"
        references.append((found.prior.bound, words, found.prior.worst_share <= HEAVY))
    if not references:
        return
    above = [(value, words, sure) for value, words, sure in references if _below(own, value)]
    if above:
        named = " and ".join(f"{_nats(value.value)} {words}" for value, words, _ in above)
        yield Finding(
            "warning" if any(sure for _, _, sure in above) else "notice",
            NO_LEARNING,
            f"{_nats(own.value)} nats lies below {named}: as a bound on the evidence it is worthless, and no ground to "
            "choose models by. Predictions may be good all the same, as they rest on the weights that are drawn and "
            f"not on the bound. {_cost(bound, found.noise, facts)}",
        )
    else:
        named = " and ".join(f"{_nats(value.value)} {words}" for value, words, _ in references)
        higher = all(_below(value, own) for value, _, _ in references)
        more = "." if higher else ", and not clearly higher."
        yield Finding("ok", NO_LEARNING, f"{_nats(own.value)} nats is no lower than {named}{more}")


def _on_mean_field(own: Estimate, bound: BoundCheck, found: ReferenceCheck, facts: Facts) -> Iterator[Finding]:
    reference = found.mean_field
    if isinstance(reference, Skipped):
        if reference.reason.startswith("not affordable"):
            yield Finding("notice", MEAN_FIELD, f"not compared ({reference.reason}).")
        return
    reached = f"{_nats(reference.bound.value)} that a mean-field Gaussian reached in {reference.steps} steps from here"
    if _below(own, reference.bound):
        worse = "" if _learns_nothing(own, found) else f" {_cost(bound, found.noise, facts)}"
        yield Finding(
            "warning",
            MEAN_FIELD,
            f"{_nats(own.value)} nats lies below {reached}: independent weights give the higher bound, so the fit is "
            f"not done, or this posterior pays more for its noise than its correlations are worth. Fit for more steps, "
            f"or use livi.rivals.fit_mean_field where the bound matters.{worse}",
        )
    else:
        more = "; more steps might reach more." if _below(reference.bound, own) else ", and not clearly higher."
        yield Finding("ok", MEAN_FIELD, f"{_nats(own.value)} nats is no lower than {reached}{more}")


def _learns_nothing(own: Estimate, found: ReferenceCheck) -> bool:
    values = [Estimate(found.equal, 0.0)] if isinstance(found.equal, float) else []
    values += [found.prior.bound] if isinstance(found.prior, PriorBound) else []
    return any(_below(own, value) for value in values)


def _below(one: Estimate, other: Estimate) -> bool:
    """Whether one lies below another by more than a nat and three standard errors."""
    return other.value - one.value > max(LARGE, 3.0 * math.hypot(one.standard_error, other.standard_error))


def _tail(prior: PriorBound) -> str:
    if prior.worst_share <= HEAVY:
        return ""
    return (
        f" (the mean of {prior.num_draws} draws with a heavy tail, of which one makes up {prior.worst_share:.0%}: the "
        "true value may lie far lower)"
    )


def _cost(bound: BoundCheck, noise: NoiseCost | Skipped, facts: Facts) -> str:
    """How the bound's nats are spent, and what to do."""
    assert isinstance(bound.log_prior, Estimate)
    assert isinstance(bound.entropy, Estimate)
    divergence = -(bound.log_prior.value + bound.entropy.value)
    paid = f"KL(q || prior) is {_nats(divergence)} nats, {divergence / facts.num_params:.2g} per weight"
    if isinstance(noise, Skipped) or noise.nats < 0.5 * divergence:
        return f"{paid}: fit for more steps, or make fewer weights stochastic (include=)."
    kind, remedy = "noise", "fit for more steps"
    if noise.fixed:
        kind, remedy = "fixed noise", "learn the noise (noise=livi.LearnedNoise())"
    return (
        f"{paid}: {kind} of {noise.std:.2g} on {facts.num_params:,} weights would alone cost {_nats(noise.nats)}. For "
        f"a higher bound, which is no promise of better predictions, {remedy} or make fewer weights "
        "stochastic (include=)."
    )


def _nats(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.1f}"
