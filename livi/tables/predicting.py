"""Predictions of an estimator for encoded rows, as arrays, a limited number of rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from livi import metrics
from livi.estimators.conformal import rank
from livi.tables.content import ClassificationRows, RegressionRows
from livi.tables.evaluation import CRPS_ROWS

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
QUANTILES = (0.05, 0.5, 0.95)

Floats = NDArray[np.float64]


def regression_columns(estimator: Any, features: Floats) -> dict[str, Floats]:
    """Mean, standard deviations and quantiles of each row by name, and a conformal 90 % interval where there is one."""
    names = ("mean", "std_epistemic", "std_total", "p05", "p50", "p95")
    found = estimator.read_predictive(
        features,
        lambda part, _: (part.mean, part.epistemic_std, part.total_std, *part.quantile(list(QUANTILES))),
    )
    columns = dict(zip(names, found, strict=True))
    if estimator.interval == "conformal":
        ends = estimator.predict_interval(features, 0.1)
        columns |= {"lower": ends[:, 0], "upper": ends[:, 1]}
    return columns


def regression_rows(
    estimator: Any,
    features: Floats,  # (n, p)
    target: Floats,  # (n,)
) -> tuple[RegressionRows, Floats, float]:
    """Predictions for rows with known targets, the targets' log densities, and the CRPS.

    The CRPS is that of at most 4,096 rows, drawn at random. A conformal model gives intervals of the levels it has rows
    for.
    """
    conformal = estimator.interval == "conformal"
    probabilities = [] if conformal else [0.5 * (1.0 + sign * level) for sign in (-1, 1) for level in LEVELS]

    def what(part: Any, some: slice) -> Sequence[torch.Tensor]:
        truth = torch.from_numpy(target[some]).to(part.means)
        ends = part.quantile(probabilities) if probabilities else ()
        deviations = (part.epistemic_std, part.aleatoric_std, part.total_std)
        return (part.mean, *deviations, part.cdf(truth), part.log_prob(truth), *ends)

    mean, epistemic, aleatoric, total, pit, log_density, *ends = estimator.read_predictive(features, what)
    levels, lower, upper = _conformal(estimator, features) if conformal else _central(ends)
    rows = RegressionRows(target, mean, epistemic, aleatoric, total, pit.clip(0.0, 1.0), levels, lower, upper)
    return rows, log_density, _crps(estimator, features, target)


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
) -> tuple[ClassificationRows, Floats]:
    """Predictions for rows with known classes, and the log probabilities of these."""

    def what(part: Any, some: slice) -> Sequence[torch.Tensor]:
        log_probability = part.log_prob(torch.from_numpy(target[some]))
        return part.probabilities, part.entropy, part.mutual_information, log_probability

    probabilities, entropy, information, log_probability = estimator.read_predictive(features, what)
    return ClassificationRows(target, classes, probabilities, entropy, information), log_probability


def _central(ends: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
    return np.array(LEVELS), np.stack(ends[: len(LEVELS)]), np.stack(ends[len(LEVELS) :])


def usable_levels(estimator: Any, levels: Sequence[float]) -> tuple[float, ...]:
    """The levels that the estimator can give intervals or sets of: a conformal one needs rows for high levels."""
    if estimator.interval != "conformal":
        return tuple(levels)
    rows = len(estimator.conformity_scores_)
    return tuple(level for level in levels if rank(rows, round(1.0 - level, 4)) <= rows)


def _conformal(estimator: Any, features: Floats) -> tuple[Floats, Floats, Floats]:
    levels = usable_levels(estimator, LEVELS)
    ends = [estimator.predict_interval(features, round(1.0 - level, 4)) for level in levels]
    return np.array(levels), np.stack([end[:, 0] for end in ends]), np.stack([end[:, 1] for end in ends])
