"""Predictions of an estimator for encoded rows, as arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from livi.inference.progress import Progress
from livi.posterior import metrics
from livi.tables.content import ClassificationRows, RegressionRows
from livi.tables.estimators.conformal import rank, threshold
from livi.tables.estimators.target import stretched
from livi.tables.evaluation import CRPS_ROWS

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
QUANTILES = (0.05, 0.5, 0.95)
BLOCK = 1_000  # rows between two looks at the clock
PATIENCE = 2.0  # seconds without a word

Floats = NDArray[np.float64]
Part = TypeVar("Part")


def in_blocks(read: Callable[[slice], Part], rows: int, *, progress: bool) -> list[Part]:
    """What `read` makes of some rows at a time.

    Args:
        progress: show on stderr how many rows are done, unless all of them take no more than two seconds.
    """
    shown = Progress(rows, quiet=not progress, unit="rows")
    shown.begin(0, label="predicting")
    started = time.perf_counter()
    found = []
    try:
        for start in range(0, rows, BLOCK):
            some = slice(start, min(rows, start + BLOCK))
            found.append(read(some))
            if time.perf_counter() - started > PATIENCE:
                shown.show(some.stop, {})
    finally:
        shown.close()
    return found


def regression_columns(estimator: Any, features: Floats) -> dict[str, Floats]:
    """Mean, standard deviations and quantiles of each row by name, and a conformal 90 % interval where there is one."""
    names = ["mean", "std_epistemic", "std_total", "p05", "p50", "p95"]
    conformal = estimator.interval == "conformal"
    reach = threshold(estimator.conformity_scores_, 0.1) if conformal else 0.0

    def what(part: Any, _: slice) -> Sequence[torch.Tensor]:
        ends = stretched(part, reach) if conformal else ()
        return (part.mean, part.epistemic_std, part.total_std, *part.quantile(list(QUANTILES)), *ends)

    found = estimator.read_predictive(features, what)
    return dict(zip(names + ["lower", "upper"] * conformal, found, strict=True))


def regression_rows(
    estimator: Any,
    features: Floats,  # (n, p)
    target: Floats,  # (n,)
    *,
    progress: bool = False,
) -> tuple[RegressionRows, Floats, float]:
    """Predictions for rows with known targets, the targets' log densities, and the CRPS.

    The CRPS is that of at most 1,024 rows, drawn at random. A conformal model gives intervals of the levels it has rows
    for.
    """
    levels = usable_levels(estimator, LEVELS)
    ends_of = _conformal(estimator, levels) if estimator.interval == "conformal" else _central(levels)

    def read(block: slice) -> Sequence[Floats]:
        def what(part: Any, some: slice) -> Sequence[torch.Tensor]:
            truth = torch.from_numpy(target[block][some]).to(part.means)
            deviations = (part.epistemic_std, part.aleatoric_std, part.total_std)
            return (part.mean, *deviations, part.cdf(truth), part.log_prob(truth), *ends_of(part))

        found: Sequence[Floats] = estimator.read_predictive(features[block], what)
        return found

    parts = in_blocks(read, len(target), progress=progress)
    mean, epistemic, aleatoric, total, pit, log_density, *ends = map(np.concatenate, zip(*parts, strict=True))
    lower, upper = np.stack(ends[: len(levels)]), np.stack(ends[len(levels) :])
    spread = (epistemic, aleatoric, total)
    rows = RegressionRows(target, mean, *spread, pit.clip(0.0, 1.0), np.array(levels), lower, upper)
    return rows, log_density, _crps(estimator, features, target)


def _central(levels: Sequence[float]) -> Callable[[Any], Sequence[torch.Tensor]]:
    """Lower ends of the central intervals of these levels, then upper ends."""
    probabilities = [0.5 * (1.0 + sign * level) for sign in (-1, 1) for level in levels]
    return lambda part: tuple(part.quantile(probabilities))


def _conformal(estimator: Any, levels: Sequence[float]) -> Callable[[Any], Sequence[torch.Tensor]]:
    """Likewise of the conformal intervals, as `predict_interval` gives them, all from one prediction."""
    reaches = [threshold(estimator.conformity_scores_, round(1.0 - level, 4)) for level in levels]

    def ends(part: Any) -> Sequence[torch.Tensor]:
        found = [stretched(part, reach) for reach in reaches]
        return [*(lower for lower, _ in found), *(upper for _, upper in found)]

    return ends


def _crps(estimator: Any, features: Floats, target: Floats) -> float:
    drawn = np.sort(np.random.default_rng(0).permutation(len(target))[:CRPS_ROWS])
    truths = target[drawn]

    def what(part: Any, some: slice) -> Sequence[torch.Tensor]:
        truth = torch.from_numpy(truths[some]).to(part.means)
        return (torch.full_like(truth, metrics.crps(part, truth)),)  # their average for each of them

    return float(estimator.read_predictive(features[drawn], what)[0].mean())


def classification_columns(estimator: Any, features: Floats) -> tuple[Floats, Floats, Floats]:  # (n, k), (n,), (n,)
    """Probabilities, entropy and mutual information of each row."""
    probabilities, entropy, information = estimator.read_predictive(
        features, lambda part, _: (part.probabilities, part.entropy, part.mutual_information)
    )
    return probabilities, entropy, information


def classification_rows(
    estimator: Any,
    features: Floats,  # (n, p)
    target: NDArray[np.int64],  # (n,)
    classes: tuple[str, ...],
    levels: Sequence[float],
    *,
    progress: bool = False,
) -> tuple[ClassificationRows, Floats, dict[float, NDArray[np.bool_]]]:  # the sets (n, k)
    """Predictions for rows with known classes, the log probabilities of these, and sets of classes by level."""
    usable = usable_levels(estimator, levels)

    def read(block: slice) -> Sequence[NDArray[Any]]:
        def what(part: Any, some: slice) -> Sequence[torch.Tensor]:
            log_probability = part.log_prob(torch.from_numpy(target[block][some]))
            return part.probabilities, part.entropy, part.mutual_information, log_probability

        sets = [estimator.predict_set(features[block], round(1.0 - level, 4)) for level in usable]
        return [*estimator.read_predictive(features[block], what), *sets]

    parts = in_blocks(read, len(target), progress=progress)
    probabilities, entropy, information, logs, *sets = map(np.concatenate, zip(*parts, strict=True))
    rows = ClassificationRows(target, classes, probabilities, entropy, information)
    return rows, logs, dict(zip(usable, sets, strict=True))


def usable_levels(estimator: Any, levels: Sequence[float]) -> tuple[float, ...]:
    """The levels that the estimator can give intervals or sets of: a conformal one needs rows for high levels."""
    if estimator.interval != "conformal":
        return tuple(levels)
    rows = len(estimator.conformity_scores_)
    return tuple(level for level in levels if rank(rows, round(1.0 - level, 4)) <= rows)
