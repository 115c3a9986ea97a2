"""How good predictions were on rows that the fit has not seen: metrics, coverage, and a verdict in words.

The rule behind the words: if the model is calibrated, the number of n targets inside intervals of level p is binomial.
A share within the central 95 % of that distribution, or within one percentage point of p, which has no practical
consequence, is called calibrated, a lower one overconfident, a higher one underconfident. Fewer than 20 rows are not
judged. Of the four levels judged, a calibrated model misses one or more about one time in eight, and two or more one
time in thirty (for some hundred rows, by simulation), so that only two or more are called a misfit of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from livi.posterior import metrics
from livi.posterior.prediction import ClassificationPrediction
from livi.tables.calibration import MISFITS, SMALL_DIFFERENCE, Band, binomial_band, judged
from livi.tables.content import (
    BASELINE_NAMES,
    ClassificationRows,
    Coverage,
    Driver,
    Effect,
    Judgement,
    Metric,
    Part,
    RegressionRows,
    UnsureRow,
)
from livi.tables.parts import worst

SHOWN_LEVELS = (0.5, 0.8, 0.9, 0.95)
MIN_JUDGED_ROWS = 20
MIN_COMPARED_ROWS = 5  # to be compared with predicting the mean or the most frequent class
MAX_CRPS_ROWS = 1024  # at most, since the cost for each is quadratic in the number of weight draws
MISFIT_P_VALUE = 0.05  # p-value below which the test of the whole distribution is reported
Kind = Literal["posterior", "conformal"]  # of intervals and sets


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Predictions on rows with known targets, scored. `print` shows the numbers and the verdict."""

    source: str  # "128 held-out rows of houses.csv"
    rows: RegressionRows | ClassificationRows
    metrics: tuple[Metric, ...]
    coverage: tuple[Coverage, ...]
    verdict: tuple[str, ...]
    unsure: tuple[UnsureRow, ...] = ()
    parts: tuple[Part, ...] = ()  # by size of the prediction and by group
    drivers: tuple[Driver, ...] = ()
    effects: tuple[Effect, ...] = ()
    poor: bool = False  # worse than the mean or the most frequent class, as the verdict then begins

    def against_guesses(self, shares: NDArray[np.float64] | None = None) -> Evaluation:
        """Set `poor` and say so first, if the mean target or the `shares` (k,) of classes in the fit predict better."""
        if isinstance(self.rows, RegressionRows):
            worse = _against_mean(self.rows)
        else:
            worse = "" if shares is None else _against_shares(self.rows, shares)
        poor = bool(worse) and len(self.rows) >= MIN_COMPARED_ROWS
        return replace(self, poor=True, verdict=(worse, *self.verdict)) if poor else self

    @property
    def headline(self) -> str:
        first = self.verdict[0]
        numbers = ", ".join(f"{metric.name} {metric.text}" for metric in self.metrics[:2])
        return f"On {self.source}: {numbers}. {first}"

    def with_parts(self, parts: tuple[Part, ...]) -> Evaluation:
        """Add the coverage of parts of the rows, and begin the verdict with the worst of those not calibrated."""
        astray = [_on_part(part) for kind in ("size", "group") if (part := worst([p for p in parts if p.kind == kind]))]
        return replace(self, parts=parts, verdict=(*astray, *self.verdict))

    def __str__(self) -> str:
        scores = [*self._metric_lines(), *self._baseline_lines()]
        blocks = [[self.source], scores, self._coverage_lines(), self._part_lines(), list(self.verdict)]
        return "\n\n".join("\n".join(lines) for lines in blocks if lines)

    def _part_lines(self) -> list[str]:
        """Lines on all fifths, and on those groups that are not calibrated."""
        shown = [part for part in self.parts if part.kind == "size" or part.coverage.judgement in MISFITS]
        lines = [(part, part.coverage) for part in shown]
        return ["90% intervals by part"] * bool(lines) + [
            f"{c.share:<7.1%}  {f'{c.low:.1%} to {c.high:.1%}':<17}  {c.judgement:<14}  {part.name}, {part.rows:,} rows"
            for part, c in lines
        ]

    def _metric_lines(self) -> list[str]:
        name, text = (max(len(getattr(metric, part)) for metric in self.metrics) for part in ("name", "text"))
        return [f"{m.name:<{name}}  {m.text:>{text}}  {m.note}".rstrip() for m in self.metrics]

    def _baseline_lines(self) -> list[str]:
        """A line on the first score of simple models, without which a high accuracy of a rare class says little."""
        first = self.metrics[0]
        names = BASELINE_NAMES["regression" if isinstance(self.rows, RegressionRows) else "classification"]
        texts = [f"{names[one.kind]} {_text(one.value, percent=first.text.endswith('%'))}" for one in first.baselines]
        return [f"For comparison, {first.name}: {', '.join(texts)}"] * bool(texts)

    def _coverage_lines(self) -> list[str]:
        kind, unit = ("intervals", "mean width") if isinstance(self.rows, RegressionRows) else ("sets", "mean size")
        lines = [f"{kind:<9}  held     expected           {unit}"]
        for line in self.coverage:
            expected = f"{line.low:.1%} to {line.high:.1%}"
            lines.append(
                f"{line.level:<9.0%}  {line.share:<7.1%}  {expected:<17}  {shown(line.width):<10}  {line.judgement}"
            )
        return lines


