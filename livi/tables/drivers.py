"""What a model's predictions depend on: permutation importance of columns, and partial dependence on some of them.

This describes the model, not the world: a column may show no effect because another one carries the same information.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livi.outliers import far_out
from livi.tables.content import Driver, Effect
from livi.tables.schema import MISSING_CATEGORY, Column, Schema

SHUFFLED_ROWS, EFFECT_ROWS = 400, 150  # rows among which columns are shuffled, and rows that effects are averaged over
NUM_SHUFFLES = 3
MAX_EFFECTS, MAX_EFFECT_CATEGORIES, EFFECT_POINTS = 6, 12, 21
BAND_QUANTILES = (0.05, 0.95)  # quantiles over networks

Floats = NDArray[np.float64]


def drivers(estimator: Any, schema: Schema, features: Floats, truth: NDArray[Any]) -> tuple[Driver, ...]:
    """Permutation importance: the error of predictions with each column shuffled among the rows, largest first.

    The error is the RMSE, or for classification the average probability of wrong classes.

    Cost: three predictions of up to 400 rows for each column.
    """
    some = np.random.default_rng(0).permutation(len(features))[:SHUFFLED_ROWS]
    rows, targets = features[some], truth[some]
    unshuffled = _error(estimator, schema, rows, targets)
    found = []
    for column, place in _feature_slices(schema):
        errors = []
        for shuffle in range(NUM_SHUFFLES):
            changed = rows.copy()
            changed[:, place] = rows[np.random.default_rng(shuffle).permutation(len(rows))][:, place]
            errors.append(_error(estimator, schema, changed, targets))
        found.append(Driver(column.name, unshuffled, float(np.mean(errors))))
    return tuple(sorted(found, key=lambda one: -one.without))


def effects(estimator: Any, schema: Schema, features: Floats, order: tuple[str, ...]) -> tuple[Effect, ...]:
    """Partial dependence on the first six columns: the average prediction as one column changes and the others do not.

    Bands hold the average predictions of 90 % of the networks drawn from the posterior; they are wide where there were
    few rows.

    Args:
        order: names of columns, the most important first.
    """
    places = {column.name: (column, place) for column, place in _feature_slices(schema)}
    some = np.random.default_rng(1).permutation(len(features))[:EFFECT_ROWS]
    return tuple(
        _effect(estimator, schema, features, features[some], *places[name])
        for name in order[:MAX_EFFECTS]
        if name in places
    )


def _effect(estimator: Any, schema: Schema, features: Floats, rows: Floats, column: Column, place: slice) -> Effect:
    settings, values = _settings(features, column, place)
    curves = []
    for setting in settings:
        changed = rows.copy()
        changed[:, place] = setting
        curves.append(_per_network(estimator, schema, changed))
    curve = np.stack(curves)  # (points, S) or (points, S, k)
    about = ""
    if curve.ndim == 3:
        chosen = 1 if curve.shape[2] == 2 else int(np.ptp(curve.mean(1), axis=0).argmax())
        curve, about = curve[:, :, chosen], schema.classes[chosen]
    low, high = np.quantile(curve, BAND_QUANTILES, axis=1)
    return Effect(column.name, column.kind, tuple(values), curve.mean(1), low, high, about)


def _settings(features: Floats, column: Column, place: slice) -> tuple[Floats, list[float] | list[str]]:
    """The features of a column at each point of its curve, and the column's value there."""
    width = place.stop - place.start
    if column.kind == "categorical":
        names = [*column.categories, *([MISSING_CATEGORY] if column.missing else [])][:MAX_EFFECT_CATEGORIES]
        return np.eye(width)[: len(names)], names
    present = features[:, place.start]
    if width == 2:
        known = present[features[:, place.start + 1] == 0.0]
        present = known if len(known) else present
    present = present[~far_out(present)]  # a code such as 99999 would leave no room for the others
    distinct = np.unique(present)
    low, high = np.quantile(present, [0.02, 0.98])
    points = distinct if len(distinct) <= EFFECT_POINTS else np.linspace(low, high, EFFECT_POINTS)
    settings = np.zeros((len(points), width))
    settings[:, 0] = points
    return settings, points.tolist()


def _error(estimator: Any, schema: Schema, rows: Floats, targets: NDArray[Any]) -> float:
    if schema.task == "regression":
        [mean] = estimator.read_predictive(rows, lambda part, _: (part.mean,))
        return float(np.sqrt(np.mean((mean - targets) ** 2)))
    [chances] = estimator.read_predictive(rows, lambda part, _: (part.probabilities,))
    return float(1.0 - chances[np.arange(len(rows)), targets].mean())


def _per_network(estimator: Any, schema: Schema, rows: Floats) -> Floats:  # (S,) or (S, k)
    """The average prediction of each network for these rows."""
    if schema.task == "regression":
        [means] = estimator.read_predictive(rows, lambda part, _: (part.means.transpose(0, 1),), same_networks=True)
    else:
        [means] = estimator.read_predictive(rows, lambda part, _: (part.samples.transpose(0, 1),), same_networks=True)
    average: Floats = means.mean(0)
    return average


def _feature_slices(schema: Schema) -> Iterator[tuple[Column, slice]]:
    """Each column, with the slice that its features take up."""
    start = 0
    for column in schema.columns:
        yield column, slice(start, start + len(column.features))
        start += len(column.features)
