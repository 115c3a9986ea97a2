"""Metrics against numerical integration, brute force and scipy."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from livi import Bernoulli, Categorical, FunctionLikelihood
from livi.posterior.metrics import (
    METRICS,
    accuracy,
    auroc,
    brier,
    coverage,
    coverage_error,
    crps,
    ece,
    fpr95,
    interval_width,
    nll,
    pit,
    rmse,
    score,
    score_outputs,
)
from livi.posterior.prediction import (
    ClassificationPrediction,
    LogNormalPrediction,
    RegressionPrediction,
    SampledOutputs,
)


@pytest.fixture
def regression(rng):
    means = torch.randn(6, 40, 1, generator=rng)
    return RegressionPrediction(means, 0.2 + torch.rand(6, 40, 1, generator=rng))


@pytest.fixture
def targets(rng):
    return 1.5 * torch.randn(40, generator=rng)


@pytest.fixture
def classes(rng):
    return ClassificationPrediction(2.0 * torch.randn(6, 400, 4, generator=rng), Categorical())


@pytest.fixture
def labels(rng):
    return torch.randint(4, (400,), generator=rng)


# --- regression -----------------------------------------------------------------------------------


def test_rmse_and_nll_are_their_definitions(regression, targets):
    assert rmse(regression, targets) == pytest.approx(((regression.mean - targets) ** 2).mean().sqrt().item())
    density = stats.norm.pdf(targets.numpy(), regression.means.numpy(), regression.stds.numpy()).mean(0)
    assert nll(regression, targets) == pytest.approx(-np.log(density).mean())


def test_targets_may_carry_a_last_axis_of_one(regression, targets):
    assert score(regression, targets[:, None]) == pytest.approx(score(regression, targets))


def test_crps_is_the_integral_of_the_squared_difference_of_distribution_functions(regression, targets):
    total = 0.0
    for b in range(10):
        means, stds, y = regression.means[:, b].numpy(), regression.stds[:, b].numpy(), targets[b].item()

        def squared(t, means=means, stds=stds, y=y):
            return (stats.norm.cdf(t, means, stds).mean() - (t >= y)) ** 2

        total += integrate.quad(squared, -15, y, epsabs=1e-10)[0] + integrate.quad(squared, y, 15, epsabs=1e-10)[0]
    part = RegressionPrediction(regression.means[:, :10], regression.stds[:, :10])
    assert crps(part, targets[:10]) == pytest.approx(total / 10, rel=1e-7)


def test_crps_of_one_gaussian_is_the_known_formula():
    z = 0.7
    expected = 2.0 * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))
    prediction = RegressionPrediction(torch.tensor([[3.0]]), torch.tensor(2.0))
    assert crps(prediction, torch.tensor([3.0 + 2.0 * z])) == pytest.approx(expected)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("logarithms", [False, True])
def test_crps_counts_every_pair_of_draws_once_however_many_they_are(count, logarithms):
    rng = torch.Generator().manual_seed(count)
    means = torch.randn(count, 1, generator=rng, dtype=torch.float64)
    stds = 0.1 + torch.rand(count, 1, generator=rng, dtype=torch.float64)
    places = torch.linspace(-8.0, 8.0, 40_001, dtype=torch.float64)
    wide = RegressionPrediction(means.expand(-1, len(places)), stds.expand(-1, len(places)))
    below, prediction, target = wide.cdf(places), RegressionPrediction(means, stds), places[25_000]
    if logarithms:
        places, target, prediction = places.exp(), target.exp(), LogNormalPrediction(prediction)
    over = places.clamp_max(target), places.clamp_min(target)
    exact = torch.trapezoid(below.square(), over[0]) + torch.trapezoid((1.0 - below).square(), over[1])
    assert crps(prediction, target[None]) == pytest.approx(float(exact), rel=1e-5)


def test_crps_of_thousands_of_draws_is_that_of_all_their_pairs_within_a_thousandth():
    rng = torch.Generator().manual_seed(0)
    chains = 3.0 * torch.randn(8, 1, 5, generator=rng, dtype=torch.float64)  # far apart, one after the other
    means = (chains + torch.randn(8, 250, 5, generator=rng, dtype=torch.float64).cumsum(1) / 16.0).flatten(0, 1)
    stds = 0.05 + torch.rand(2000, 5, generator=rng, dtype=torch.float64)
    targets = torch.randn(5, generator=rng, dtype=torch.float64)
    apart, width = (means[:, None] - means).numpy(), torch.hypot(stds[:, None], stds).numpy()
    z, off = apart / width, ((targets - means) / stds).numpy()
    pairs = (width * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z))).mean((0, 1))
    single = (stds.numpy() * (off * (2 * stats.norm.cdf(off) - 1) + 2 * stats.norm.pdf(off))).mean(0)
    expected = (single - 0.5 * pairs).mean()
    assert crps(RegressionPrediction(means, stds), targets) == pytest.approx(expected, rel=1e-3)


def test_coverage_counts_targets_inside_the_interval(regression, targets):
    for level in (0.3, 0.5, 0.9):
        lower, upper = regression.interval(level)
        inside = ((targets >= lower) & (targets <= upper)).double().mean().item()
        assert coverage(regression, targets, level) == pytest.approx(inside)
        assert coverage_error(regression, targets, level) == pytest.approx(abs(inside - level))
        assert interval_width(regression, level) == pytest.approx((upper - lower).mean().item())


def test_pit_values_of_a_calibrated_prediction_are_uniform(rng):
    prediction = RegressionPrediction(torch.randn(5, 4000, generator=rng), torch.tensor(0.5))
    component = torch.randint(5, (4000,), generator=rng)
    y = prediction.means[component, torch.arange(4000)] + 0.5 * torch.randn(4000, generator=rng)
    values = pit(prediction, y)
    assert stats.kstest(values.numpy(), "uniform").pvalue > 1e-3
    assert abs(coverage(prediction, y, 0.8) - 0.8) < 5 * math.sqrt(0.8 * 0.2 / 4000)


# --- classification -------------------------------------------------------------------------------


def test_accuracy_and_brier_are_their_definitions(classes, labels):
    p, y = classes.probabilities.numpy(), labels.numpy()
    assert accuracy(classes, labels) == pytest.approx((p.argmax(1) == y).mean())
    assert brier(classes, labels) == pytest.approx(((p - np.eye(4)[y]) ** 2).sum(1).mean())
    assert nll(classes, labels) == pytest.approx(-np.log(p[np.arange(400), y]).mean())
    assert score(classes, labels[:, None]) == score(classes, labels)


def test_ece_matches_a_loop_over_bins(classes, labels):
    p, y = classes.probabilities.numpy(), labels.numpy()
    confidence, right = p.max(1), p.argmax(1) == y
    edges = np.linspace(0, 1, 16)
    expected = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert ece(classes, labels) == pytest.approx(expected)


def test_ece_counts_confidence_one():
    certain = ClassificationPrediction.from_probabilities(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), exclusive=True)
    assert ece(certain, torch.tensor([0, 1])) == pytest.approx(0.5)
    assert ece(certain, torch.tensor([1, 1])) == pytest.approx(1.0)
    both = ClassificationPrediction.from_probabilities(torch.tensor([[[1.0, 0.0], [0.9, 0.1]]]), exclusive=True)
    assert ece(both, torch.tensor([1, 0])) == pytest.approx((1.0 + 0.1) / 2)  # in bins of their own


def test_a_label_scores_as_two_classes_with_half_the_brier(rng):
    logits = torch.randn(6, 100, generator=rng)
    label = ClassificationPrediction(logits[..., None], Bernoulli())
    classes = ClassificationPrediction(torch.stack([torch.zeros_like(logits), logits], 2), Categorical())
    y = torch.randint(2, (100,), generator=rng)
    for shape in ((100,), (100, 1)):
        floats = y.double().reshape(shape)
        for metric in (accuracy, ece, nll):
            assert metric(label, floats) == pytest.approx(metric(classes, y))
        assert brier(label, floats) == pytest.approx(0.5 * brier(classes, y))
    assert brier(label, y) == pytest.approx(((label.probabilities - y) ** 2).mean().item())


def test_dense_targets_leave_out_ignored_ones(rng):
    logits = torch.randn(6, 10, 4, 3, generator=rng)
    prediction = ClassificationPrediction(logits, Categorical(ignore_index=255))
    y = torch.randint(4, (10, 3), generator=rng)
    flat = ClassificationPrediction(logits.movedim(2, 3).flatten(1, 2)[:, ::3], Categorical())
    partial = y.clone()
    partial[:, 1:] = 255
    for metric in (accuracy, brier, ece):
        assert metric(prediction, partial) == pytest.approx(metric(flat, y[:, 0]))


@pytest.mark.parametrize("ties", [False, True])
def test_auroc_matches_brute_force_and_ranks(rng, ties):
    positive = torch.randn(30, generator=rng) + 0.5
    negative = torch.randn(50, generator=rng)
    if ties:
        positive, negative = positive.round(), negative.round()
    pairs = positive[:, None] - negative
    brute = ((pairs > 0).double() + 0.5 * (pairs == 0).double()).mean().item()
    statistic = stats.mannwhitneyu(positive.numpy(), negative.numpy()).statistic
    assert auroc(positive, negative) == pytest.approx(brute)
    assert auroc(positive, negative) == pytest.approx(statistic / (30 * 50))
    assert auroc(negative, positive) == pytest.approx(1.0 - brute)


# --- the registry ---------------------------------------------------------------------------------


def test_score_gives_what_applies(regression, targets, classes, labels):
    assert set(score(regression, targets)) == {"nll", "rmse", "crps", "coverage_error", "interval_width"}
    assert set(score(classes, labels)) == {"nll", "accuracy", "brier", "ece"}
    raw = SampledOutputs(torch.zeros(2, 5, 3), FunctionLikelihood(lambda out, y: -((out.sum(2) - y) ** 2)))
    assert set(score(raw, torch.zeros(5))) == {"nll"}
    for values in (score(regression, targets), score(classes, labels)):
        assert all(isinstance(value, float) and math.isfinite(value) for value in values.values())


def test_targets_may_be_arrays_or_lists(regression, targets, classes, labels):
    for convert in (Tensor.numpy, Tensor.tolist):
        assert score(regression, convert(targets)) == score(regression, targets)
        assert score(classes, convert(labels)) == score(classes, labels)
        assert score_outputs(regression, convert(targets)) == score_outputs(regression, targets)
        assert [metric(targets, targets + 1.0) for metric in (auroc, fpr95)] == [
            metric(convert(targets), convert(targets + 1.0)) for metric in (auroc, fpr95)
        ]


def test_nothing_is_scored_but_predictions(regression, targets):
    for swapped in (targets, targets.numpy(), None):
        with pytest.raises(TypeError, match=r"expected one as posterior\.predict returns it, got (Tensor|nda|None)"):
            score(swapped, regression)


def test_labels_between_yes_and_no_have_a_score_where_it_is_known(rng):
    prediction = ClassificationPrediction(torch.randn(6, 50, generator=rng), Bernoulli())
    soft = torch.rand(50, generator=rng)
    assert score(prediction, soft) == {"nll": nll(prediction, soft)}
    assert score(prediction, soft.round()).keys() == {"nll", "accuracy", "brier", "ece"}
    with pytest.raises(ValueError, match=r"expected labels 0 to 1, got 0\..*; of shares between them only `nll`"):
        accuracy(prediction, soft)


def test_every_metric_prefers_the_truth_in_its_declared_direction(rng):
    x = torch.randn(300, generator=rng)
    good = RegressionPrediction(x[None], torch.tensor(0.3))
    bad = RegressionPrediction(x[None] + 3.0, torch.tensor(1.0))
    y = x + 0.3 * torch.randn(300, generator=rng)
    labels = torch.randint(3, (300,), generator=rng)
    logits = 4.0 * torch.nn.functional.one_hot(labels, 3).double()[None]
    right, wrong = (ClassificationPrediction(sign * logits, Categorical()) for sign in (1.0, -1.0))
    for metric in METRICS.values():
        one, other, truth = (good, bad, y) if metric.applies_to(good) else (right, wrong, labels)
        assert metric.better(metric(one, truth), metric(other, truth)), metric.name
        assert metric.direction in ("higher", "lower")


def test_unusable_arguments_are_refused_with_a_remedy(regression, targets, classes, labels):
    with pytest.raises(TypeError, match="got ClassificationPrediction; the metrics for it are: nll, accuracy"):
        rmse(classes, labels)
    with pytest.raises(TypeError, match="expected one with 'probabilities', got RegressionPrediction"):
        accuracy(regression, targets)
    with pytest.raises(TypeError, match=r"targets: expected tensors, arrays or lists of numbers, got str"):
        rmse(regression, "price")
    with pytest.raises(ValueError, match=r"expected \(num_samples, \*targets.shape\)"):
        rmse(regression, torch.zeros(40, 40))
    with pytest.raises(ValueError, match="level: expected a number strictly between 0 and 1, got 90"):
        coverage(regression, targets, 90)
    with pytest.raises(TypeError, match=r"level: expected a number, got Tensor; interval_width takes no targets\."):
        interval_width(regression, targets)
    with pytest.raises(ValueError, match="expected labels 0 to 3, got 4"):
        accuracy(classes, labels + 1)
    with pytest.raises(ValueError, match=r"targets: expected shape \(400,\), got \(3,\)"):
        brier(classes, labels[:3])
    with pytest.raises(ValueError, match="at least one label that counts"):
        ece(classes, torch.full((400,), -100))
    with pytest.raises(ValueError, match="negative: expected a vector of at least one score without NaN"):
        auroc(torch.ones(3), torch.tensor([torch.nan]))


def test_outputs_are_scored_one_by_one(regression):
    several = RegressionPrediction(torch.randn(5, 20, 3), torch.tensor([0.1, 0.3, 1.0]))
    targets = torch.randn(20, 3)
    scores = score_outputs(several, targets)
    for index, output in enumerate(several.outputs):
        assert output.mean.shape == (20,)
        alone = RegressionPrediction(several.means[..., index], several.stds[..., index])
        assert {name: values[index] for name, values in scores.items()} == score(alone, targets[:, index])
    assert sum(scores["rmse"][k] ** 2 for k in range(3)) / 3 == pytest.approx(rmse(several, targets) ** 2)
    assert regression.outputs == [regression]
    with pytest.raises(ValueError, match=r"targets: expected a last axis of 3, one for each output, got \(20, 2\)"):
        score_outputs(several, targets[:, :2])


def test_one_output_is_scored_as_a_whole(regression, targets):
    assert score_outputs(regression, targets) == {name: [value] for name, value in score(regression, targets).items()}


def test_nll_leaves_examples_without_a_label_out():
    even = ClassificationPrediction(torch.zeros(3, 4, 2), Categorical(ignore_index=-1))
    targets = torch.tensor([0, 1, -1, -1])
    assert nll(even, targets) == pytest.approx(math.log(2.0))
    assert accuracy(even, targets) == 0.5
