"""Scores of predictions, and the words about calibration."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from livi.posterior.prediction import RegressionPrediction
from livi.tables.calibration import binomial_band
from livi.tables.content import ClassificationRows, RegressionRows
from livi.tables.estimators.target_models import Model
from livi.tables.evaluation import Evaluation, score_classification, score_regression, uniformity
from livi.tables.predicting import regression_rows as predicted_rows


def regression_rows(spread, rows=400, shift=0.0):
    """Standard normal targets predicted by N(shift, spread^2)."""
    target = np.random.default_rng(0).normal(size=rows)
    levels = np.array([0.5, 0.8, 0.9, 0.95])
    reach = stats.norm.ppf(0.5 + levels / 2)[:, None] * spread * np.ones(rows)
    flat = np.full(rows, spread)
    pit = stats.norm.cdf(target, shift, spread)
    return RegressionRows(target, np.full(rows, shift), 0 * flat, flat, flat, pit, levels, shift - reach, shift + reach)


@pytest.mark.parametrize(
    ("spread", "judgement"), [(1.0, "calibrated"), (0.6, "overconfident"), (1.6, "underconfident")]
)
def test_coverage_is_judged_by_its_standard_error(spread, judgement):
    rows = regression_rows(spread)
    found, coverage, verdict = score_regression(rows, np.zeros(400), 0.5, "price")
    assert {line.judgement for line in coverage} == {judgement}
    assert f": {judgement}." in verdict[0]
    assert ("do not fit as a whole" in " ".join(verdict)) == (judgement != "calibrated")
    assert {metric.key for metric in found} == {"rmse", "mae", "r2", "log_score", "crps", "pit_distance"}


def test_metrics_are_what_their_names_say():
    rows = regression_rows(1.0, shift=0.3)
    found = {m.key: m.value for m in score_regression(rows, np.full(400, -2.0), 0.5, "price")[0]}
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((rows.target - 0.3) ** 2)))
    assert found["mae"] == pytest.approx(np.abs(rows.target - 0.3).mean())
    assert found["r2"] == pytest.approx(
        1 - np.sum((rows.target - 0.3) ** 2) / np.sum((rows.target - rows.target.mean()) ** 2)
    )
    assert (found["log_score"], found["crps"]) == (-2.0, 0.5)


def words(rows, kind="posterior"):
    return " ".join(score_regression(rows, np.zeros(len(rows)), None, "y", kind)[2])


def test_bias_is_told_with_its_side():
    assert "too high more often than not" in words(regression_rows(1.0, shift=0.5))
    assert "too low more often than not: 67% of the targets lie above" in words(regression_rows(1.0, shift=-0.5))
    assert "more often than not" not in words(regression_rows(1.0))


def with_coverage(*shares, rows=200):
    """Intervals that hold these shares of the targets, beside PIT values that are as uniform as can be."""
    levels = np.array([0.5, 0.8, 0.9, 0.95])
    target, flat = np.linspace(0.0, 1.0, rows), np.ones(rows)
    pit = (np.arange(rows) + 0.5) / rows
    upper = np.stack([np.where(np.arange(rows) < share * rows, 2.0, -1.0) for share in shares])
    return RegressionRows(target, flat, flat, flat, flat, pit, levels, np.full((4, rows), -2.0), upper)


def test_the_whole_is_not_said_to_fit_where_the_intervals_do_not():
    """Kolmogorov-Smirnov's distance is blind to tails: all levels may miss while PIT values look uniform."""
    assert "do not fit, by their intervals" in words(with_coverage(0.4, 0.7, 0.82, 0.88))
    one = words(with_coverage(0.5, 0.8, 0.9, 0.88))
    assert "But overconfident: the 95% intervals held 88.0%." in one
    assert "fit as a whole" in one
    assert "one calibrated model in eight" in one
    assert "one calibrated model in eight" not in words(with_coverage(0.5, 0.8, 0.9, 0.95))


def test_the_distributions_behind_conformal_intervals_are_judged_by_themselves():
    assert "Before they are made conformal, the distributions fit as a whole" in words(
        with_coverage(0.4, 0.7, 0.82, 0.88), "conformal"
    )
    assert "Before they are made conformal, the distributions do not fit" in words(regression_rows(0.6), "conformal")


def test_a_calibrated_model_misses_a_level_about_one_time_in_eight():
    random = np.random.default_rng(0)
    levels = (0.5, 0.8, 0.9, 0.95)
    depths = np.abs(2.0 * random.random((2000, 200)) - 1.0)  # of the target in its predicted distribution
    shares = np.stack([(depths <= level).mean(1) for level in levels])
    bands = np.array([binomial_band(200, level) for level in levels])
    missed = ((shares < bands[:, :1]) | (shares > bands[:, 1:])).sum(0)
    assert (missed > 0).mean() == pytest.approx(1 / 8, abs=3 * np.sqrt(0.125 * 0.875 / 2000))
    assert (missed > 1).mean() == pytest.approx(1 / 30, abs=3 * np.sqrt(0.033 * 0.967 / 2000))


def test_the_headline_does_not_hide_the_other_levels():
    rows = with_coverage(0.5, 0.8, 0.9, 0.88)
    evaluation = Evaluation("200 rows", rows, *score_regression(rows, np.zeros(200), None, "y"))
    assert "But overconfident: the 95% intervals" in evaluation.headline


