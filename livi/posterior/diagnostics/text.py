"""A diagnosis as a report to read in a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence

from torch import Tensor

from livi.posterior.diagnostics.bound import BoundCheck
from livi.posterior.diagnostics.correlation import CorrelationCheck
from livi.posterior.diagnostics.entropy import DensityCheck, EntropyCheck
from livi.posterior.diagnostics.estimate import Estimate, Skipped
from livi.posterior.diagnostics.examination import Examination, Facts
from livi.posterior.diagnostics.finding import Finding
from livi.posterior.diagnostics.log_det import LogDetCheck
from livi.posterior.diagnostics.reference import ReferenceCheck
from livi.posterior.diagnostics.shape import ShapeCheck
from livi.posterior.diagnostics.spread import LayerSpread, RankCheck

WIDTH = 100
MAX_LAYERS = 12


def printed(found: Examination, findings: Sequence[Finding]) -> str:
    """Sections of aligned numbers, and the verdict at the end, where a terminal shows it."""
    sections = [
        _head(found.facts),
        [*_bound(found.bound), *_references(found.references)],
        _log_det(found.log_det, found.estimators_used),
        _density(found.density),
        _spread(found.spread, found.rank),
        _correlation(found.correlation),
        _shape(found.shape),
        _verdict(findings),
    ]
    return "\n\n".join("\n".join(section) for section in sections)


def _head(facts: Facts) -> Iterator[str]:
    components = f", mixture of {facts.num_components}" if facts.num_components > 1 else ""
    yield f"Diagnosis of {facts.num_params:,} weights in {facts.num_layers} layers{components}"
    yield f"  {facts.num_samples:,} samples, {facts.num_examples:,} of {facts.num_data:,} examples"
    if facts.num_weights < facts.num_params:
        yield f"  spread, rank, correlation and shape from {facts.num_weights:,} weights chosen at random in each layer"


def _bound(bound: BoundCheck) -> Iterator[str]:
    yield "Bound, nats"
    name = f"entropy ({bound.estimator})" if bound.estimator else "entropy"
    rows = {
        "log likelihood": bound.log_likelihood,
        "log prior": bound.log_prior,
        name: bound.entropy,
        "L'": bound.bound,
    }
    yield from _table([(label, str(value)) for label, value in rows.items()])


def _references(found: ReferenceCheck) -> Iterator[str]:
    yield "For comparison, nats"
    prior, field = found.prior, found.mean_field
    nothing = str(prior) if isinstance(prior, Skipped) else f"{prior.bound}, the mean of {prior.num_draws} draws"
    rows = [("bound of the prior itself", nothing)]
    if isinstance(found.equal, float):
        rows.append(("log evidence of equal probabilities", f"{found.equal:.1f}"))
    reached = str(field) if isinstance(field, Skipped) else f"{field.bound} in {field.steps} steps, or more"
    rows.append(("bound of a mean-field Gaussian", reached))
    width = max(len(label) for label, _ in rows)
    yield from (f"  {label.ljust(width)}  {value}" for label, value in rows)


def _log_det(check: LogDetCheck | Skipped, used: Collection[str]) -> Iterator[str]:
    yield "Entropy by several estimators at the same latents, nats"
    if isinstance(check, Skipped):
        yield f"  {check}"
        return
    if check.reference:
        yield f"  exact: not affordable, {check.reference}"
    rows = [("", "entropy", "from exact", "error", "converged", "residual", "products")]
    for method in check.methods:
        difference = "" if method.difference is None or method.name == "Exact" else f"{method.difference:+.3f}"
        if difference and method.relative is not None:
            difference += f" ({method.relative:+.2%})"
        error = "" if method.standard_error is None else f"{method.standard_error:.3f}"
        residual = "" if method.residual is None else f"{method.residual:.0e}"
        name = method.name if method.name in used or method.name == "Exact" else f"{method.name} (not used here)"
        rows.append((
            name, f"{method.nats:.2f}", difference, error, f"{method.converged:.0%}", residual,
            f"{method.products:,}",
        ))  # fmt: skip
    yield from _table(rows)


def _density(check: DensityCheck | Skipped) -> Iterator[str]:
    yield "Linearised entropy against -E log q, nats"
    if isinstance(check, Skipped):
        yield f"  {check}"
        return
    rows: list[tuple[str, ...]] = [("", "linearised", "sampled", "gap", "ESS", "lowest", "latents behind a draw")]
    many = len(check.components) > 1
    if many:
        rows += [_density_row(f"component {k}", one) for k, one in enumerate(check.components)]
    rows.append(_density_row("mean" if many else "", check.mean))
    yield from _table(rows)
    if isinstance(check.mixture, Estimate):
        yield f"  the mixture's entropy lies {check.mixture} nats above the mean of its components'"


def _density_row(name: str, check: EntropyCheck) -> tuple[str, ...]:
    return (
        name,
        str(check.linearised),
        str(check.sampled),
        str(check.gap),
        f"{check.effective:.0%}",
        f"{check.lowest_effective:.0%}",
        f"{check.preimages:.2f}",
    )


def _spread(spread: tuple[LayerSpread, ...] | Skipped, rank: RankCheck | Skipped) -> Iterator[str]:
    yield "Spread"
    if isinstance(spread, Skipped):
        yield f"  {spread}"
    else:
        rows = [("layer", "weights", "mean", "std", "std / prior std")]
        rows += [
            (s.name, f"{s.num_weights:,}", f"{s.mean:.3g}", str(s.std), "" if s.relative is None else str(s.relative))
            for s in spread[:MAX_LAYERS]
        ]
        yield from _table(rows)
        if len(spread) > MAX_LAYERS:
            yield f"  ... and {len(spread) - MAX_LAYERS} more layers"
    if isinstance(rank, Skipped):
        yield f"  effective rank: {rank}"
        return
    yield f"  effective rank of the covariance   {rank.covariance}"
    yield f"  effective rank of the correlations {rank.correlation}"
    yield f"  effective rank of J J^T + D        {rank.local}"
    if isinstance(rank.noise_share, float):
        yield f"  noise in the variance of a weight  {rank.noise_share:.2%}"


def _correlation(check: CorrelationCheck | Skipped) -> Iterator[str]:
    yield "Correlation of weights, root mean square over pairs, freed of the noise of finite samples"
    if isinstance(check, Skipped):
        yield f"  {check}"
        return
    names = [_short(name, 14) for name in check.layers[:MAX_LAYERS]]
    rows: list[tuple[str, ...]] = [("", *names)]
    for i, name in enumerate(names):
        rows.append((name, *(_root(check.mean_square[i, j]) for j in range(len(names)))))
    yield from _table(rows)
    if len(check.layers) > MAX_LAYERS:
        yield f"  ... and {len(check.layers) - MAX_LAYERS} more layers"
    if len(check.layers) > 1:
        floor = max(check.across_noise, 0.0) ** 0.5
        yield f"  across layers {_root(check.across)}, where independent layers would show about {floor:.2g}"


def _shape(check: ShapeCheck | Skipped) -> Iterator[str]:
    yield "Marginal densities"
    if isinstance(check, Skipped):
        yield f"  {check}"
        return
    rows = [("weight" if check.chosen else "most bimodal", "modes", "at", "excess kurtosis")]
    rows += [
        (d.name, str(len(d.modes)), ", ".join(f"{mode:.3g}" for mode in d.modes), str(d.excess_kurtosis))
        for d in (*check.densities, *check.directions)
    ]
    yield from _table(rows)
    yield (
        f"  excess kurtosis {check.mean_excess_kurtosis} on average; significantly heavy tails in {check.heavy}, light "
        f"in {check.light} of {check.num_weights:,} weights"
    )


def _verdict(findings: Sequence[Finding]) -> Iterator[str]:
    yield "Verdict"
    for finding in sorted(findings, key=lambda one: ("warning", "notice", "ok").index(one.severity)):
        yield textwrap.fill(
            f"{finding.topic}: {finding.text}",
            width=WIDTH,
            initial_indent=f"  {finding.severity:<8} ",
            subsequent_indent=" " * 11,
        )


def _root(square: Tensor | float) -> str:
    number = float(square)
    return "" if number != number else f"{max(number, 0.0) ** 0.5:.2f}"


def _short(name: str, length: int) -> str:
    return name if len(name) <= length else "…" + name[1 - length :]


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield ("  " + "  ".join(cells)).rstrip()
