"""The scikit-learn estimators: conventions, units, weights, conformal answers, files."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from mapie.classification import SplitConformalClassifier
from mapie.conformity_scores import ResidualNormalisedScore
from mapie.regression import SplitConformalRegressor
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import livi
from livi import LIVIClassifier, LIVIRegressor, StorageError
from livi.model.likelihoods import pass_weights
from livi.tables.estimators import load, load_with_extra
from livi.tables.estimators.conformal import threshold
from livi.tables.estimators.network import build_network
from livi.tables.estimators.prior import prior_of
from livi.tables.estimators.scaling import Scaling

# So short a fit may rightly be told that it has not spread out yet.
pytestmark = pytest.mark.filterwarnings("ignore::livi.FitWarning")

SHORT = {"hidden": (8,), "activation": "tanh", "steps": 60, "num_samples": 32, "random_state": 0}


def wave(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 2))
    return X, np.sin(X[:, 0]) + 0.2 * rng.normal(size=n)


def regions(n=90, seed=0):
    X, _ = wave(n, seed)
    return X, np.array(["left", "middle", "right"])[np.digitize(X[:, 0], [-1, 1])]


@pytest.fixture(scope="module")
def regressor():
    return LIVIRegressor(**SHORT).fit(*wave())


@pytest.fixture(scope="module")
def classifier():
    return LIVIClassifier(**SHORT).fit(*regions())


# --- conventions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LIVIRegressor, LIVIClassifier])
def test_a_clone_has_the_parameters_and_nothing_fitted(kind):
    model = kind((4, 3), prior_scale="learned", n_jobs=1, steps=7)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.get_params()["hidden"] == (4, 3)
    with pytest.raises(NotFittedError):
        copy.predict([[0.0]])


def test_the_module_has_the_estimators_and_says_so():
    assert livi.LIVIRegressor is livi.tables.estimators.LIVIRegressor
    assert {"LIVIRegressor", "LIVIClassifier", "estimators"} <= set(dir(livi))
    with pytest.raises(AttributeError, match="no attribute 'LIVITransformer'"):
        _ = livi.LIVITransformer


def test_a_grid_search_goes_through_a_pipeline_and_keeps_the_better_length():
    X, y = wave(60)
    search = GridSearchCV(
        make_pipeline(PolynomialFeatures(2), LIVIRegressor(**SHORT)), {"liviregressor__steps": [1, 60]}, cv=2
    ).fit(X, y)
    assert search.best_params_ == {"liviregressor__steps": 60}
    assert search.predict(X).shape == (60,)


def test_cross_validation_scores_a_classifier_above_chance():
    scores = cross_val_score(LIVIClassifier(**SHORT), *regions(), cv=3)
    assert scores.min() > 0.6


def test_feature_names_come_from_pandas_and_others_are_refused():
    X, y = wave(30)
    frame = pd.DataFrame(X, columns=["height", "width"])
    model = LIVIRegressor(**SHORT).fit(frame, pd.Series(y))
    assert list(model.feature_names_in_) == ["height", "width"]
    assert model.predict(frame).shape == (30,)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"width": "depth"}))


def test_an_input_without_effect_is_irrelevant_and_fixed_scales_say_nothing():
    random = np.random.default_rng(0)
    X = random.normal(size=(150, 3))
    y = np.sin(2 * X[:, 1]) + 0.1 * random.normal(size=150)
    model = LIVIRegressor(hidden=(20,), steps=300, random_state=0).fit(X, y)
    relevance = model.relevance_
    assert relevance.shape == (3,)
    assert relevance[1] == 1.0
    assert max(relevance[0], relevance[2]) < 0.6
    fixed = LIVIRegressor(**SHORT | {"steps": 5}, prior_scale="fan_in").fit(X, y)
    assert not hasattr(fixed, "relevance_")
    # The first matrix of a linear model with varying noise is that of the noise, since the mean's is integrated out.
    assert not hasattr(LIVIRegressor((), noise="varying", steps=5, random_state=0).fit(X, y), "relevance_")
    with pytest.raises(NotFittedError):
        _ = LIVIRegressor().relevance_


@pytest.mark.parametrize("hidden", [(), (20,)])
def test_noise_may_vary_with_the_inputs(hidden):
    random = np.random.default_rng(0)
    X = random.uniform(-2, 2, size=(400, 2))
    truth = 10 * np.exp(0.8 * X[:, 1])
    y = 50 * X[:, 0] + truth * random.normal(size=400)
    model = LIVIRegressor(hidden, noise="varying", steps=600, random_state=0).fit(X, y)
    assert type(model.posterior_.sampler).__name__ == "ExactLastLayer"
    found = model.predictive(X).aleatoric_std.numpy()
    assert np.corrcoef(np.log(found), np.log(truth))[0, 1] > 0.95
    assert 0.6 < np.median(found / truth) < 1.6


def test_the_rows_held_out_to_calibrate_on_can_be_asked_for():
    X, y = wave(50)
    model = LIVIRegressor(**SHORT | {"steps": 5}, interval="conformal").fit(X, y)
    kept, held = model.split_rows(50)
    assert len(held) == len(model.conformity_scores_) == 10
    assert sorted([*kept, *held]) == list(range(50))
    again = LIVIRegressor(**SHORT | {"steps": 5}).fit(X, y)
    assert [len(part) for part in again.split_rows(50)] == [50, 0]
    with pytest.raises(NotFittedError):
        LIVIRegressor().split_rows(50)


def test_a_random_state_repeats_the_fit_and_another_does_not():
    X, y = wave(30)
    first, second, third = (
        LIVIRegressor(**SHORT | {"random_state": state}).fit(X, y).predict(X)
        for state in (5, np.random.RandomState(5), 6)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(first, third)


def test_fitting_leaves_the_global_random_streams_alone():
    torch.manual_seed(1)
    before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    LIVIRegressor(**SHORT | {"random_state": None, "steps": 5}).fit(*wave(20)).predict(wave(5)[0])
    assert torch.equal(torch.random.get_rng_state(), before)
    # A random_state of None is numpy's global stream, as in all of scikit-learn: one draw for the seed.
    assert not np.array_equal(np.random.get_state()[1:3], numpy_before)  # noqa: NPY002


@pytest.mark.parametrize("part", ["fit", "predict"])
def test_threads_are_set_inside_and_given_back(part, monkeypatch):
    before = torch.get_num_threads()
    X, y = wave(20)
    model = LIVIRegressor(**SHORT | {"steps": 5}).fit(X, y).set_params(n_jobs=before + 2)

    def watched(*args, **kwargs):
        raise KeyboardInterrupt(torch.get_num_threads())

    monkeypatch.setattr(f"livi.tables.estimators.base.{part}", watched)
    with pytest.raises(KeyboardInterrupt, match=str(before + 2)):
        model.fit(X, y).predict(X) if part == "fit" else model.predict(X)
    assert torch.get_num_threads() == before


def test_verbose_shows_the_progress(capsys):
    X, y = wave(20)
    LIVIRegressor(**SHORT | {"steps": 10}).fit(X, y)
    assert capsys.readouterr().err == ""
    LIVIRegressor(**SHORT | {"steps": 10}, verbose=1).fit(X, y)
    assert "bound" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hidden": (0,)}, "hidden: expected positive integers"),
        ({"hidden": "wide"}, "hidden: expected positive integers"),
        ({"activation": "step"}, "activation: expected one of relu"),
        ({"noise": "loud"}, "noise: expected 'constant' or 'varying'"),
        (
            {"prior_scale": "large"},
            "prior_scale: expected a positive number, 'auto', 'learned' or 'fan_in', got 'large'",
        ),
        ({"prior_scale": -1.0}, "prior_scale: expected a positive number, .* got -1.0"),
        ({"interval": "wide"}, "interval: expected one of posterior, conformal"),
        ({"steps": 0}, "steps: expected a positive integer"),
        ({"n_jobs": 0}, "n_jobs: expected a number of threads"),
    ],
)
def test_a_wrong_parameter_is_named_when_fitting(wrong, message):
    with pytest.raises(ValueError, match=message):
        LIVIRegressor(**SHORT | wrong).fit(*wave(20))


def test_without_scikit_learn_the_error_names_the_extra_and_the_rest_works():
    script = """
