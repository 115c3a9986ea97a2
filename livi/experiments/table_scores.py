"""The answers of a method for test rows, and their scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from livi.posterior import metrics
from livi.posterior.prediction import (
    ClassificationPrediction,
    DrawnPrediction,
    LogNormalPrediction,
    RegressionPrediction,
)

Array = NDArray[np.float64]
Density = RegressionPrediction | LogNormalPrediction | DrawnPrediction

LEVEL = 0.9  # of all intervals and sets
LEAST_PROBABILITY = 1e-15  # probabilities of true classes are raised to this, for every method


@dataclass(frozen=True)
class Band:
    """Means and 90 % intervals, and the predictive density if the method has one."""

    mean: Array  # (n,)
    lower: Array  # (n,)
    upper: Array  # (n,)
    density: Density | None
    log_density: Array | None  # (n,), of the test targets


@dataclass(frozen=True)
class Classes:
    """Probabilities of all classes, and the classes in each row's 90 % set."""

    probabilities: Array  # (n, k)
    sets: NDArray[np.bool_]  # (n, k)


Answer = Band | Classes


def band(prediction: Density, targets: Array, interval: Array | None = None) -> Band:
    """The band of a predictive density, with its central interval unless another one, (n, 2), is given."""
    ends = (
        (interval[:, 0], interval[:, 1])
        if interval is not None
        else tuple(end.numpy() for end in prediction.interval(LEVEL))
    )
    return Band(
        prediction.mean.numpy(), ends[0], ends[1], prediction, prediction.log_prob(torch.from_numpy(targets)).numpy()
    )


def normal_band(mean: Array, std: Array, targets: Array) -> Band:  # (n,) each
    """The band of a Gaussian for each row."""
    prediction = RegressionPrediction(torch.from_numpy(mean)[None], torch.from_numpy(std)[None])
    return band(prediction, targets)


def classes(probabilities: Array, sets: NDArray[np.bool_] | None = None) -> Classes:
    """Class probabilities, with the smallest sets that hold at least 90 % unless other sets are given.

    >>> classes(np.array([[0.05, 0.6, 0.35], [0.95, 0.03, 0.02]])).sets
    array([[False,  True,  True],
           [ True, False, False]])
    """
    if sets is None:
        more_probable = probabilities[:, None, :] > probabilities[:, :, None]
        sets = (more_probable * probabilities[:, None, :]).sum(2) < LEVEL
    return Classes(probabilities, sets)


def scores(answer: Answer, targets: NDArray[Any], step: float = 0.0) -> dict[str, float | None]:
    """Every score of an answer, by name; None where the method has no density, or a number is not finite.

    Args:
        step: the step that regression targets are rounded to; 0 for none.
    """
    found = _of_band(answer, targets, step) if isinstance(answer, Band) else _of_classes(answer, targets)
    return {name: value if value is not None and math.isfinite(value) else None for name, value in found.items()}


def cell_scores(prediction: Density, targets: Array, step: float) -> Array:  # (n,)
    """Log densities of rounded targets, each density averaged over the cell y -+ step / 2 that was rounded to it.

    The log density itself has no upper limit for rounded targets, as a density can have a narrow peak at each of their
    possible values; the probability of a cell is at most 1. Predictions of counts are probabilities already.
    """
    values = torch.from_numpy(targets)
    if step <= 0.0 or isinstance(prediction, DrawnPrediction):
        return prediction.log_prob(values).numpy()
    return (prediction.log_mass(values - 0.5 * step, values + 0.5 * step) - math.log(step)).numpy()


def _of_band(answer: Band, targets: Array, step: float) -> dict[str, float | None]:
    inside = (answer.lower <= targets) & (targets <= answer.upper)
    return {
        "rmse": float(np.sqrt(np.mean(np.square(answer.mean - targets)))),
        "log_score": None if answer.log_density is None else float(answer.log_density.mean()),
        "cell_score": None if answer.density is None else float(cell_scores(answer.density, targets, step).mean()),
        "crps": None if answer.density is None else metrics.crps(answer.density, torch.from_numpy(targets)),
        "coverage": float(inside.mean()),
        "width": float((answer.upper - answer.lower).mean()),
    }


def _of_classes(answer: Classes, labels: NDArray[Any]) -> dict[str, float | None]:
    rows = np.arange(len(labels))
    prediction = ClassificationPrediction.from_probabilities(
        torch.from_numpy(answer.probabilities)[None], exclusive=True
    )
    truth = torch.from_numpy(labels)
    return {
        "accuracy": metrics.accuracy(prediction, truth),
        "log_score": float(np.log(np.maximum(answer.probabilities[rows, labels], LEAST_PROBABILITY)).mean()),
        "ece": metrics.ece(prediction, truth),
        "coverage": float(answer.sets[rows, labels].mean()),
        "set_size": float(answer.sets.sum(1).mean()),
    }
