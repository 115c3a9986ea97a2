"""What a model must beat: the same answer for every row, and a linear model of the same columns.

Both are learned from the rows that the model is fitted to, kept in its file, and scored on the same rows as the model.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from livi.tables.content import Baseline, Metric
from livi.tables.estimators.scaling import Scaling

ROWS = 20_000  # that a linear model is fitted to; more change nothing that is shown
PENALTIES = np.logspace(-3, 4, 15)

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Baselines:
    """A constant and a linear model, each for numbers with a Gaussian noise or for classes.

    Args:
        scaling: of the features.
        weights, offsets: of the linear model of standardised features, a column for each output.
        constant: the mean (1,), or the share of each class (k,).
        noises: standard deviations around the mean and around the linear model; (0, 0) for classes.
    """

    scaling: Scaling  # (p,)
    weights: Floats  # (p, 1) or (p, k)
    offsets: Floats  # (1,) or (k,)
    constant: Floats  # (1,) or (k,)
    noises: tuple[float, float]

    @classmethod
    def of_numbers(cls, features: Floats, targets: Floats) -> Baselines:
        """By ridge regression, its penalty chosen by leaving out one row at a time."""
        from sklearn.linear_model import RidgeCV

        inputs, numbers, scaling = _some(features, targets)
        model = RidgeCV(PENALTIES, store_cv_results=False).fit(inputs, numbers)
        residual = numbers - model.predict(inputs)
        freedom = max(1, len(numbers) - min(inputs.shape[1] + 1, len(numbers) // 2))
        noise = math.sqrt(float(np.square(residual).sum()) / freedom)
        weights, offset = np.reshape(model.coef_, (-1, 1)), np.reshape(model.intercept_, 1)
        return cls(scaling, weights, offset, targets.mean(keepdims=True), (float(targets.std()), noise))

    @classmethod
    def of_classes(cls, features: Floats, targets: NDArray[np.int64], count: int) -> Baselines:
        """By logistic regression."""
        from sklearn.linear_model import LogisticRegression

        inputs, labels, scaling = _some(features, targets)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # not at its maximum yet, which is near enough for a comparison
            model = LogisticRegression(max_iter=500).fit(inputs, labels)
        weights, offsets = np.zeros((inputs.shape[1], count)), np.full(count, -30.0)  # classes that were not among them
        two = len(model.classes_) == 2
        weights[:, model.classes_] = np.concatenate([0 * model.coef_, model.coef_]).T if two else model.coef_.T
        offsets[model.classes_] = np.concatenate([[0.0], model.intercept_]) if two else model.intercept_
        return cls(scaling, weights, offsets, np.bincount(targets, minlength=count) / len(targets), (0.0, 0.0))

    def beside(self, metrics: tuple[Metric, ...], features: Floats, targets: NDArray[Any]) -> tuple[Metric, ...]:
        """The model's metrics on these rows with those of the baselines, where they have them."""
        outputs = self.scaling.standardise(features) @ self.weights + self.offsets
        if any(self.noises) or len(self.constant) == 1:
            found = dict(_number_scores(self.constant[0], outputs[:, 0], self.noises, targets))
        else:
            found = dict(_class_scores(self.constant, outputs, targets))
        return tuple(metric.beside(found.get(metric.key, ())) for metric in metrics)

    def facts(self) -> dict[str, Any]:
        """As tensors and numbers, for a file."""
        arrays = {"shift": self.scaling.shift, "scale": self.scaling.scale, "weights": self.weights}
        arrays |= {"offsets": self.offsets, "constant": self.constant}
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()} | {
            "noises": tuple(self.noises)
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], features: int, classes: int) -> Baselines:
        """The opposite. Raises a ValueError where sizes do not suit so many features and classes."""
        arrays = {name: facts[name].double().numpy() for name in ("shift", "scale", "weights", "offsets", "constant")}
        outputs = max(1, classes)
        shapes = {"shift": (features,), "scale": (features,), "weights": (features, outputs)}
        shapes |= {"offsets": (outputs,), "constant": (outputs,)}
        noises = tuple(float(value) for value in facts["noises"])
        if any(arrays[name].shape != shape for name, shape in shapes.items()) or len(noises) != 2:
            raise ValueError("baselines of other sizes than the fit's")
        return cls(
            Scaling(arrays["shift"], arrays["scale"]), arrays["weights"], arrays["offsets"], arrays["constant"], noises
        )


def _some(features: Floats, targets: NDArray[Any]) -> tuple[Floats, NDArray[Any], Scaling]:
    """Standardised features and targets, of as many rows as it takes."""
    scaling = Scaling.of(features, np.ones(len(features)))
    rows = np.random.default_rng(0).permutation(len(features))[:ROWS]
    return scaling.standardise(features[rows]), targets[rows], scaling


def _number_scores(
    mean: float, linear: Floats, noises: tuple[float, float], targets: Floats
) -> Iterator[tuple[str, tuple[Baseline, ...]]]:
    guesses = (np.full(len(targets), mean), linear)
    spread = float(targets.var())
    squares = [float(np.mean((guess - targets) ** 2)) for guess in guesses]
    yield "rmse", _pair([math.sqrt(square) for square in squares])
    yield "mae", _pair([float(np.abs(guess - targets).mean()) for guess in guesses])
    if spread > 0.0:
        yield "r2", _pair([1.0 - square / spread for square in squares])
    if min(noises) > 0.0:
        logs = [
            -0.5 * math.log(2.0 * math.pi * noise**2) - 0.5 * square / noise**2
            for square, noise in zip(squares, noises, strict=True)
        ]
        yield "log_score", _pair(logs)
        pairs = zip(guesses, noises, strict=True)
        yield "crps", _pair([float(_crps((targets - guess) / noise).mean() * noise) for guess, noise in pairs])


def _class_scores(shares: Floats, outputs: Floats, targets: NDArray[np.int64]) -> Iterator[tuple[str, Any]]:
    logits = outputs - outputs.max(1, keepdims=True)
    linear = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    chances = (np.broadcast_to(shares, linear.shape), linear)
    rows = np.arange(len(targets))
    truth = np.zeros_like(linear)
    truth[rows, targets] = 1.0
    yield "accuracy", _pair([float((chance.argmax(1) == targets).mean()) for chance in chances])
    yield "nll", _pair([float(-np.log(chance[rows, targets].clip(1e-12)).mean()) for chance in chances])
    yield "brier", _pair([float(np.square(chance - truth).sum(1).mean()) for chance in chances])
    if linear.shape[1] == 2 and 0 < targets.sum() < len(targets):
        yield "auroc", _pair([0.5, _area(linear[:, 1], targets == 1)])


def _pair(values: list[float]) -> tuple[Baseline, ...]:
    constant, linear = values
    return Baseline("constant", constant), Baseline("linear", linear)


def _crps(units: Floats) -> Floats:
    """Of a standard normal prediction."""
    from scipy.stats import norm

    score: Floats = units * (2.0 * norm.cdf(units) - 1.0) + 2.0 * norm.pdf(units) - 1.0 / math.sqrt(math.pi)
    return score


def _area(scores: Floats, positive: NDArray[np.bool_]) -> float:
    """Under the ROC curve, by ranks."""
    from scipy.stats import rankdata

    count = int(positive.sum())
    above = float(rankdata(scores)[positive].sum()) - count * (count + 1) / 2
    return above / (count * (len(scores) - count))