import sys
sys.modules["sklearn"] = None
from livi import *
import livi
livi.Gaussian()
try:
    livi.LIVIRegressor
except ImportError as error:
    print(error)
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert 'pip install "livi[tables]"' in process.stdout


# --- regression -----------------------------------------------------------------------------------


def test_answers_are_in_the_units_of_y():
    X, y = wave(40)
    near, far = LIVIRegressor(**SHORT).fit(X, y), LIVIRegressor(**SHORT).fit(X, 1000 * y + 5)
    scale = {"rtol": 1e-2, "atol": 10.0}  # the standardised problem is the same up to rounding in float32
    mean, std = near.predict(X, return_std=True)
    far_mean, far_std = far.predict(X, return_std=True)
    np.testing.assert_allclose(far_mean, 1000 * mean + 5, **scale)
    np.testing.assert_allclose(far_std, 1000 * std, **scale)
    np.testing.assert_allclose(far.predict_interval(X), 1000 * near.predict_interval(X) + 5, **scale)
    np.testing.assert_allclose(far.sample_y(X, 3), 1000 * near.sample_y(X, 3) + 5, **scale)
    log_densities = far.log_density(X, 1000 * y + 5), near.log_density(X, y) - np.log(1000)
    np.testing.assert_allclose(*log_densities, atol=0.05)


