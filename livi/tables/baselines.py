"""Baselines that a model must beat: one constant prediction for all rows, and a linear model of the same columns.

Both are fitted to the same rows as the model, saved in its file, and scored on the same rows as the model.
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

MAX_LINEAR_ROWS = 20_000  # rows that a linear model is fitted to; more do not change the digits shown
PENALTIES = np.logspace(-3, 4, 15)  # of ridge regression
LOGIT_OF_ABSENT = -30.0  # logit of classes that are not among these rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Baselines:
    """A constant and a linear model, both either of numbers with Gaussian noise or of classes.

    Args:
        scaling: standardises the features.
        weights, offsets: of the linear model on standardised features, one column per output.
        constant: the mean (1,), or the share of each class (k,).
        noises: standard deviations of the targets around the mean and around the linear model; (0, 0) for classes.
    """

    scaling: Scaling  # (p,)
    weights: Floats  # (p, 1) or (p, k)
    offsets: Floats  # (1,) or (k,)
    constant: Floats  # (1,) or (k,)
    noises: tuple[float, float]

    @classmethod
    def of_numbers(cls, features: Floats, targets: Floats) -> Baselines:
        """The mean, and ridge regression with its penalty chosen by leave-one-out cross-validation."""
        from sklearn.linear_model import RidgeCV

        inputs, numbers, scaling = _standardised_sample(features, targets)
        model = RidgeCV(PENALTIES, store_cv_results=False).fit(inputs, numbers)
        residual = numbers - model.predict(inputs)
        freedom = max(1, len(numbers) - min(inputs.shape[1] + 1, len(numbers) // 2))
        noise = math.sqrt(float(np.square(residual).sum()) / freedom)
        weights, offset = np.reshape(model.coef_, (-1, 1)), np.reshape(model.intercept_, 1)
        return cls(scaling, weights, offset, targets.mean(keepdims=True), (float(targets.std()), noise))

    @classmethod
    def of_classes(cls, features: Floats, targets: NDArray[np.int64], count: int) -> Baselines:
        """The share of each class, and logistic regression."""
        from sklearn.linear_model import LogisticRegression

        inputs, labels, scaling = _standardised_sample(features, targets)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about convergence: near the maximum is good enough for a comparison
            model = LogisticRegression(max_iter=500).fit(inputs, labels)
        weights, offsets = np.zeros((inputs.shape[1], count)), np.full(count, LOGIT_OF_ABSENT)
        two = len(model.classes_) == 2
        weights[:, model.classes_] = np.concatenate([0 * model.coef_, model.coef_]).T if two else model.coef_.T
        offsets[model.classes_] = np.concatenate([[0.0], model.intercept_]) if two else model.intercept_
        return cls(scaling, weights, offsets, np.bincount(targets, minlength=count) / len(targets), (0.0, 0.0))

    def beside(self, metrics: tuple[Metric, ...], features: Floats, targets: NDArray[Any]) -> tuple[Metric, ...]:
        """The model's metrics on these rows, each with the scores of the baselines where these have one."""
        outputs = self.scaling.standardise(features) @ self.weights + self.offsets
        if len(self.constant) == 1:
            found = dict(_number_scores(self.constant[0], outputs[:, 0], self.noises, targets))
        else:
            found = dict(_class_scores(self.constant, outputs, targets))
        return tuple(metric.with_baselines(found.get(metric.key, ())) for metric in metrics)

    def facts(self) -> dict[str, Any]:
        """Tensors and numbers to save in a file."""
        arrays = {"shift": self.scaling.shift, "scale": self.scaling.scale, "weights": self.weights}
        arrays |= {"offsets": self.offsets, "constant": self.constant}
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()} | {
            "noises": tuple(self.noises)
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], features: int, classes: int) -> Baselines:
        """Baselines from what `facts` gave. Raises ValueError for sizes of another number of features or classes."""
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


def _standardised_sample(features: Floats, targets: NDArray[Any]) -> tuple[Floats, NDArray[Any], Scaling]:
    """Standardised features and targets of at most 20,000 random rows, and the scaling of all features."""
    scaling = Scaling.of(features, np.ones(len(features)))
    rows = np.random.default_rng(0).permutation(len(features))[:MAX_LINEAR_ROWS]
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
        yield "auroc", _pair([0.5, _auroc(linear[:, 1], targets == 1)])


def _pair(values: list[float]) -> tuple[Baseline, ...]:
    constant, linear = values
    return Baseline("constant", constant), Baseline("linear", linear)


def _crps(units: Floats) -> Floats:
    """The CRPS of a standard normal prediction for these numbers."""
    from scipy.stats import norm

    score: Floats = units * (2.0 * norm.cdf(units) - 1.0) + 2.0 * norm.pdf(units) - 1.0 / math.sqrt(math.pi)
    return score


def _auroc(scores: Floats, positive: NDArray[np.bool_]) -> float:
    """The area under the ROC curve, by ranks."""
    from scipy.stats import rankdata

    count = int(positive.sum())
    above = float(rankdata(scores)[positive].sum()) - count * (count + 1) / 2
    return above / (count * (len(scores) - count))
