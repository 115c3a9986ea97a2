"""Metrics of predictions: scores, calibration and coverage, and in which direction each of them is better.

Every metric is a plain function of a prediction and its targets that returns a float, an average over all targets.
Predictions are recognised by what they offer, so anything with the same properties can be scored. Targets are tensors,
arrays or lists.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import getattr_static
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from livi.draws import permutation
from livi.model.data import to_tensor
from livi.model.likelihoods import aligned
from livi.posterior.prediction.mixture import Targets

MOST_PAIRED = 256  # up to so many draws a score uses all pairs; beyond, so many partners of each draw


class Scored(Protocol):
    """A prediction with a density, such as any of livi.posterior.prediction."""

    def log_prob(self, targets: Tensor) -> Tensor: ...  # (B, ...) -> (B,)


class PointPrediction(Protocol):
    @property
    def mean(self) -> Tensor: ...  # (B, ...)


class IntervalPrediction(Protocol):
    """A prediction with a distribution function, such as livi.posterior.prediction.RegressionPrediction."""

    def interval(self, level: float = ...) -> tuple[Tensor, Tensor]: ...
    def cdf(self, targets: Tensor) -> Tensor: ...


class GaussianMixture(Protocol):
    """Equally weighted Gaussians for each target, such as livi.posterior.prediction.RegressionPrediction."""

    @property
    def means(self) -> Tensor: ...  # (S, B, ...)
    @property
    def stds(self) -> Tensor: ...  # (S, B, ...)


class Ranked(Protocol):
    """A prediction with a CRPS of its own, such as livi.posterior.prediction.LogNormalPrediction."""

    def crps(self, targets: Tensor, /) -> Tensor: ...  # the targets' shape


class OutputPrediction(Protocol):
    """A prediction of several outputs, such as livi.posterior.prediction.RegressionPrediction."""

    @property
    def outputs(self) -> Sequence[Any]: ...  # of each output (B, ...) by itself


class LabelPrediction(Protocol):
    """Probabilities of classes or labels, such as livi.posterior.prediction.ClassificationPrediction.

    Where there is an `ignore_index` too, targets of that value are left out.
    """

    @property
    def probabilities(self) -> Tensor: ...  # (B, C, ...) of classes or (B, ...) of labels
    @property
    def label(self) -> Tensor: ...  # (B, ...)


# --- any prediction -------------------------------------------------------------------------------


def nll(prediction: Scored, targets: Targets) -> float:
    """Negative log predictive density, nats an example: -1/B sum_b log 1/S sum_s p(y_b | x_b, theta_s)."""
    densities: Tensor = _of(prediction, "log_prob")(targets)
    ignored = getattr(prediction, "ignore_index", None)
    if ignored is not None and (found := _tensor(targets, densities)).ndim == 1:
        densities = densities[found != ignored]  # an example without its only label is none
    return -densities.mean().item()


def rmse(prediction: PointPrediction, targets: Targets) -> float:
    """Root mean squared error of the predictive mean, over all targets."""
    mean = _of(prediction, "mean")
    found = _tensor(targets, mean)
    errors: Tensor = aligned(mean[None], found)[0] - found
    return errors.square().mean().sqrt().item()


# --- regression -----------------------------------------------------------------------------------


def crps(prediction: GaussianMixture | Ranked, targets: Targets) -> float:
    """Continuous ranked probability score of the mixture, int (F(t) - 1[t >= y])^2 dt, in the targets' units.

    In closed form (Grimit et al., 2006), with A(m, v) = E|X| for X ~ N(m, v):
    1/S sum_s A(y - mean_s, var_s) - 1/(2 S^2) sum_st A(mean_s - mean_t, var_s + var_t).

    Cost: S^2 / 2 normal distribution functions for each target, S of them in memory at a time. Of more than 256 draws,
    as Markov chains leave them, each is held against itself and 256 others, which is off by about a part in a thousand.
    Noise that is a mixture itself (`NoiseShape`) takes as many times more as it has pairs of parts. A prediction with a
    `crps` of its own is asked for it.
    """
    own = getattr(prediction, "crps", None)
    if own is not None:
        mean: Tensor = own(targets).mean()
        return mean.item()
    found = _tensor(targets, _of(prediction, "means"))
    means, stds = (aligned(_of(prediction, name), found) for name in ("means", "stds"))
    order, spread = _shuffled(len(means)).to(means.device), torch.zeros_like(means[0])
    means, stds = means[order], stds[order]
    parts = getattr(getattr(prediction, "noise_shape", None), "parts", ((1.0, 1.0),))
    for shift, weight in _shifts(len(means)):
        others = stds.roll(shift, 0)
        for (share, width), (other, by) in itertools.product(parts, parts):
            apart = _absolute(means - means.roll(shift, 0), torch.hypot(width * stds, by * others))
            spread += weight * share * other * apart.mean(0)
    score = -0.5 * spread
    for share, width in parts:
        score = score + share * _absolute(found - means, width * stds).mean(0)
    return score.mean().item()


def coverage(prediction: IntervalPrediction, targets: Targets, level: float = 0.9) -> float:
    """Share of targets inside the central interval that should hold `level` of them.

    Of counts, whose intervals must hold more, the share whose randomised `pit` is within the level.
    """
    outside = 0.5 * (1.0 - _level(level))
    below = pit(prediction, targets)
    return ((below >= outside) & (below <= 1.0 - outside)).to(below.dtype).mean().item()


def coverage_error(prediction: IntervalPrediction, targets: Targets, level: float = 0.9) -> float:
    """|coverage - level|. Its standard error is about sqrt(level (1 - level) / B), so never expect zero."""
    return abs(coverage(prediction, targets, level) - level)


def interval_width(prediction: IntervalPrediction, level: float = 0.9) -> float:
    """Average width of the central interval: sharpness, which is worth something only at the right coverage."""
    lower, upper = _of(prediction, "interval")(_level(level))
    width: Tensor = upper - lower
    return width.mean().item()


def pit(prediction: IntervalPrediction, targets: Targets) -> Tensor:  # the targets' shape
    """Probability integral transforms F(y): uniform on [0, 1] over new data if the prediction is calibrated.

    Those of counts are randomised, F(y - 1) + U (F(y) - F(y - 1)): F(y) itself takes few values and is not uniform.
    """
    own = getattr(prediction, "pit", None)
    values: Tensor = _of(prediction, "cdf")(targets) if own is None else own(targets)
    return values


# --- classification -------------------------------------------------------------------------------


def accuracy(prediction: LabelPrediction, targets: Targets) -> float:
    """Share of targets whose most probable label is right; of several labels an example, each counts by itself."""
    labels, truths, _ = _labelled(prediction, targets)
    return (labels == truths).double().mean().item()


def brier(prediction: LabelPrediction, targets: Targets) -> float:
    """Mean squared error of the probabilities: sum_c (p_c - 1[y = c])^2 for classes, (p - y)^2 for a label.

    So a label gets half of what it would get as two classes, as is usual.
    """
    _, truths, probabilities = _labelled(prediction, targets)
    truth = torch.nn.functional.one_hot(truths, probabilities.shape[1])
    squares = (probabilities - truth).square().sum(1).mean().item()
    return squares if _has_classes(prediction) else 0.5 * squares


def ece(prediction: LabelPrediction, targets: Targets, num_bins: int = 15) -> float:
    """Expected calibration error of the most probable label: sum_b n_b/n |accuracy_b - confidence_b|.

    Bins ((b-1)/num_bins, b/num_bins] of equal width hold every prediction, those of confidence exactly 1 included.
    """
    labels, truths, probabilities = _labelled(prediction, targets)
    confidence = probabilities.gather(1, labels[:, None])[:, 0]
    bins = (confidence * num_bins).ceil().long().sub(1).clamp(0, num_bins - 1)
    gaps = (labels == truths).to(confidence.dtype) - confidence
    sums = torch.zeros(num_bins, dtype=gaps.dtype, device=gaps.device).index_add(0, bins, gaps)
    return (sums.abs().sum() / gaps.numel()).item()


def auroc(
    positive: Targets,  # (n,)
    negative: Targets,  # (k,)
) -> float:
    """P(a positive's score > a negative's), ties counted half: the area under the ROC curve.

    For out-of-distribution detection `positive` are the scores (entropy, mutual information) of those inputs and
    `negative` those of test inputs; 0.5 is a coin, 1 a perfect separation.

    Cost: a sort.

    >>> auroc(torch.tensor([0.9, 0.8]), torch.tensor([0.1, 0.8]))
    0.875
    """
    above, ordered = _vector("positive", positive), _vector("negative", negative).sort().values
    below = torch.searchsorted(ordered, above.contiguous(), right=False)
    not_above = torch.searchsorted(ordered, above.contiguous(), right=True)
    # Whole numbers, exact however many scores there are.
    return int((below + not_above).sum()) / (2 * above.numel() * ordered.numel())


def fpr95(
    positive: Targets,  # (n,)
    negative: Targets,  # (k,)
) -> float:
    """Share of positives that a threshold lets pass which 95 % of the negatives pass: with scores of uncertainty, the
    out-of-distribution inputs that are taken for others where 95 % of those are. 0 is perfect, 0.95 a coin.

    >>> fpr95(torch.tensor([0.9, 0.5]), torch.arange(100) / 200)
    0.0
    """
    passed = _vector("negative", negative).sort().values
    threshold = passed[math.ceil(0.95 * len(passed)) - 1]
    return (_vector("positive", positive) <= threshold).double().mean().item()


# --- the registry ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """A metric under its name, with the direction in which it improves and what a prediction must offer for it.

    What must be offered is all of `needs`, or a method of the metric's own name. Where it is `of_labels`, targets must
    be some, and not probabilities between 0 and 1, as a Bernoulli likelihood takes them too.
    """

    name: str
    direction: Literal["higher", "lower"]
    function: Callable[[Any, Any], float]
    needs: tuple[str, ...]
    of_labels: bool = False

    def __call__(self, prediction: Any, targets: Targets) -> float:
        return self.function(prediction, targets)

    def applies_to(self, prediction: Any, targets: Targets | None = None) -> bool:
        """Whether it can be had of this prediction, and of these targets, if any are given."""
        # Statically, since getting a property may cost as much as the metric itself.
        offers = [getattr_static(prediction, name, None) is not None for name in (self.name, *self.needs)]
        suits = offers[0] or all(offers[1:])
        return suits and not (self.of_labels and targets is not None and _are_soft(prediction, _tensor(targets)))

    def better(self, one: float, other: float) -> bool:
        """Whether `one` is strictly better than `other`."""
        return one > other if self.direction == "higher" else one < other


# Coverage itself has no direction, its distance from the level has. PIT values are not one number, and AUROC compares
# two sets of scores, so they are functions only.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("nll", "lower", nll, ("log_prob",)),
        Metric("rmse", "lower", rmse, ("mean", "means")),  # the mean of raw outputs may be none of the targets
        Metric("crps", "lower", crps, ("means", "stds")),
        Metric("coverage_error", "lower", coverage_error, ("cdf",)),
        Metric("interval_width", "lower", lambda prediction, _: interval_width(prediction), ("interval",)),
        Metric("accuracy", "higher", accuracy, ("probabilities", "label"), of_labels=True),
        Metric("brier", "lower", brier, ("probabilities", "label"), of_labels=True),
        Metric("ece", "lower", ece, ("probabilities", "label"), of_labels=True),
    )
}


def score(prediction: Any, targets: Targets) -> dict[str, float]:
    """Every registered metric that applies to this prediction and these targets, by name.

    Raises:
        TypeError: no metric applies to such a prediction.
    """
    if not any(metric.applies_to(prediction) for metric in METRICS.values()):
        raise TypeError(
            f"prediction: expected one as posterior.predict returns it, got {type(prediction).__name__}; pass "
            "score(prediction, targets), in this order."
        )
    return {m.name: m(prediction, targets) for m in METRICS.values() if m.applies_to(prediction, targets)}


def score_outputs(prediction: OutputPrediction, targets: Targets) -> dict[str, list[float]]:  # targets (B, k)
    """Every registered metric by name, with a number for each of k outputs, in their order."""
    own = getattr_static(prediction, "each_output", None)  # where `outputs` means the network's outputs
    outputs: Sequence[Any] = _of(prediction, "outputs" if own is None else "each_output")
    found = to_tensor("targets", targets)
    columns = found[:, None] if found.ndim == 1 else found
    if columns.shape[-1] != len(outputs):
        raise ValueError(
            f"targets: expected a last axis of {len(outputs)}, one for each output, got {tuple(found.shape)}."
        )
    scores = [score(output, columns[..., index]) for index, output in enumerate(outputs)]
    return {name: [each[name] for each in scores] for name in scores[0]}


def __dir__() -> list[str]:
    """The public names defined here, without imported ones."""
    own = (name for name, value in globals().items() if getattr(value, "__module__", None) == __name__)
    return ["METRICS", *(name for name in own if not name.startswith("_"))]


def _of(prediction: object, name: str) -> Any:
    try:
        return getattr(prediction, name)
    except AttributeError as error:
        suitable = [metric.name for metric in METRICS.values() if metric.applies_to(prediction)]
        raise TypeError(
            f"prediction: expected one with {name!r}, got {type(prediction).__name__}; "
            f"the metrics for it are: {', '.join(suitable) or 'none'}."
        ) from error


def _tensor(targets: Targets, beside: Tensor | None = None) -> Tensor:
    """Targets as a tensor; arrays and lists go to the device of the tensor that they are compared with."""
    found = to_tensor("targets", targets)
    return found if beside is None or isinstance(targets, Tensor) else found.to(beside.device)


def _vector(name: str, scores: Targets) -> Tensor:  # (n,)
    found = to_tensor(name, scores)
    if found.ndim != 1 or not found.numel() or bool(found.isnan().any()):
        raise ValueError(f"{name}: expected a vector of at least one score without NaN, got {tuple(found.shape)}.")
    return found


def _level(level: float) -> float:
    if torch.as_tensor(level).ndim:
        raise TypeError(f"level: expected a number, got {type(level).__name__}; interval_width takes no targets.")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level: expected a number strictly between 0 and 1, got {level}.")
    return level


def _shuffled(count: int) -> Tensor:  # (count,)
    """A random order of draws, since neighbours in a chain depend on each other."""
    return permutation(count, 0)


def _shifts(count: int) -> list[tuple[int, float]]:
    """Shifts of draws against themselves that pair all of them, or some of many, and the weight of each shift."""
    if count <= MOST_PAIRED:  # one shift counts for its opposite too, which makes the same pairs
        return [(shift, (1.0 if 2 * shift in (0, count) else 2.0) / count) for shift in range(count // 2 + 1)]
    some = range(1, MOST_PAIRED + 1)
    return [(0, 1.0 / count), *((shift, (1.0 - 1.0 / count) / MOST_PAIRED) for shift in some)]


def _absolute(mean: Tensor, std: Tensor) -> Tensor:
    """E|X| for X ~ N(mean, std^2)."""
    unit = mean / std
    density = (-0.5 * unit.square()).exp() * math.sqrt(2.0 / math.pi)
    return std * density + mean * torch.erf(unit * math.sqrt(0.5))


def _has_classes(prediction: LabelPrediction) -> bool:
    return prediction.probabilities.ndim > prediction.label.ndim


def _are_soft(prediction: LabelPrediction, targets: Tensor) -> bool:
    """Whether the targets are probabilities of independent labels, and not the labels themselves."""
    between = targets.is_floating_point() and bool(((targets > 0.0) & (targets < 1.0)).any())
    return between and not _has_classes(prediction)


def _labelled(prediction: LabelPrediction, given: Targets) -> tuple[Tensor, Tensor, Tensor]:
    """Predicted labels (n,), true ones (n,) and probabilities (n, C) of all targets that count, checked."""
    probabilities, labels = _of(prediction, "probabilities"), _of(prediction, "label")
    targets = _tensor(given, labels)
    targets = targets.squeeze(-1) if targets.shape == (*labels.shape, 1) else targets
    if not _has_classes(prediction):
        probabilities = torch.stack([1.0 - probabilities, probabilities], 1)
        labels, targets = aligned(labels[None], targets)[0].reshape(labels.shape), targets.reshape(labels.shape)
    if targets.shape != labels.shape:
        raise ValueError(f"targets: expected shape {tuple(labels.shape)}, got {tuple(targets.shape)}.")
    classes = probabilities.shape[1]
    flat, wanted = targets.reshape(-1), targets.reshape(-1).long()
    ignored: int | None = getattr(prediction, "ignore_index", None)
    counts = torch.ones_like(wanted, dtype=torch.bool) if ignored is None else wanted != ignored
    wrong = counts & ((wanted != flat) | (wanted < 0) | (wanted >= classes))
    if bool(wrong.any()):
        only = "; of shares between them only `nll` is known" if _are_soft(prediction, targets) else ""
        raise ValueError(f"targets: expected labels 0 to {classes - 1}, got {flat[wrong][0].item()}{only}.")
    if not bool(counts.any()):
        raise ValueError("targets: expected at least one label that counts, got none.")
    return labels.reshape(-1)[counts], wanted[counts], probabilities.movedim(1, -1).reshape(-1, classes)[counts]