def test_answers_follow_from_one_predictive(regressor):
    X, y = wave(10, seed=1)
    prediction = regressor.predictive(X)
    mean, std = regressor.predict(X, return_std=True)
    np.testing.assert_allclose(prediction.mean, mean)
    np.testing.assert_allclose((prediction.epistemic_std**2 + prediction.aleatoric_std**2).sqrt(), std)
    np.testing.assert_allclose(np.stack(prediction.interval(0.8), axis=1), regressor.predict_interval(X, alpha=0.2))
    np.testing.assert_allclose(prediction.log_prob(torch.from_numpy(y)), regressor.log_density(X, y))
    assert regressor.posterior_.history == regressor.history_
    assert regressor.posterior_.likelihood.obs_std().dtype == torch.float64


def test_a_read_only_target_has_a_density_without_a_warning(regressor):
    X, y = wave(5, seed=1)
    y.flags.writeable = False
    assert np.isfinite(regressor.log_density(X, y)).all()


def test_a_density_integrates_to_one(regressor):
    grid = np.linspace(-20, 20, 8001)
    density = np.exp(regressor.log_density(np.zeros((len(grid), 2)), grid))
    assert np.sum(density) * (grid[1] - grid[0]) == pytest.approx(1.0, abs=1e-6)


def test_predictions_in_blocks_are_predictions_in_one(regressor, monkeypatch):
    X, y = wave(11, seed=2)
    whole = regressor.predict(X), regressor.predict_interval(X), regressor.log_density(X, y)
    monkeypatch.setattr("livi.tables.estimators.base._CPU_BLOCK", 3 * SHORT["num_samples"] * SHORT["hidden"][0])
    assert regressor._rows_at_a_time(SHORT["num_samples"]) == 3
    blocks = regressor.predict(X), regressor.predict_interval(X), regressor.log_density(X, y)
    for one, other in zip(whole, blocks, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_draws_have_the_moments_of_the_prediction(regressor):
    X, _ = wave(5)
    draws = regressor.sample_y(X, 4000, random_state=3)
    mean, std = regressor.predict(X, return_std=True)
    assert draws.shape == (5, 4000)
    assert np.all(np.abs(draws.mean(1) - mean) < 5 * std / np.sqrt(4000))
    assert not np.allclose(draws, regressor.sample_y(X, 4000, random_state=4))


def test_intervals_of_a_gaussian_toy_cover_about_what_they_say():
    X, y = wave(300)
    new_X, new_y = wave(1000, seed=1)
    model = LIVIRegressor(**SHORT | {"steps": 300}).fit(X, y)
    ends = model.predict_interval(new_X, alpha=0.2)
    assert 0.7 < np.mean((ends[:, 0] <= new_y) & (new_y <= ends[:, 1])) < 0.9


def test_varying_noise_is_larger_where_the_data_scatter():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(200, 1))
    y = np.where(X[:, 0] > 0, 1.0, 0.05) * rng.normal(size=200)
    model = LIVIRegressor(**SHORT | {"steps": 200}, noise="varying").fit(X, y)
    aleatoric = model.predictive([[-0.7], [0.7]]).aleatoric_std
    assert aleatoric[1] > 3 * aleatoric[0]


def test_constant_columns_and_constant_targets_do_no_harm():
    X, y = wave(40)
    X = np.column_stack([X, np.full(40, 1e9 + 0.1)])
    model = LIVIRegressor(**SHORT).fit(X, y)
    assert model.input_scaling_.scale[2] == 1.0
    assert model.score(X, y) > 0.5
    flat = LIVIRegressor(**SHORT).fit(X, np.full(40, 7.0))
    np.testing.assert_allclose(flat.predict(X), 7.0, atol=0.5)


