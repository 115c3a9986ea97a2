"""The verdict: what the measurements mean, and what to do about it. The thresholds are here and in `comparison`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from livi.posterior.diagnostics.bound import BoundCheck
from livi.posterior.diagnostics.comparison import on_references
from livi.posterior.diagnostics.correlation import CorrelationCheck
from livi.posterior.diagnostics.data import on_data
from livi.posterior.diagnostics.entropy import DensityCheck, EntropyCheck
from livi.posterior.diagnostics.estimate import Estimate, Skipped
from livi.posterior.diagnostics.examination import Examination, Facts
from livi.posterior.diagnostics.finding import LARGE, SMALL, Finding
from livi.posterior.diagnostics.log_det import LogDetCheck, Method
from livi.posterior.diagnostics.shape import ShapeCheck
from livi.posterior.diagnostics.spread import LayerSpread, RankCheck

COLLAPSED, AT_PRIOR, RUNAWAY = 1e-3, 0.9, 3.0  # posterior over prior standard deviation
EFFECTIVE_ENOUGH = 0.1  # share of the importance samples


def verdict(found: Examination) -> tuple[Finding, ...]:
    """Findings on every part that was examined, and a notice for each important one that could not be."""
    findings = [*on_data(found.facts), *_on_samples(found.facts), *_on_bound(found.bound)]
    findings += on_references(found.bound, found.references, found.facts)
    if isinstance(found.log_det, LogDetCheck):
        findings += _on_log_det(found.log_det, found.estimators_used)
    if isinstance(found.density, DensityCheck):
        findings += [*_on_density(found.density), *_on_mixture(found.density, found.facts)]
    elif isinstance(found.log_det, LogDetCheck):
        findings.append(_not_checked(found.density))
    if not isinstance(found.spread, Skipped):
        findings += _on_spread(found.spread, found.facts)
    if isinstance(found.rank, RankCheck):
        findings += _on_rank(found.rank)
    if isinstance(found.correlation, CorrelationCheck):
        findings += _on_correlation(found.correlation)
    if isinstance(found.shape, ShapeCheck):
        findings += _on_shape(found.shape)
    return tuple(findings)


def _on_samples(facts: Facts) -> Iterator[Finding]:
    if facts.num_distinct < facts.num_samples:
        yield Finding(
            "notice",
            "samples",
            f"only {facts.num_distinct} of {facts.num_samples} weight vectors are different, so the sampler draws from "
            "a fixed set; what rests on samples is about that set.",
        )


def _on_bound(bound: BoundCheck) -> Iterator[Finding]:
    broken = [
        name
        for name in ("log_likelihood", "log_prior", "entropy")
        if isinstance(part := getattr(bound, name), Estimate) and not math.isfinite(part.value)
    ]
    if broken:
        yield Finding(
            "warning",
            "bound",
            f"{', '.join(broken)} is not finite: some draws give the data no probability at all; check the data for "
            "extreme values, or fit again with a smaller spread.",
        )
    elif isinstance(bound.bound, Estimate):
        error = bound.bound.standard_error
        if math.isnan(error):
            yield Finding("notice", "bound", "estimated from too few draws for its error to be known.")
            return
        loose = error > max(LARGE, 0.05 * abs(bound.bound.value))
        text = f"known to ± {error:.2g} nats: models that differ by less cannot be told apart without more samples."
        yield Finding("notice" if loose else "ok", "bound", text)


def _on_log_det(check: LogDetCheck, used: Collection[str]) -> Iterator[Finding]:
    """Findings on the entropy estimators that were used. Others are only compared, not judged."""
    for method in check.methods:
        topic = f"log-determinant by {method.name}"
        if method.name == "Exact":
            if method.converged < 1.0:
                yield Finding("warning", topic, f"ill-conditioned. {method.remedy}")
        elif method.name not in used:
            reached = "" if method.converged == 1.0 else f", converged at {method.converged:.0%} of the latents"
            text = f"not used here; for comparison{reached}{_distance(method) or ', with nothing exact to hold it to'}."
            yield Finding("ok", topic, text)
        elif method.converged < 1.0:
            text = f"converged at {method.converged:.0%} of the latents only{_distance(method)}. {method.remedy}"
            yield Finding("warning", topic, text)
        elif method.difference is None:
            yield Finding("ok", topic, "converged everywhere.")
        elif method.difference < -max(LARGE, 3.0 * (method.standard_error or 0.0)):
            text = f"converged, but too low{_distance(method)}: sound as a bound, poor as a value."
            yield Finding("ok", topic, text)
        else:
            yield Finding("ok", topic, f"converged{_distance(method)}.")


def _distance(method: Method) -> str:
    if method.difference is None:
        return ""
    error = "" if method.standard_error is None else f" ± {method.standard_error:.2f}"
    return f", {method.difference:+.2f}{error} nats from the exact one"


def _on_density(check: DensityCheck) -> Iterator[Finding]:
    mean = check.mean
    topic = "L' against the ELBO"
    if mean.gap.value > SMALL and mean.gap.away_from(0.0):
        yield Finding(
            "warning",
            topic,
            f"the linearised entropy exceeds the true one by at least {mean.gap} nats, and so does the bound: it is "
            f"no lower bound on log p(D). {_cause(mean)} Subtract the gap before comparing models, or raise the noise.",
        )
    elif mean.effective < EFFECTIVE_ENOUGH or mean.bias > max(SMALL, mean.gap.standard_error):
        yield Finding(
            "notice",
            topic,
            f"the check is weak: only {mean.effective:.0%} of the importance samples count (bias about "
            f"{mean.bias:.2f} nats), so a gap of {mean.gap} nats means little; raise Effort.num_importance.",
        )
    elif mean.gap.value < -SMALL and mean.gap.away_from(0.0):
        text = (
            f"the linearised entropy lies {_negated(mean.gap)} nats below the true one: the bound is loose, not wrong."
        )
        yield Finding("ok", topic, text)
    else:
        text = f"no gap between linearised and true entropy in {mean.num_densities} draws ({mean.gap} nats)."
        yield Finding("ok", topic, text)


def _cause(check: EntropyCheck) -> str:
    if check.preimages > 1.1:
        return (
            f"The generator folds: one weight vector comes from {check.preimages:.1f} separate latents on average, and "
            "the linearised entropy counts each."
        )
    return "The generator bends within the reach of the noise."


def _on_mixture(check: DensityCheck, facts: Facts) -> Iterator[Finding]:
    if not isinstance(check.mixture, Estimate):
        return
    most = math.log(facts.num_components)
    share = check.mixture.value / most
    where = f"{check.mixture} of at most log K = {most:.2f} nats above the mean of its components'"
    if share < 0.1:
        text = f"its entropy is {where}: the components lie on top of each other, and one would do."
        yield Finding("notice", "mixture", text)
    else:
        kind = "they do not overlap" if share > 0.9 else "they overlap in part"
        text = f"its entropy is {where} ({kind}); the ELBO is higher than L' by that much."
        yield Finding("ok", "mixture", text)


def _not_checked(why: DensityCheck | Skipped) -> Finding:
    assert isinstance(why, Skipped)
    return Finding(
        "notice",
        "L' against the ELBO",
        f"not checked ({why.reason}). The bound is then an estimate; check a smaller generator of the same kind.",
    )


def _on_spread(layers: Sequence[LayerSpread], facts: Facts) -> Iterator[Finding]:
    ratios = [(layer.name, layer.relative.value) for layer in layers if layer.relative is not None]
    if not ratios:
        return
    collapsed = [name for name, ratio in ratios if ratio < COLLAPSED]
    runaway = [name for name, ratio in ratios if ratio > RUNAWAY]
    # The components of a mixture are far apart for other reasons than that the data say nothing.
    idle = [name for name, ratio in ratios if AT_PRIOR < ratio <= RUNAWAY and facts.num_components == 1]
    if collapsed:
        yield Finding(
            "warning",
            "spread",
            f"{_weights_of(collapsed)} vary by less than 1/1000 of the prior: the posterior has collapsed there, and "
            "uncertainty will be too small. Check num_data, or fit for more steps.",
        )
    if runaway:
        yield Finding(
            "warning",
            "spread",
            f"{_weights_of(runaway)} vary by more than {RUNAWAY:g} times the prior: the fit has diverged there; lower "
            "the learning rates or raise Recipe.num_samples.",
        )
    if idle:
        yield Finding(
            "notice",
            "spread",
            f"{_weights_of(idle)} vary about as much as under the prior: the data say little about these weights, or "
            "there are several distant modes.",
        )
    if not (collapsed or runaway or idle):
        low, high = min(ratio for _, ratio in ratios), max(ratio for _, ratio in ratios)
        yield Finding("ok", "spread", f"the layers vary by {low:.2g} to {high:.2g} of the prior.")


def _on_rank(check: RankCheck) -> Iterator[Finding]:
    if isinstance(check.noise_share, float) and check.noise_share > 0.5:
        yield Finding(
            "notice",
            "rank",
            f"{check.noise_share:.0%} of a weight's variance is noise added to the generator, independent for every "
            "weight: the posterior is close to a mean-field one. Lower the noise or raise latent_dim.",
        )
    if check.covariance.value < 2.0:
        yield Finding(
            "notice",
            "rank",
            f"the weights vary along {check.covariance} directions only; a wider generator may find more.",
        )
    else:
        text = f"the weights vary along {check.covariance} directions of about equal width."
        yield Finding("ok", "rank", text)


def _on_correlation(check: CorrelationCheck) -> Iterator[Finding]:
    if len(check.layers) < 2:
        return
    strongest = check.strongest()
    if strongest is None:
        yield Finding(
            "ok",
            "correlation",
            "none across layers that stands out of the noise, as in a posterior factorised by layers.",
        )
        return
    row, column = strongest
    root = max(check.across, 0.0) ** 0.5
    yield Finding(
        "ok",
        "correlation",
        f"across layers {root:.2g} (root mean square), most clearly between {check.layers[row]} and "
        f"{check.layers[column]} ({float(check.rms[row, column]):.2g}); a factorised posterior would miss it.",
    )


def _on_shape(check: ShapeCheck) -> Iterator[Finding]:
    examined = f"{len(check.densities)} weights and {len(check.directions)} principal directions"
    several = [f"{d.name} ({len(d.modes)})" for d in check.multimodal]
    if several:
        text = f"several in {len(several)} of {examined} together: {_listed(several)}; no Gaussian has them."
    else:
        text = f"no second one in any of {examined}."
    yield Finding("ok", "modes", text)
    if check.heavy:
        text = (
            f"{check.heavy} of {check.num_weights} weights have heavier tails than a Gaussian; averages over few "
            "samples may move, so predict with many."
        )
        yield Finding("notice" if check.heavy > 0.05 * check.num_weights else "ok", "tails", text)
    else:
        yield Finding("ok", "tails", f"no heavier than a Gaussian's in {check.num_weights} weights.")


def _weights_of(layers: Sequence[str]) -> str:
    return f"the weights of {'layers' if len(layers) > 1 else 'layer'} {_listed(layers)}"


def _listed(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _negated(estimate: Estimate) -> Estimate:
    return Estimate(-estimate.value, estimate.standard_error)
