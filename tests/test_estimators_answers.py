"""What the estimators answer: in the units of y, for classes, with weights."""

import numpy as np
import pytest
import torch
from support.short_estimators import SHORT, regions, wave

import livi
from livi import LIVIClassifier, LIVIRegressor
from livi.model.likelihoods import pass_weights
from livi.tables.estimators.answers import _rows_at_a_time
from livi.tables.estimators.network import build_network
from livi.tables.estimators.scaling import Scaling

# So short a fit may rightly be told that it has not spread out yet.
pytestmark = pytest.mark.filterwarnings("ignore::livi.FitWarning")


@pytest.fixture(scope="module")
def regressor():
    return LIVIRegressor(**SHORT).fit(*wave())


@pytest.fixture(scope="module")
def classifier():
    return LIVIClassifier(**SHORT).fit(*regions())


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
    assert next(regressor.posterior_.likelihood.parameters()).dtype == torch.float64


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
    monkeypatch.setattr("livi.tables.estimators.answers._CPU_BLOCK", 3 * SHORT["num_samples"] * SHORT["hidden"][0])
    assert _rows_at_a_time(regressor.posterior_.layout, SHORT["num_samples"]) == 3
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


def test_varying_noise_may_be_less_than_a_thousandth_of_the_targets_spread():
    X, y = wave(40)
    model = LIVIRegressor(**SHORT | {"steps": 5}, target_scale="plain", noise="varying").fit(X, y)
    assert model.posterior_.likelihood.std(torch.tensor(-1e4)) < 5e-4


def test_constant_columns_and_constant_targets_do_no_harm():
    X, y = wave(40)
    X = np.column_stack([X, np.full(40, 1e9 + 0.1)])
    model = LIVIRegressor(**SHORT).fit(X, y)
    assert model.input_scaling_.scale[2] == 1.0
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize("options", [{}, {"noise": "varying"}, {"interval": "conformal"}], ids=str)
def test_a_constant_target_is_predicted_without_spread(options, tmp_path):
    X, _ = wave(60)
    with pytest.warns(UserWarning, match=r"y: expected values that vary, got 7.1 in all .* deviation of 0"):
        flat = LIVIRegressor(**SHORT | options).fit(X, np.full(60, 7.1))
    flat.save(tmp_path / "flat.livi")
    for model in (flat, livi.estimators.load(tmp_path / "flat.livi")):
        mean, std = model.predict(X, return_std=True)
        assert (mean == 7.1).all()
        assert (std == 0.0).all()
        assert (model.predict_interval(X) == 7.1).all()
        assert (model.sample_y(X, 3) == 7.1).all()
        assert np.isfinite(model.log_density(X, np.full(60, 7.1))).all()


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