def shown(value: float) -> str:
    """A number rounded for reading: four digits, and more only before the decimal point.

    >>> shown(20412.3), shown(0.0123456), shown(1e12)
    ('20,412', '0.01235', '1e+12')
    """
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"


def _judged(share: float, band: Band, rows: int) -> Judgement:
    return "too few rows" if rows < MIN_JUDGED_ROWS else judged(share, band)


# --- regression -----------------------------------------------------------------------------------


def score_regression(
    rows: RegressionRows,
    log_density: NDArray[np.float64],  # (n,)
    crps: float | None,
    unit: str,
    kind: Kind = "posterior",
) -> tuple[tuple[Metric, ...], tuple[Coverage, ...], tuple[str, ...]]:
    """Metrics, coverage and verdict; `unit` is the target's name."""
    errors = rows.mean - rows.target
    inside = rows.inside
    coverage = tuple(_interval_coverage(rows, inside, level) for level in SHOWN_LEVELS if level in rows.levels)
    variance = float(rows.target.var())
    found = [
        _metric("rmse", "RMSE", float(np.sqrt(np.mean(errors**2))), f"in units of {unit}; lower is better"),
        _metric("mae", "MAE", float(np.abs(errors).mean()), f"in units of {unit}; lower is better"),
        _metric("log_score", "Log score", float(log_density.mean()), "mean log density, nats; higher is better"),
    ]
    if variance > 0.0:
        r2 = 1.0 - float(np.mean(errors**2)) / variance
        found.insert(2, _metric("r2", "R2", r2, "share of the variance explained; 1 is best"))
    if crps is not None:
        some = f", {MAX_CRPS_ROWS:,} rows drawn at random" if len(rows) > MAX_CRPS_ROWS else ""
        found.append(_metric("crps", "CRPS", crps, f"in units of {unit}; lower is better{some}"))
    distance, chance = uniformity(rows.pit)
    found.append(_metric("pit_distance", "PIT distance", distance, "Kolmogorov-Smirnov, from uniform; 0 is best"))
    verdict = [_on_coverage(coverage, "intervals", "targets")]
    if len(rows) >= MIN_JUDGED_ROWS:
        verdict += [_on_shape(distance, chance, coverage, kind), *_on_bias(rows.pit)]
    return tuple(found), coverage, tuple(verdict)


def _interval_coverage(rows: RegressionRows, inside: NDArray[np.bool_], level: float) -> Coverage:
    place = int(np.argmin(np.abs(rows.levels - level)))
    share, width = float(inside[place].mean()), float((rows.upper[place] - rows.lower[place]).mean())
    band = binomial_band(len(rows), level)
    return Coverage(level, share, *band, width, _judged(share, band, len(rows)))


