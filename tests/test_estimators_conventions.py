"""The scikit-learn estimators keep its conventions, and refuse in words."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from support.short_estimators import SHORT, regions, wave

import livi
from livi import LIVIClassifier, LIVIRegressor

# So short a fit may rightly be told that it has not spread out yet.
pytestmark = pytest.mark.filterwarnings("ignore::livi.FitWarning")


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


@pytest.mark.parametrize("module", ["base.fit", "answers.apply_many"])
def test_threads_are_set_inside_and_given_back(module, monkeypatch):
    before = torch.get_num_threads()
    X, y = wave(20)
    model = LIVIRegressor(**SHORT | {"steps": 5}).fit(X, y).set_params(n_jobs=before + 2)

    def watched(*args, **kwargs):
        raise KeyboardInterrupt(torch.get_num_threads())

    monkeypatch.setattr(f"livi.tables.estimators.{module}", watched)
    with pytest.raises(KeyboardInterrupt, match=str(before + 2)):
        model.fit(X, y).predict(X) if module == "base.fit" else model.predict(X)
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
        (
            {"noise": "loud"},
            "noise: expected one of constant, poisson, varying, negative-binomial, network or auto, got 'loud'",
        ),
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
    assert 'pip install "livi[sklearn]"' in process.stdout


@pytest.mark.parametrize("kind", [LIVIRegressor, LIVIClassifier])
def test_sparse_matrices_are_refused_in_scikit_learns_words(kind):
    X, y = wave(30) if kind is LIVIRegressor else regions(30)
    with pytest.raises(TypeError, match=r"Sparse data was passed.*but dense data is required.*\.toarray\(\)"):
        kind(**SHORT).fit(csr_matrix(X), y)
    with pytest.raises(TypeError, match="dense data is required"):
        kind(**SHORT).fit(X, y).predict(csr_matrix(X))


def test_words_and_numbers_go_through_a_dense_column_transformer():
    X, y = wave(60)
    frame = pd.DataFrame({"height": X[:, 0], "width": X[:, 1], "town": np.where(y > y.mean(), "Bath", "Ely")})
    frame.loc[3, "height"] = np.nan
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["height", "width"]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["town"]),
        sparse_threshold=0.0,
    )
    model = make_pipeline(columns, LIVIRegressor(**SHORT)).fit(frame, y)
    assert model.score(frame, y) > 0.3
    assert cross_val_score(model, frame, y, cv=2).shape == (2,)


def test_there_is_no_partial_fit_and_the_docs_say_why():
    assert not hasattr(LIVIRegressor(), "partial_fit")
    words = " ".join((Path(__file__).resolve().parents[1] / "docs" / "estimators.md").read_text().split())
    assert "There is no `partial_fit`" in words


@pytest.mark.parametrize(("columns", "classes", "width"), [(1, 2, 80), (2, 2, 80), (3, 2, 50), (1, 4, 50)])
def test_classes_from_few_columns_have_a_network_that_is_fitted_in_seconds(columns, classes, width):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, columns)), np.arange(40) % classes
    model = LIVIClassifier(steps=2, num_samples=4, random_state=0).fit(X, y)
    assert model.posterior_.layout.module[0].out_features == width
    assert model.posterior_.plan["last_layer"] == "conditional: 2"
    assert LIVIClassifier(steps=2, hidden=(7,), random_state=0).fit(X, y).posterior_.layout.module[0].out_features == 7