def test_few_rows_are_not_judged():
    _, coverage, verdict = score_regression(regression_rows(0.1, rows=10), np.zeros(10), None, "y")
    assert {line.judgement for line in coverage} == {"too few rows"}
    assert len(verdict) == 1


def test_the_band_holds_a_calibrated_model_95_times_in_100():
    low, high = binomial_band(100, 0.9)
    inside = stats.binom.cdf(round(100 * high), 100, 0.9) - stats.binom.cdf(round(100 * low) - 1, 100, 0.9)
    assert 0.95 <= inside < 0.98


def test_uniformity_agrees_with_scipy():
    pit = np.random.default_rng(0).uniform(size=50) ** 1.3
    expected = stats.kstest(pit, "uniform", method="exact")
    assert uniformity(pit) == pytest.approx((expected.statistic, expected.pvalue))


def classification_rows(confidence, accuracy, rows=400):
    target = (np.arange(rows) >= accuracy * rows).astype(np.int64)  # the model always says class 0
    probabilities = np.tile([confidence, 1 - confidence], (rows, 1))
    return ClassificationRows(target, ("no", "yes"), probabilities, np.zeros(rows), np.zeros(rows))


@pytest.mark.parametrize(
    ("accuracy", "judgement"), [(0.8, "calibrated"), (0.7, "overconfident"), (0.9, "underconfident")]
)
def test_confidence_is_judged_by_its_standard_error(accuracy, judgement):
    rows = classification_rows(0.8, accuracy)
    sets = {level: np.tile([True, level > 0.8], (400, 1)) for level in (0.5, 0.8, 0.9, 0.95)}
    found, coverage, verdict = score_classification(rows, np.zeros(400), sets, "posterior")
    assert verdict[0].endswith(f"{judgement}.")
    assert [line.share for line in coverage] == [pytest.approx(accuracy)] * 2 + [1.0, 1.0]
    assert coverage[0].judgement == judgement
    assert (coverage[2].judgement, coverage[2].width) == ("calibrated", 2.0)
    assert {m.key: m.value for m in found}["accuracy"] == pytest.approx(accuracy)


def test_an_evaluation_prints_its_numbers_and_words():
    rows = regression_rows(1.0)
    printed = str(Evaluation("400 rows of a.csv", rows, *score_regression(rows, np.zeros(400), 0.5, "price")))
    assert printed.splitlines()[0] == "400 rows of a.csv"
    assert "RMSE" in printed
    assert "in units of price" in printed
    assert "expected" in printed


class Standard:
    """What is asked of an estimator, from one that predicts N(0, 1) for every row."""

    interval = "posterior"
    model_ = Model("plain", "constant")

    def read_predictive(self, features, what):
        found = []
        for start in range(0, len(features), 2048):
            count = len(features[start : start + 2048])
            part = RegressionPrediction(torch.zeros(1, count, dtype=torch.float64), torch.tensor(1.0))
            found.append([tensor.numpy() for tensor in what(part, slice(start, start + count))])
        return [np.concatenate(columns) for columns in zip(*found, strict=True)]


def test_the_crps_of_many_rows_does_not_depend_on_their_order():
    target = np.sort(np.abs(np.random.default_rng(0).normal(0.0, 3.0, 12_000)))
    known = torch.from_numpy(target)
    scores = torch.distributions.Normal(0.0, 1.0).cdf(known)
    density = torch.exp(-0.5 * known**2) / math.sqrt(2.0 * math.pi)
    scores = (known * (2.0 * scores - 1.0) + 2.0 * density - 1.0 / math.sqrt(math.pi)).numpy()  # of N(0, 1), exactly
    rows, _, crps = predicted_rows(Standard(), target[:, None], target)
    assert crps == pytest.approx(scores.mean(), abs=4 * scores.std() / math.sqrt(1024))
    metrics = {m.key: m for m in score_regression(rows, np.zeros(12_000), crps, "y")[0]}
    assert "1,024 rows drawn at random" in metrics["crps"].note


# --- against a guess ------------------------------------------------------------------------------


def judged(rows, shares=None):
    return Evaluation("5 rows", rows, (), (), ("calibrated.",)).against_guesses(shares)


def test_predictions_worse_than_the_mean_are_called_poor():
    rows = regression_rows(1.0, shift=0.3)
    poor = judged(rows)
    assert poor.poor
    assert poor.verdict[0].startswith("Worse than the mean: RMSE 1.")
    assert poor.verdict[1:] == ("calibrated.",)
    assert not judged(replace(rows, mean=0.5 * rows.target)).poor
    assert judged(regression_rows(1.0, shift=9.0, rows=5)).poor
    assert not judged(regression_rows(1.0, shift=9.0, rows=4)).poor  # too few to tell
    assert not judged(replace(rows, target=np.zeros(400))).poor  # no spread to explain


def test_predictions_worse_than_the_most_frequent_class_are_called_poor():
    rows = classification_rows(0.8, accuracy=0.3)  # says "no" in all rows, of which 7 in 10 are "yes"
    poor = judged(rows, np.array([0.3, 0.7]))
    assert poor.poor
    assert poor.verdict[0] == (
        "Worse than the most frequent class: right in 30.0% of the rows, against 70.0% by predicting 'yes' for "
        "all rows."
    )
    assert not judged(rows, np.array([0.7, 0.3])).poor
    sure = classification_rows(0.51, accuracy=0.3)  # wrong side, but better probabilities than those shares
    assert not judged(sure, np.array([0.01, 0.99])).poor