def uniformity(pit: NDArray[np.float64]) -> tuple[float, float]:
    """Kolmogorov-Smirnov distance of PIT values from uniform, and its p-value."""
    from scipy.stats import kstwo

    ordered, steps = np.sort(pit), np.arange(len(pit) + 1) / len(pit)
    distance = float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))
    return distance, float(kstwo.sf(distance, len(pit)))


def _on_part(part: Part) -> str:
    """A sentence on a part of the rows that is not calibrated."""
    line = part.coverage
    return (
        f"Not for all rows alike: of {part.name}, {part.rows:,} rows, the {line.level:.0%} intervals held "
        f"{line.share:.1%} ({line.low:.1%} to {line.high:.1%} expected): {line.judgement}."
    )


def _on_shape(distance: float, chance: float, coverage: tuple[Coverage, ...], kind: Kind) -> str:
    """A sentence on the distributions as a whole, which must not contradict the one on the intervals."""
    whose = (
        "The predicted distributions" if kind == "posterior" else "Before they are made conformal, the distributions"
    )
    often = "less than one time in 1,000" if chance < 0.001 else f"{chance:.1%} of the time"
    size = f"their distance from uniform is {distance:.3f}, which a calibrated model exceeds {often}"
    if chance < MISFIT_P_VALUE and distance > 2 * SMALL_DIFFERENCE:
        return f"{whose} do not fit as a whole: PIT values are not uniform ({size})."
    amiss = sum(line.judgement in MISFITS for line in coverage) if kind == "posterior" else 0
    if amiss > 1:
        return (
            f"{whose} do not fit, by their intervals: PIT values look uniform as a whole ({size}), but that test sees "
            "little of widths and tails."
        )
    rarity = f" About one calibrated model in eight misses one level of {len(coverage)}." if amiss else ""
    return f"{whose} fit as a whole: PIT values look uniform ({size}).{rarity}"


def _on_bias(pit: NDArray[np.float64]) -> list[str]:
    above = float((pit > 0.5).mean())
    if abs(above - 0.5) < max(2.58 * 0.5 / np.sqrt(len(pit)), SMALL_DIFFERENCE):
        return []
    side, other, share = ("low", "above", above) if above > 0.5 else ("high", "below", 1.0 - above)
    return [f"Predictions are too {side} more often than not: {share:.0%} of the targets lie {other} the median."]


# --- classification -------------------------------------------------------------------------------


def score_classification(
    rows: ClassificationRows,
    log_probability: NDArray[np.float64],  # (n,) of the true class
    sets: Mapping[float, NDArray[np.bool_]],  # by level (n, k)
    kind: Kind,
) -> tuple[tuple[Metric, ...], tuple[Coverage, ...], tuple[str, ...]]:
    """Metrics, coverage of the sets of classes, and verdict."""
    targets = torch.from_numpy(rows.target)
    prediction = ClassificationPrediction.from_probabilities(torch.from_numpy(rows.probabilities)[None], exclusive=True)
    found = [
        _metric("accuracy", "Accuracy", metrics.accuracy(prediction, targets), "higher is better", percent=True),
        _metric("nll", "NLL", -float(log_probability.mean()), "negative log probability, nats; lower is better"),
        _metric(
            "brier", "Brier", metrics.brier(prediction, targets), "squared error of probabilities; lower is better"
        ),
        _metric("ece", "ECE", metrics.ece(prediction, targets), "expected calibration error; lower is better"),
    ]
    if len(rows.classes) == 2 and 0 < rows.target.sum() < len(rows):
        scores = torch.from_numpy(rows.probabilities[:, 1])
        area = metrics.auroc(scores[targets == 1], scores[targets == 0])
        found.append(_metric("auroc", "AUROC", area, f"of {rows.classes[1]!r}; 0.5 is a coin, 1 is best"))
    coverage = tuple(_set_coverage(rows, level, chosen, kind) for level, chosen in sets.items())
    verdict = [_on_confidence(rows), _on_coverage(coverage, "sets", "labels")]
    return tuple(found), coverage, tuple(verdict)


