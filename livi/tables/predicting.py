"""Predictions of an estimator for encoded rows, as arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from livi.posterior import metrics
from livi.running import Progress
from livi.tables.content import ClassificationRows, RegressionRows
from livi.tables.estimators.conformal import rank, threshold
from livi.tables.estimators.draws import MAX_ERROR
from livi.tables.estimators.target import stretched
from livi.tables.evaluation import MAX_CRPS_ROWS
from livi.tables.reading import Table

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
QUANTILES = (0.05, 0.5, 0.95)
BLOCK_ROWS = 1_000  # rows predicted between updates of the progress
PROGRESS_DELAY = 2.0  # seconds before progress is shown

Floats = NDArray[np.float64]
Part = TypeVar("Part")
Rows = TypeVar("Rows", slice, Table)


@dataclass
class MonteCarlo:
    """Summary of the Monte Carlo errors of predictions, collected part by part.

    The errors are those of `LIVIRegressor.monte_carlo_error`.
    """

    rows: int = 0
    networks: int = 0  # used for a row, summed over rows
    fewest: int = 0  # networks used for a row
    most: int = 0
    worst: float = 0.0  # error of a row
    above: int = 0  # rows with an error above the tolerance

    def add(self, errors: Floats, networks: NDArray[np.int64]) -> None:
        self.fewest = min(self.fewest or int(networks.min()), int(networks.min()))
        self.most = max(self.most, int(networks.max()))
        self.rows += len(errors)
        self.networks += int(networks.sum())
        self.worst = max(self.worst, float(errors.max()))
        self.above += int((errors > MAX_ERROR).sum())

    def __str__(self) -> str:
        used = f"{self.most} networks a row"
        if self.fewest < self.most:
            used = f"{self.fewest} to {used}, {self.networks / self.rows:.0f} on average"
        beyond = f", above {MAX_ERROR:.0%} in {self.above:,} of {self.rows:,} rows" if self.above else ""
        return f"Monte Carlo error {self.worst:.1%} of a prediction's spread at most{beyond} ({used})"


def in_blocks(read: Callable[[slice], Part], rows: int, *, progress: bool) -> list[Part]:
    """The results of `read`, called with 1,000 rows at a time.

    Args:
        progress: after two seconds, show on stderr how many rows are done.
    """
    blocks = (slice(start, min(rows, start + BLOCK_ROWS)) for start in range(0, rows, BLOCK_ROWS))
    return [read(block) for block in shown_progress(blocks, rows, progress=progress)]


def shown_progress(parts: Iterable[Rows], rows: int | None, *, progress: bool) -> Iterator[Rows]:
    """Yield the parts; after two seconds, show on stderr how many rows are done.

    Args:
        rows: the number in all parts together; None if unknown.
    """
    shown = Progress(rows, quiet=not progress, unit="rows")
    shown.begin(0, label="predicting")
    started, done = time.perf_counter(), 0
    try:
        for part in parts:
            yield part
            done += part.stop - part.start if isinstance(part, slice) else len(part)
            if time.perf_counter() - started > PROGRESS_DELAY:
                shown.show(done, {})
    finally:
        shown.close()


def regression_names(estimator: Any) -> tuple[str, ...]:
    names = ("mean", "std_epistemic", "std_total", "p05", "p50", "p95")
    return (*names, "lower", "upper") if estimator.interval == "conformal" else names


def regression_columns(estimator: Any, features: Floats, monte_carlo: MonteCarlo) -> dict[str, Floats]:
    """By name: mean, standard deviations and quantiles of each row, and conformal 90 % intervals if there are any."""
    conformal = estimator.interval == "conformal"
    reach = threshold(estimator.conformity_scores_, 0.1) if conformal else 0.0

    def extract(part: Any, _: NDArray[np.intp]) -> Sequence[torch.Tensor]:
        ends = stretched(part, reach) if conformal else ()
        columns = (part.mean, part.epistemic_std, part.total_std, *part.quantile(list(QUANTILES)), *ends)
        return (*estimator.sampling(part), *columns)

    errors, networks, *found = estimator.read_predictive(features, extract)
    monte_carlo.add(errors, networks)
    return dict(zip(regression_names(estimator), found, strict=True))


def regression_rows(
    estimator: Any,
    features: Floats,  # (n, p)
    target: Floats,  # (n,)
    *,
    progress: bool = False,
) -> tuple[RegressionRows, Floats, float]:
    """Predictions for rows with known targets, the targets' log densities, and the CRPS.

    The CRPS is that of at most 1,024 rows, drawn at random. A conformal model gives intervals of those levels only for
    which it has enough calibration rows.
    """
    levels = usable_levels(estimator, LEVELS)
    ends_of = _conformal(estimator, levels) if estimator.interval == "conformal" else _central(levels)

    def read(block: slice) -> Sequence[Floats]:
        def extract(part: Any, some: NDArray[np.intp]) -> Sequence[torch.Tensor]:
            truth = torch.from_numpy(target[block][some]).to(part.means)
            deviations = (part.epistemic_std, part.aleatoric_std, part.total_std)
            return (part.mean, *deviations, metrics.pit(part, truth), part.log_prob(truth), *ends_of(part))

        found: Sequence[Floats] = estimator.read_predictive(features[block], extract)
        return found

    parts = in_blocks(read, len(target), progress=progress)
    mean, epistemic, aleatoric, total, pit, log_density, *ends = map(np.concatenate, zip(*parts, strict=True))
    lower, upper = np.stack(ends[: len(levels)]), np.stack(ends[len(levels) :])
    spread = (epistemic, aleatoric, total)
    counts = estimator.interval != "conformal" and estimator.model_.target_scale == "count"
    rows = RegressionRows(target, mean, *spread, pit.clip(0.0, 1.0), np.array(levels), lower, upper, counts)
    return rows, log_density, _crps(estimator, features, target)


def _central(levels: Sequence[float]) -> Callable[[Any], Sequence[torch.Tensor]]:
    """A function of a prediction: lower ends of the central intervals of these levels, then upper ends."""
    probabilities = [0.5 * (1.0 + sign * level) for sign in (-1, 1) for level in levels]
    return lambda part: tuple(part.quantile(probabilities))


def _conformal(estimator: Any, levels: Sequence[float]) -> Callable[[Any], Sequence[torch.Tensor]]:
    """A function of a prediction: lower, then upper ends of the conformal intervals, as in `predict_interval`."""
    reaches = [threshold(estimator.conformity_scores_, round(1.0 - level, 4)) for level in levels]

    def ends(part: Any) -> Sequence[torch.Tensor]:
        found = [stretched(part, reach) for reach in reaches]
        return [*(lower for lower, _ in found), *(upper for _, upper in found)]

    return ends


def _crps(estimator: Any, features: Floats, target: Floats) -> float:
    drawn = np.sort(np.random.default_rng(0).permutation(len(target))[:MAX_CRPS_ROWS])
    truths = target[drawn]

    def extract(part: Any, some: NDArray[np.intp]) -> Sequence[torch.Tensor]:
        truth = torch.from_numpy(truths[some]).to(part.means)
        return (torch.full_like(truth, metrics.crps(part, truth)),)  # the mean over these rows, for each of them

    return float(estimator.read_predictive(features[drawn], extract)[0].mean())


def classification_names(estimator: Any, classes: Sequence[str]) -> tuple[str, ...]:
    names = ("class", *(f"p_{name}" for name in classes), "entropy", "mutual_information")
    return (*names, "set") if estimator.interval == "conformal" else names


def classification_columns(
    estimator: Any, features: Floats, monte_carlo: MonteCarlo
) -> tuple[Floats, Floats, Floats]:  # (n, k), (n,), (n,)
    """Probabilities, entropy and mutual information of each row."""

    def extract(part: Any, _: NDArray[np.intp]) -> Sequence[torch.Tensor]:
        return (*estimator.sampling(part), part.probabilities, part.entropy, part.mutual_information)

    errors, networks, probabilities, entropy, information = estimator.read_predictive(features, extract)
    monte_carlo.add(errors, networks)
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
    """Predictions for rows with known classes, the log probabilities of those, and sets of classes by level."""
    usable = usable_levels(estimator, levels)

    def read(block: slice) -> Sequence[NDArray[Any]]:
        def extract(part: Any, some: NDArray[np.intp]) -> Sequence[torch.Tensor]:
            log_probability = part.log_prob(torch.from_numpy(target[block][some]))
            return part.probabilities, part.entropy, part.mutual_information, log_probability

        found = estimator.read_predictive(features[block], extract)
        return [*found, *(estimator.sets_of(found[0], round(1.0 - level, 4)) for level in usable)]

    parts = in_blocks(read, len(target), progress=progress)
    probabilities, entropy, information, logs, *sets = map(np.concatenate, zip(*parts, strict=True))
    rows = ClassificationRows(target, classes, probabilities, entropy, information)
    return rows, logs, dict(zip(usable, sets, strict=True))


def usable_levels(estimator: Any, levels: Sequence[float]) -> tuple[float, ...]:
    """The levels for which the estimator has intervals or sets: high conformal levels need many calibration rows."""
    if estimator.interval != "conformal":
        return tuple(levels)
    rows = len(estimator.conformity_scores_)
    return tuple(level for level in levels if rank(rows, round(1.0 - level, 4)) <= rows)
