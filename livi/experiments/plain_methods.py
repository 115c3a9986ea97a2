"""The methods of the plain benchmark: each is a function from a `Task` to an `Answer`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from livi.experiments.plain_problems import Parts, Problem, Rows, build_network
from livi.experiments.plain_training import PlainNetwork, predict_plain, train
from livi.inference import fit
from livi.posterior import metrics
from livi.posterior.interruption import completed
from livi.posterior.prediction import ClassificationPrediction, RegressionPrediction

MEMBERS = 5
LEVEL = 0.9

Prediction = ClassificationPrediction | RegressionPrediction


@dataclass(frozen=True)
class Task:
    """A problem, its data, and how to fit.

    Args:
        inputs: of the rows to predict.
        steps: limit for a trial run; None for a whole fit.
    """

    problem: Problem
    parts: Parts
    inputs: Tensor
    seed: int
    steps: int | None = None


@dataclass(frozen=True)
class Answer:
    """A prediction, and the seconds of training alone.

    Args:
        start_seconds: of training the network that the fit started from, not part of `seconds`; None without one.
    """

    prediction: Prediction
    seconds: float
    start_seconds: float | None = None


def fit_plain(task: Task) -> Answer:
    """The network trained as usual, without livi."""
    return _fit_members(task, 1)


def fit_members(task: Task) -> Answer:
    """The average of five networks trained so from different seeds; the first is that of `fit_plain`."""
    return _fit_members(task, MEMBERS)


def fit_livi(task: Task) -> Answer:
    """`livi.fit` without options, from the fresh network that `fit_plain` starts from."""
    return _fit_posterior(task, build_network(task.problem, _seed(task, 0)))


def fit_livi_from_net(task: Task) -> Answer:
    """`livi.fit` started at the network that `fit_plain` has trained."""
    begun = time.perf_counter()
    start = _train_member(task, 0)
    return _fit_posterior(task, start.net, start_seconds=time.perf_counter() - begun, start="net")


METHODS: dict[str, Callable[[Task], Answer]] = {
    "plain": fit_plain,
    "ensemble": fit_members,
    "livi": fit_livi,
    "livi-net": fit_livi_from_net,
}


def scores(prediction: Prediction, rows: Rows, parts: Parts) -> dict[str, Any]:
    """Every score by name, in the targets' own units; None for scores that are not finite.

    `outputs` has NLL and coverage of each single output where there are several, and is None otherwise.
    """
    if isinstance(prediction, ClassificationPrediction):
        found = {name: getattr(metrics, name)(prediction, rows.targets) for name in ("nll", "accuracy", "ece")}
        return {name: _finite(value) for name, value in found.items()} | {"outputs": None}
    prediction = prediction.rescaled(parts.shift, parts.scale)
    targets = parts.shift + parts.scale * rows.targets.double()
    num_outputs = targets.shape[1] if targets.ndim == 2 else 0
    outputs = [
        _nll_and_coverage(RegressionPrediction(prediction.means[..., k], prediction.stds[..., k]), targets[:, k])
        for k in range(num_outputs)
    ]
    whole = _nll_and_coverage(prediction, targets) | {"rmse": _finite(metrics.rmse(prediction, targets))}
    return whole | {"outputs": outputs or None}


def _nll_and_coverage(prediction: RegressionPrediction, targets: Tensor) -> dict[str, float | None]:
    return {
        "nll": _finite(metrics.nll(prediction, targets)),
        "coverage": _finite(metrics.coverage(prediction, targets, LEVEL)),
    }


def _fit_members(task: Task, count: int) -> Answer:
    begun = time.perf_counter()
    members = [_train_member(task, member) for member in range(count)]
    seconds = time.perf_counter() - begun
    return Answer(predict_plain(members, task.inputs, task.problem.likelihood()), seconds)


def _train_member(task: Task, member: int) -> PlainNetwork:
    problem, seed = task.problem, _seed(task, member)
    net, rows = build_network(problem, seed), task.parts.train
    return train(net, *rows, problem.likelihood(), problem.training, seed=seed, steps=task.steps)


def _fit_posterior(task: Task, net: nn.Module, start_seconds: float | None = None, **options: Any) -> Answer:
    """A fit of livi with these options only.

    Raises:
        KeyboardInterrupt: the fit was interrupted, so that its posterior is not a result.
    """
    options |= {} if task.steps is None else {"steps": task.steps}
    begun = time.perf_counter()
    posterior = fit(net, tuple(task.parts.train), task.problem.likelihood(), seed=task.seed, progress=False, **options)
    seconds = time.perf_counter() - begun
    prediction = completed(posterior).predict(task.inputs, rng=torch.Generator().manual_seed(task.seed))
    assert isinstance(prediction, ClassificationPrediction | RegressionPrediction)
    return Answer(prediction, seconds, start_seconds)


def _seed(task: Task, member: int) -> int:
    """The seed of a network's weights and minibatches: a different one for every member of every seed."""
    return 1000 * task.seed + member


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