def _set_coverage(rows: ClassificationRows, level: float, chosen: NDArray[np.bool_], kind: Kind) -> Coverage:
    """Coverage of sets. They hold whole classes, so more than their level: if calibrated, their own probability."""
    share = float(chosen[np.arange(len(rows)), rows.target].mean())
    if kind == "posterior":
        band = _bernoulli_band((rows.probabilities * chosen).sum(1))
    else:
        band = (binomial_band(len(rows), level)[0], 1.0)
    return Coverage(level, share, *band, float(chosen.sum(1).mean()), _judged(share, band, len(rows)))


def _bernoulli_band(chances: NDArray[np.float64]) -> Band:
    """The range of the share of successes, 95 times in 100, of independent trials with these probabilities."""
    error = 1.96 * float(np.sqrt((chances * (1.0 - chances)).clip(0.0).sum())) / len(chances)
    # One success more or less is no evidence, however confident the model was.
    error = max(error, 1.0 / len(chances), SMALL_DIFFERENCE)
    return max(0.0, float(chances.mean()) - error), min(1.0, float(chances.mean()) + error)


def _on_confidence(rows: ClassificationRows) -> str:
    confidence = rows.probabilities.max(1)
    accuracy = float((rows.probabilities.argmax(1) == rows.target).mean())
    band = _bernoulli_band(confidence)
    judgement = _judged(accuracy, band, len(rows))
    return (
        f"The model was sure to {confidence.mean():.1%} on average and right in {accuracy:.1%} of the rows "
        f"({band[0]:.1%} to {band[1]:.1%} expected): {judgement}."
    )


def _against_mean(rows: RegressionRows) -> str:
    """A sentence if the mean of these same rows predicts them better by squared error: R2 < 0."""
    model, mean = float(np.sqrt(np.mean((rows.target - rows.mean) ** 2))), float(rows.target.std())
    if not model > mean > 0.0:
        return ""
    return f"Worse than the mean: RMSE {shown(model)}, against {shown(mean)} by predicting their mean for all rows."


def _against_shares(rows: ClassificationRows, shares: NDArray[np.float64]) -> str:
    """A sentence if the most frequent class is more accurate and the classes' shares have a higher log score."""
    most = int(shares.argmax())
    model, usual = (float(np.mean(guess == rows.target)) for guess in (rows.probabilities.argmax(1), most))
    likely = rows.probabilities[np.arange(len(rows)), rows.target]
    gain = float(np.mean(np.log(likely.clip(1e-300)) - np.log(shares[rows.target].clip(1e-300))))
    if model >= usual or gain >= 0.0:
        return ""
    return (
        f"Worse than the most frequent class: right in {model:.1%} of the rows, against {usual:.1%} by predicting "
        f"{rows.classes[most]!r} for all rows."
    )


# --- both -----------------------------------------------------------------------------------------


def _metric(key: str, name: str, value: float, note: str, *, percent: bool = False) -> Metric:
    return Metric(key, name, value, _text(value, percent=percent), note)


def _text(value: float, *, percent: bool) -> str:
    return f"{value:.1%}" if percent else shown(value)


def _on_coverage(coverage: tuple[Coverage, ...], what: str, held: str) -> str:
    """A sentence on the 90 % intervals or sets, and on those of other levels that are not calibrated."""
    main = next(line for line in coverage if line.level == 0.9)
    text = (
        f"The {main.level:.0%} {what} held {main.share:.1%} of the {held} ({main.low:.1%} to {main.high:.1%} expected "
        f"of a calibrated model): {main.judgement}."
    )
    for judgement in MISFITS:
        lines = [line for line in coverage if line.judgement == judgement and line is not main]
        others = ", ".join(f"the {line.level:.0%} {what} held {line.share:.1%}" for line in lines)
        also = "Also" if main.judgement == judgement else "But"
        text += f" {also} {judgement}: {others}." if lines else ""
    return text