def test_scaling_is_weighted_and_does_not_overflow():
    values = np.array([[1.0, 1e200], [2.0, -1e200], [2.0, -1e200]])
    weighted, repeated = Scaling.of(values[:2], np.array([1.0, 2.0])), Scaling.of(values, np.ones(3))
    np.testing.assert_allclose(weighted.shift, repeated.shift)
    np.testing.assert_allclose(weighted.scale, repeated.scale)
    np.testing.assert_allclose(repeated.standardise(values).std(0), 1.0)


# --- classification -------------------------------------------------------------------------------


def test_labels_are_predicted_as_they_were_given(classifier):
    X, y = regions()
    assert classifier.classes_.tolist() == ["left", "middle", "right"]
    assert set(classifier.predict(X)) <= set(y)
    assert classifier.score(X, y) > 0.7


def test_probabilities_and_their_logarithms_agree_and_split(classifier):
    X, _ = regions()
    probabilities = classifier.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    np.testing.assert_allclose(np.exp(classifier.predict_log_proba(X)), probabilities)
    prediction = classifier.predictive(X)
    split = prediction.aleatoric_entropy + prediction.mutual_information
    np.testing.assert_allclose(split, prediction.entropy, atol=1e-6)


def test_a_set_of_the_posterior_is_the_smallest_of_its_probability(classifier):
    X, _ = regions()
    probabilities, chosen = classifier.predict_proba(X), classifier.predict_set(X, alpha=0.1)
    held = np.where(chosen, probabilities, 0.0)
    assert np.all(held.sum(1) >= 0.9 - 1e-12)
    least = np.where(chosen, probabilities, np.inf).min(1)
    assert np.all(held.sum(1) - least < 0.9)  # none can be spared
    assert np.all(np.where(chosen, -np.inf, probabilities).max(1) <= least)  # and none left out is larger


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="at least two classes, got one class"):
        LIVIClassifier(**SHORT).fit([[0.0], [1.0]], ["a", "a"])


# --- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", [livi.Gaussian(0.3), livi.Categorical()], ids=["regression", "classes"])
def test_weights_and_copies_have_the_same_objective(likelihood):
    x, weights = torch.randn(6, 2), torch.tensor([1, 2, 3, 1, 2, 1])
    y = torch.tensor([0, 1, 1, 0, 1, 0]) if isinstance(likelihood, livi.Categorical) else torch.randn(6)
    net = build_network(2, (4,), 2 if isinstance(likelihood, livi.Categorical) else 1, "tanh", dtype=torch.float64)
    rows = torch.arange(6).repeat_interleave(weights)
    plain, weighted = livi.Layout(net), livi.Layout(net, forward=pass_weights)
    generator = livi.MLP.for_layout(plain, latent_dim=3)

    def bound(layout, used, inputs, targets):
        posterior = livi.ImplicitPosterior(layout, generator)
        objective = livi.Bound(posterior, used, livi.Normal(), num_data=len(targets))
        return objective(inputs, targets, torch.Generator().manual_seed(0)).bound

    copies = bound(plain, likelihood, x[rows], y[rows])
    once = bound(weighted, livi.Weighted(likelihood), (x, weights.double()), y)
    torch.testing.assert_close(once, copies)
    assert not torch.isclose(once, bound(plain, likelihood, x, y))


def test_a_weighted_likelihood_starts_and_stops_where_its_base_does():
    targets = torch.tensor([1.0, 5.0, 9.0])
    base = livi.Gaussian().started_from(targets)
    weighted = livi.Weighted(livi.Gaussian()).started_from(targets)
    assert weighted.base.obs_std() == base.obs_std() == 4.0
    [(parameter, limit)] = weighted.lower_limits()
    assert parameter is weighted.base.log_std
    assert [limit] == [limit for _, limit in base.lower_limits()]


def test_weights_go_through_minibatches():
    X, y = wave(40)
    weights = np.linspace(0.5, 2.0, 40)
    model = LIVIRegressor(**SHORT, batch_size=10).fit(X, y, sample_weight=weights)
    assert model.posterior_.plan["steps_per_epoch"] == 4
    assert model.score(X, y, sample_weight=weights) > 0.5


def test_a_heavy_row_is_followed_and_a_row_of_no_weight_is_not():
    X, y = wave(40)
    outlier = np.vstack([X, [[0.0, 0.0]]]), np.append(y, 5.0)
    weights = np.ones(41)
    plain = LIVIRegressor(**SHORT).fit(X, y)
    weights[-1] = 0.0
    without = LIVIRegressor(**SHORT).fit(*outlier, sample_weight=weights)
    np.testing.assert_array_equal(without.predict(X), plain.predict(X))
    weights[-1] = 40.0
    heavy = LIVIRegressor(**SHORT).fit(*outlier, sample_weight=weights)
    assert heavy.predict([[0.0, 0.0]])[0] > 1.0 + plain.predict([[0.0, 0.0]])[0]
    assert type(heavy.posterior_.likelihood) is livi.Gaussian
    assert heavy.posterior_.layout.forward is None


