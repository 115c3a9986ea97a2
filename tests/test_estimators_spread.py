"""The spread of answers by chains: a factor that rows held out by a trial make likely, in every answer and in files."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import t as student

import livi
from livi.posterior.prediction import DrawnPrediction, RegressionPrediction
from livi.tables.estimators import LIVIRegressor, load, model_trials, regressor
from livi.tables.estimators.scaling import Scaling
from livi.tables.estimators.spread import LOG_SPREAD_STD, USUAL_SPREAD, few_rows_spread, likely_spread
from livi.tables.estimators.target import TargetScale
from livi.tables.estimators.target_models import Model

CHAINS = {"noise": "network", "steps": 40, "num_samples": 20, "random_state": 0}


def waves(rows, seed=0):
    random = np.random.default_rng(seed)
    X = random.uniform(-2.0, 2.0, size=(rows, 2))
    return X, 50.0 + 10.0 * np.sin(2.0 * X[:, 0]) + random.normal(size=rows)


@pytest.fixture(scope="module")
def fitted():
    X, y = waves(100)
    return LIVIRegressor(**CHAINS, target_scale="plain").fit(X, y)


def with_spread(model, factor):
    """The same networks with another factor."""
    other = LIVIRegressor(**model.get_params())
    other.__dict__ |= model.__dict__ | {"target_": replace(model.target_, spread=factor)}
    return other


def mixture(rows=400, networks=10):
    rng = torch.Generator().manual_seed(1)
    means = torch.randn(networks, rows, generator=rng, dtype=torch.float64)
    return RegressionPrediction(means, torch.full_like(means, 0.7))


def test_a_factor_scales_every_deviation_and_leaves_the_mean():
    wide = mixture()
    narrow = wide.spread_by(0.8)
    torch.testing.assert_close(narrow.mean, wide.mean)
    for name in ("epistemic_std", "aleatoric_std", "total_std"):
        torch.testing.assert_close(getattr(narrow, name), 0.8 * getattr(wide, name))
    ends = [0.05, 0.5, 0.95]
    torch.testing.assert_close(narrow.quantile(ends) - wide.mean, 0.8 * (wide.quantile(ends) - wide.mean))


@pytest.mark.parametrize("width", [0.6, 0.9, 1.0, 1.3])
def test_many_rows_decide_the_factor(width):
    prediction = mixture(rows=20_000)
    drawn = prediction.sample(1, torch.Generator().manual_seed(2))[0]
    targets = prediction.mean + width * (drawn - prediction.mean)
    assert likely_spread(prediction, targets, apart=0.2) == pytest.approx(width, rel=0.03)


def test_a_few_rows_hardly_move_it_and_none_leave_what_is_usual():
    prediction = mixture(rows=3)
    assert likely_spread(prediction, prediction.mean) == pytest.approx(USUAL_SPREAD, rel=2 * LOG_SPREAD_STD)
    none = RegressionPrediction(prediction.means[:, :0], prediction.stds[:, :0])
    assert likely_spread(none, torch.zeros(0)) == pytest.approx(USUAL_SPREAD)


def test_targets_beyond_all_measure_are_no_reason_to_fail():
    prediction = mixture(rows=2)
    assert likely_spread(prediction, torch.tensor([1e200, 0.0], dtype=torch.float64)) == USUAL_SPREAD


def test_a_network_that_is_asked_for_has_the_usual_spread_in_every_answer(fitted):
    assert fitted.target_.spread == USUAL_SPREAD
    X, y = waves(30, seed=1)
    whole = with_spread(fitted, 1.0)
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_allclose(mean, whole.predict(X), rtol=1e-12)
    np.testing.assert_allclose(std, USUAL_SPREAD * whole.predict(X, return_std=True)[1], rtol=1e-9)
    ends, wider = fitted.predict_interval(X), whole.predict_interval(X)
    np.testing.assert_allclose(ends - mean[:, None], USUAL_SPREAD * (wider - mean[:, None]), rtol=1e-4, atol=1e-6)
    scores = whole.predictive(X).spread_by(USUAL_SPREAD).log_prob(torch.from_numpy(y)).numpy()
    np.testing.assert_allclose(fitted.log_density(X, y), scores, rtol=1e-6)
    away = fitted.sample_y(X, 20) - mean[:, None]
    np.testing.assert_allclose(away, USUAL_SPREAD * (whole.sample_y(X, 20) - mean[:, None]), rtol=1e-6, atol=1e-9)


def test_a_trial_decides_by_rows_that_it_has_not_seen(monkeypatch):
    asked = []

    def noted(prediction, targets):
        asked.append((prediction, targets))
        return likely_spread(prediction, targets)

    monkeypatch.setattr(model_trials, "likely_spread", noted)
    X, y = waves(120)
    model = LIVIRegressor(**CHAINS).fit(X, y)  # plain or log: both are tried
    ((prediction, targets),) = asked
    assert len(model.trials_) == 2
    assert len(targets) == round(0.3 * 120)
    assert model.target_.spread == likely_spread(prediction, targets)
    assert model.target_.spread != USUAL_SPREAD
    values = np.log(y) if model.model_.target_scale == "log" else y
    assert np.isin(targets.numpy().round(6), values.round(6)).all()


def test_chains_that_a_budget_cut_short_do_not_decide_it():
    X, y = waves(300)
    model = LIVIRegressor(noise="network", budget=1.0, random_state=0).fit(X, y)  # plain or log: both are tried
    assert len(model.trials_) == 2
    assert model.target_.spread == USUAL_SPREAD


def test_of_whole_numbers_the_probabilities_decide_it():
    random = np.random.default_rng(0)
    middle = torch.from_numpy(random.normal(size=(1, 5000)))
    prediction = RegressionPrediction(middle, torch.full_like(middle, 0.3))
    targets = (middle[0] + 0.25 * torch.from_numpy(random.normal(size=5000))).round()
    by_mass = likely_spread(prediction, (targets - 0.5, targets + 0.5), apart=0.2)
    assert by_mass == pytest.approx(0.25 / 0.3, rel=0.05)
    assert likely_spread(prediction, targets, apart=0.2) > 1.1  # a density takes what was rounded off for noise


@pytest.mark.parametrize(("counted", "cells"), [(False, False), (True, True)])
def test_trials_score_by_cells_where_models_of_counts_are_among_them(counted, cells, monkeypatch):
    asked = []
    monkeypatch.setattr(model_trials, "likely_spread", lambda _, targets: asked.append(targets) or 0.9)
    X, y = waves(120)
    made = lambda model, steps: LIVIRegressor(**CHAINS | {"steps": steps}, target_scale=model.target_scale)  # noqa: E731
    tried = model_trials.Trials(made, X, y.round(), np.ones(120), seed=0, steps=40, counted=counted)
    for scale in ("plain", "log"):
        assert tried.spread(Model(scale, "network")) == 0.9
    assert tried.spread(Model("plain", "constant")) == 1.0
    assert [isinstance(targets, tuple) for targets in asked] == [cells, cells]
    if cells:
        low, high = asked[1]
        torch.testing.assert_close(high.exp() - low.exp(), torch.ones_like(low))


def test_a_model_is_fitted_once_for_a_number_of_steps():
    X, y = waves(100)
    made = []

    def make(model, steps):
        made.append(steps)
        return LIVIRegressor(**CHAINS | {"steps": steps}, target_scale=model.target_scale)

    tried, model = model_trials.Trials(make, X, y, np.ones(100), seed=0, steps=40), Model("plain", "network")
    assert tried.fitted(model, 100) is tried.fitted(model, 400)  # 40 both, and no more are allowed
    assert made == [40]


def test_a_trial_of_equal_targets_says_nothing_of_the_spread():
    X, _ = waves(100)
    made = lambda _, steps: LIVIRegressor(**CHAINS | {"steps": steps}, target_scale="plain")  # noqa: E731
    tried = model_trials.Trials(made, X, np.full(100, 3.0), np.ones(100), seed=0, steps=40)
    assert tried.spread(Model("plain", "network")) == USUAL_SPREAD


def test_what_is_out_of_bounds_is_cut_before_it_is_spread():
    scale = TargetScale("log", Scaling(np.asarray(0.0), np.asarray(1.0)), (-2.0, 2.0), 0.5)
    found = scale.in_units(RegressionPrediction(torch.tensor([[-1.0], [9.0]]), torch.tensor(4.0)))
    torch.testing.assert_close(found.logs.means, torch.tensor([[-0.25], [1.25]], dtype=torch.float64))
    torch.testing.assert_close(found.logs.stds, torch.full((2, 1), 0.5, dtype=torch.float64))


def test_a_factor_is_a_positive_number():
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="factor"):
            mixture().spread_by(wrong)


def test_other_noise_keeps_its_spread_from_60_rows_on():
    X, y = waves(60)
    options = {"hidden": (5,), "steps": 20, "num_samples": 10, "random_state": 0}
    for noise in ("constant", "varying"):
        assert LIVIRegressor(noise=noise, target_scale="plain", **options).fit(X, y).target_.spread == 1.0


def test_other_noise_of_few_rows_has_the_spread_of_standardisation_by_these_rows():
    X, y = waves(12)
    options = {"hidden": (5,), "steps": 20, "num_samples": 10, "random_state": 0, "target_scale": "plain"}
    for noise in ("constant", "varying"):
        assert LIVIRegressor(noise=noise, **options).fit(X, y).target_.spread == few_rows_spread(12)
    heavy = LIVIRegressor(noise="constant", **options).fit(X, y, sample_weight=np.full(12, 3.0))
    assert heavy.target_.spread == few_rows_spread(36)


@pytest.mark.parametrize("rows", [3, 8])
def test_new_normal_numbers_in_units_of_that_spread_have_students_distribution(rows):
    tables, level = np.random.default_rng(0).standard_normal((40_000, rows + 1)), 0.9
    old, new = tables[:, :-1], tables[:, -1]
    units = (new - old.mean(1)) / (few_rows_spread(rows) * old.std(1))
    held = (np.abs(units) < student.ppf(0.5 + level / 2, rows - 1)).mean()
    assert abs(held - level) < 4.0 * np.sqrt(level * (1.0 - level) / len(tables))


def test_weights_that_add_up_to_less_than_two_rows_count_as_two():
    assert few_rows_spread(0.01) == few_rows_spread(2.0) == np.sqrt(3.0)


def test_the_noise_of_rows_that_could_be_fitted_exactly_stays_nearer_to_where_it_starts(monkeypatch):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((8, 8)), rng.standard_normal(8)
    model = LIVIRegressor(noise="constant", target_scale="plain", steps=200, num_samples=10, random_state=0)
    guarded = model.fit(X, y).posterior_.likelihood
    monkeypatch.setattr(regressor, "MIN_TABLE_ROWS", 8)
    free = model.fit(X, y).posterior_.likelihood
    assert type(guarded) is type(free) is livi.Gaussian
    assert guarded.obs_std() > free.obs_std()


def test_it_is_saved_and_older_files_leave_spread_as_it_is(tmp_path, fitted):
    X, _ = waves(10, seed=2)
    fitted.save(tmp_path / "model.livi")
    again = load(tmp_path / "model.livi")
    assert again.target_.spread == USUAL_SPREAD
    np.testing.assert_array_equal(again.predict_interval(X), fitted.predict_interval(X))
    older = fitted.target_.to_facts()
    del older["spread"]
    assert TargetScale.from_facts(older).spread == 1.0
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="another target scale"):
            TargetScale.from_facts(older | {"spread": wrong})


def test_the_spread_of_a_logarithm_is_that_of_the_logarithm():
    scale = TargetScale("log", Scaling(np.asarray(0.0), np.asarray(1.0)), (-9.0, 9.0), 0.5)
    logs = RegressionPrediction(torch.tensor([[-1.0], [3.0]]), torch.tensor(0.4))
    found = scale.in_units(logs)
    torch.testing.assert_close(found.logs.means, torch.tensor([[0.0], [2.0]], dtype=torch.float64))
    torch.testing.assert_close(found.logs.stds, torch.full((2, 1), 0.2, dtype=torch.float64))
    assert not isinstance(found, DrawnPrediction)
