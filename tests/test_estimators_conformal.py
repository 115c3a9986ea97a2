"""Conformal intervals and sets, against MAPIE."""

import numpy as np
import pytest
from mapie.classification import SplitConformalClassifier
from mapie.conformity_scores import ResidualNormalisedScore
from mapie.regression import SplitConformalRegressor
from sklearn.base import BaseEstimator, RegressorMixin, clone
from support.short_estimators import SHORT, regions, wave

from livi import LIVIClassifier, LIVIRegressor
from livi.tables.estimators.conformal import threshold

# So short a fit may rightly be told that it has not spread out yet.
pytestmark = pytest.mark.filterwarnings("ignore::livi.FitWarning")


@pytest.fixture(scope="module")
def regressor():
    return LIVIRegressor(**SHORT).fit(*wave())


def test_the_threshold_is_the_finite_sample_quantile():
    scores = np.random.default_rng(0).permutation(np.arange(1.0, 100.0))
    assert threshold(scores, 0.1) == 90.0
    assert threshold(scores, 0.01) == 99.0
    assert threshold(scores[scores <= 9], 0.1) == 9.0
    with pytest.warns(UserWarning, match="expected at least 9 for alpha=0.1, got 8"):
        assert threshold(scores[scores <= 8], 0.1) == np.inf
    assert threshold(scores, 1.0 - 1e-15) == 1.0


class Median(RegressorMixin, BaseEstimator):
    """What MAPIE is given to conformalise: the median, or the total standard deviation, of a fitted model."""

    def __init__(self, model, part):
        self.model = model
        self.part = part
        self.fitted_ = True

    def fit(self, X, y):  # noqa: ARG002
        raise AssertionError("fitted already")

    def predict(self, X):
        prediction = self.model.predictive(X)
        return (prediction.quantile(0.5) if self.part == "median" else prediction.total_std).numpy()


@pytest.fixture(scope="module")
def conformal_regressor():
    return LIVIRegressor(**SHORT, interval="conformal", calibration_size=0.5).fit(*wave(100))


def test_conformal_intervals_are_those_of_mapie(conformal_regressor):
    X, y = wave(100)
    kept, held = conformal_regressor.split_rows(100)
    assert len(kept) == len(held) == 50
    mapie = SplitConformalRegressor(
        Median(conformal_regressor, "median"),
        confidence_level=0.8,
        conformity_score=ResidualNormalisedScore(Median(conformal_regressor, "std"), prefit=True),
        prefit=True,
    ).conformalize(X[held], y[held])
    new_X, _ = wave(20, seed=1)
    ends = conformal_regressor.predict_interval(new_X, alpha=0.2)
    np.testing.assert_allclose(mapie.predict_interval(new_X)[1][:, :, 0], ends, rtol=1e-6)


def test_conformal_intervals_cover_whatever_the_model_is_worth():
    X, y = wave(400)
    new_X, new_y = wave(2000, seed=1)
    poor = LIVIRegressor(**SHORT | {"steps": 1}, interval="conformal", calibration_size=200).fit(X, y)
    ends = poor.predict_interval(new_X, alpha=0.1)
    covered = np.mean((ends[:, 0] <= new_y) & (new_y <= ends[:, 1]))
    # Coverage given 200 calibration rows is Beta(181, 20): standard error 0.021, and 0.007 from 2000 new rows.
    assert abs(covered - 0.9) < 5 * 0.022


def test_conformal_sets_are_those_of_mapie():
    X, y = regions(120)
    model = LIVIClassifier(**SHORT, interval="conformal", calibration_size=0.5).fit(X, y)
    _, held = model.split_rows(120)
    mapie = SplitConformalClassifier(model, confidence_level=0.9, conformity_score="lac").conformalize(X[held], y[held])
    new_X, _ = regions(50, seed=1)
    np.testing.assert_array_equal(mapie.predict_set(new_X)[1][:, :, 0], model.predict_set(new_X, alpha=0.1))


def test_the_rows_held_out_do_not_touch_the_fit():
    X, y = wave(40)
    model = LIVIRegressor(**SHORT | {"steps": 10}, interval="conformal").fit(X, y)
    _, held = model.split_rows(40)
    X[held], y[held] = 1e6, -1e6
    other = clone(model).fit(X, y)
    new_X, _ = wave(5, seed=1)
    np.testing.assert_array_equal(other.predict(new_X), model.predict(new_X))
    assert other.conformity_scores_.max() > 1e3 * model.conformity_scores_.max()


def test_too_few_rows_for_alpha_give_everything_and_a_warning(conformal_regressor):
    with pytest.warns(UserWarning, match="calibration rows: expected at least 99 for alpha=0.01, got 50") as caught:
        ends = conformal_regressor.predict_interval([[0.0, 0.0]], alpha=0.01)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(ends, [[-np.inf, np.inf]])


def test_a_conformal_answer_needs_a_conformal_fit(regressor):
    model = LIVIRegressor(**SHORT | {"steps": 1}).fit(*wave(10)).set_params(interval="conformal")
    with pytest.raises(ValueError, match="expected a fit with interval='conformal'"):
        model.predict_interval([[0.0, 0.0]])
    with pytest.raises(ValueError, match="alpha: expected a number strictly between 0 and 1"):
        regressor.predict_interval([[0.0, 0.0]], alpha=1.0)