def test_weights_of_one_change_nothing():
    X, y = wave(30)
    with_ones = LIVIRegressor(**SHORT).fit(X, y, sample_weight=np.ones(30)).predict(X)
    np.testing.assert_array_equal(with_ones, LIVIRegressor(**SHORT).fit(X, y).predict(X))


# --- conformal ------------------------------------------------------------------------------------


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


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"noise": "varying", "hidden": [5, 4], "activation": "silu"}, {"hidden": (), "components": 2}],
    ids=["plain", "varying", "linear"],
)
def test_a_saved_regressor_answers_as_before(tmp_path, options):
    frame = pd.DataFrame(wave(40)[0], columns=["height", "width"])
    model = LIVIRegressor(**SHORT | {"steps": np.int64(20), "interval": "conformal"} | options).fit(frame, wave(40)[1])
    model.save(tmp_path / "model.livi")
    again = load(tmp_path / "model.livi")
    assert again.get_params() == model.get_params()
    assert again.feature_names_in_.tolist() == ["height", "width"]
    assert again.history_ == model.history_
    np.testing.assert_array_equal(again.predict_interval(frame, 0.2), model.predict_interval(frame, 0.2))
    np.testing.assert_array_equal(again.predict(frame, return_std=True), model.predict(frame, return_std=True))


@pytest.mark.parametrize("labels", [["a", "b"], [3, -1], [True, False], [2.0, 1.0]], ids=str)
def test_a_saved_classifier_answers_as_before_with_its_labels(tmp_path, labels):
    X, _ = wave(30)
    y = np.where(X[:, 0] > 0, *labels)
    for given in (y, y.astype(object) if isinstance(labels[0], str) else y):
        weights = np.random.default_rng(0).uniform(size=30)
        model = LIVIClassifier(**SHORT | {"steps": 10}).fit(X, given, sample_weight=weights)
        model.save(tmp_path / "model.livi", extra={"columns": ["height"], "limits": torch.arange(3)})
        again, extra = load_with_extra(tmp_path / "model.livi")
        assert again.classes_.dtype == model.classes_.dtype
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        assert extra["columns"] == ["height"]
        assert extra["limits"].tolist() == [0, 1, 2]


def test_parameters_changed_after_the_fit_do_not_spoil_the_file(tmp_path, regressor):
    model = LIVIRegressor(**SHORT | {"steps": 2}).fit(*wave(10)).set_params(hidden=(99,), random_state=np.random)
    model.set_params(random_state=np.random.RandomState(0), device=torch.device("cpu"))
    model.save(tmp_path / "model.livi")
    again = load(tmp_path / "model.livi")
    np.testing.assert_array_equal(again.predict([[0.0, 0.0]]), model.predict([[0.0, 0.0]]))
    assert again.hidden == (99,)
    assert again.random_state is None


def test_files_of_something_else_are_refused(tmp_path, regressor):
    path = tmp_path / "model.livi"
    regressor.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(StorageError, match="complete file"):
        load(path)
    path.write_text("height,width\n")
    with pytest.raises(StorageError, match="safetensors"):
        load(path)
    regressor.posterior_.save(path)
    with pytest.raises(StorageError, match="expected a saved estimator, got another posterior"):
        load(path)
    with pytest.raises(StorageError, match="none of that name"):
        load(tmp_path / "missing.livi")


@pytest.mark.parametrize("varying", [False, True])
def test_the_last_bias_of_a_regression_starts_as_small_as_the_weights_beside_it(varying):
    layout = livi.Layout(build_network(3, (16,), 1, "tanh", varying=varying, dtype=torch.float64))
    scale = layout.unflatten(prior_of("auto", 1, classes=False)(layout).scale())
    prefix = "mean." if varying else ""
    torch.testing.assert_close(scale[f"{prefix}2.weight"], torch.full((1, 16), 1.5 / 4.0, dtype=torch.float64))
    torch.testing.assert_close(scale[f"{prefix}2.bias"], torch.tensor([1.5 / 4.0], dtype=torch.float64))
    torch.testing.assert_close(scale[f"{prefix}0.bias"], torch.full((16,), 1.5, dtype=torch.float64))
