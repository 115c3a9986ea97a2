"""Predictions of an estimator for encoded rows, as arrays, a limited number of rows at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from livi import metrics
from livi.tables.content import ClassificationRows, RegressionRows

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
QUANTILES = (0.05, 0.5, 0.95)
_ROWS = 2048  # at a time
_CRPS_ROWS = 4096  # the score costs the square of the number of weight draws for each

Floats = NDArray[np.float64]


def chunks(features: Floats) -> Iterator[slice]:
    for start in range(0, len(features), _ROWS):
        yield slice(start, start + _ROWS)


def regression_columns(estimator: Any, features: Floats) -> dict[str, Floats]:
    """Mean, standard deviations and quantiles of each row by name, and a conformal 90 % interval where there is one."""
    found = []
    for some in chunks(features):
        part = estimator.predictive(features[some])
        quantiles = part.quantile(list(QUANTILES))
        found.append([part.mean, part.epistemic_std, part.total_std, *quantiles])
    names = ("mean", "std_epistemic", "std_total", "p05", "p50", "p95")
    columns = dict(zip(names, _joined(found), strict=True))
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

    The CRPS is that of the first 4,096 rows. A conformal model gives intervals of the levels it has rows for.
    """
    found, scores = [], []
    conformal = estimator.interval == "conformal"
    probabilities = [] if conformal else [0.5 * (1.0 + sign * level) for sign in (-1, 1) for level in LEVELS]
    for some in chunks(features):
        part = estimator.predictive(features[some])
        truth = torch.from_numpy(target[some]).to(part.means)
        ends = part.quantile(probabilities) if probabilities else ()
        parts = (part.mean, part.epistemic_std, part.aleatoric_std, part.total_std, part.cdf(truth))
        found.append([*parts, part.log_prob(truth), *ends])
        if some.start < _CRPS_ROWS:
            scores.append((metrics.crps(part, truth), len(truth)))
    mean, epistemic, aleatoric, total, pit, log_density, *ends = _joined(found)
    levels, lower, upper = _conformal(estimator, features) if conformal else _central(ends)
    rows = RegressionRows(target, mean, epistemic, aleatoric, total, pit.clip(0.0, 1.0), levels, lower, upper)
    values, sizes = zip(*scores, strict=True)
    return rows, log_density, float(np.average(values, weights=sizes))


def classification_columns(estimator: Any, features: Floats) -> tuple[Floats, Floats, Floats]:  # (n, k), (n,), (n,)
    """Probabilities, entropy and mutual information of each row."""
    found = []
    for some in chunks(features):
        part = estimator.predictive(features[some])
        found.append([part.probabilities, part.entropy, part.mutual_information])
    probabilities, entropy, information = _joined(found)
    return probabilities, entropy, information


def classification_rows(
    estimator: Any,
    features: Floats,  # (n, p)
    target: NDArray[np.int64],  # (n,)
    classes: tuple[str, ...],
) -> tuple[ClassificationRows, Floats]:
    """Predictions for rows with known classes, and the log probabilities of these."""
    columns = classification_columns(estimator, features)
    logs = [
        estimator.predictive(features[some]).log_prob(torch.from_numpy(target[some])).cpu().numpy()
        for some in chunks(features)
    ]
    return ClassificationRows(target, classes, *columns), np.concatenate(logs)


def _central(ends: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
    return np.array(LEVELS), np.stack(ends[: len(LEVELS)]), np.stack(ends[len(LEVELS) :])


def usable_levels(estimator: Any, levels: Sequence[float]) -> tuple[float, ...]:
    """The levels that the estimator can give intervals or sets of: a conformal one needs rows for high levels."""
    if estimator.interval != "conformal":
        return tuple(levels)
    rows = len(estimator.conformity_scores_)
    return tuple(level for level in levels if math.ceil((rows + 1) * level - 1e-9) <= rows)


def _conformal(estimator: Any, features: Floats) -> tuple[Floats, Floats, Floats]:
    levels = usable_levels(estimator, LEVELS)
    ends = [estimator.predict_interval(features, round(1.0 - level, 4)) for level in levels]
    return np.array(levels), np.stack([end[:, 0] for end in ends]), np.stack([end[:, 1] for end in ends])


def _joined(found: Sequence[Sequence[torch.Tensor]]) -> list[Floats]:
    """Lists of tensors, one a chunk of rows, as whole arrays."""
    return [
        np.concatenate([part.cpu().numpy() for part in parts]).astype(np.float64) for parts in zip(*found, strict=True)
    ]
