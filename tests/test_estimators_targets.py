"""The scale of a target: models of its logarithm, answers in its own units, and the choice by trial."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from sklearn.datasets import make_friedman1

import livi
from livi.posterior import metrics
from livi.posterior.prediction import LogNormalPrediction, RegressionPrediction
from livi.tables.estimators import LIVIRegressor, load
from livi.tables.estimators.model_choice import (
    MIN_TABLE_ROWS,
    chosen,
    has_many,
    leads,
    model_trial_rows,
    plausible,
)
from livi.tables.estimators.noise import first_noise
from livi.tables.estimators.scaling import Scaling
from livi.tables.estimators.target import TargetScale, stretched
from livi.tables.estimators.target_models import Model, candidates, sampled_like

SHORT = {"hidden": (5,), "steps": 60, "num_samples": 30, "random_state": 0}


def skewed(rows, seed=0):
    """Positive targets with an error of a tenth of their size."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 2))
    return X, np.exp(7.0 + X[:, 0] + 0.1 * random.normal(size=rows))


def mixture():
    logs = RegressionPrediction(torch.tensor([[0.0, 1.0], [0.5, 1.5]], dtype=torch.float64), torch.tensor([0.3, 0.7]))
    return logs, LogNormalPrediction(logs)


def test_a_mixture_of_log_normals_is_what_scipy_says_it_is():
    logs, prediction = mixture()
    parts = [stats.lognorm(std, scale=np.exp(mean)) for mean, std in ((1.0, 0.7), (1.5, 0.7))]  # of the second target
    target = torch.tensor([1.2, 3.4], dtype=torch.float64)
    assert prediction.mean[1] == pytest.approx(np.mean([part.mean() for part in parts]))
    second = np.mean([part.moment(2) for part in parts])
    assert prediction.total_std[1] == pytest.approx(np.sqrt(second - float(prediction.mean[1]) ** 2))
    assert prediction.log_prob(target)[1] == pytest.approx(np.log(np.mean([part.pdf(3.4) for part in parts])))
    assert prediction.cdf(target)[1] == pytest.approx(np.mean([part.cdf(3.4) for part in parts]))
    torch.testing.assert_close(prediction.cdf(prediction.quantile(0.2)), torch.full((2,), 0.2, dtype=torch.float64))
    torch.testing.assert_close(prediction.quantile(0.2).log(), logs.quantile(0.2))


def test_the_crps_of_log_normals_is_the_integral_that_it_stands_for():
    _, prediction = mixture()
    target = torch.tensor([1.2, 3.4], dtype=torch.float64)

    def squared(point, place):
        below = float(prediction.cdf(torch.full((2,), point, dtype=torch.float64))[place])
        return (below - float(point >= float(target[place]))) ** 2

    found = prediction.crps(target)
    for place in range(2):
        edge = float(target[place])
        whole = sum(integrate.quad(squared, *ends, args=(place,), limit=200)[0] for ends in ((0, edge), (edge, 200)))
        assert float(found[place]) == pytest.approx(whole, rel=1e-5)
    assert metrics.crps(prediction, target) == pytest.approx(float(found.mean()))


def test_a_target_that_cannot_be_is_given_no_density():
    _, prediction = mixture()
    targets = torch.tensor([0.0, -1.0], dtype=torch.float64)
    assert prediction.log_prob(targets).tolist() == [-np.inf, -np.inf]
    assert prediction.cdf(targets).tolist() == [0.0, 0.0]


def test_draws_of_logarithms_stay_near_what_was_seen():
    scale = TargetScale.of("log", np.array([1.0, np.e**2]), np.ones(2))
    far = scale.in_units(RegressionPrediction(torch.tensor([[-50.0, 0.0, 50.0]]), torch.tensor(0.1)))
    assert far.logs.means[0].tolist() == [-1.0, 1.0, 3.0]  # half the range beyond either end


def test_a_network_that_is_unsure_beyond_all_targets_does_not_decide_their_mean():
    scale = TargetScale.of("log", np.exp(np.array([-1.0, 0.0, 1.0])), np.ones(3))
    stds = torch.tensor([[0.1]] * 99 + [[20.0]])
    found = scale.in_units(RegressionPrediction(torch.zeros(100, 1), stds))
    assert found.logs.stds.max().item() == pytest.approx((2 / 3) ** 0.5)  # that of the logarithms
    assert 1.0 < found.mean.item() < 1.05


def test_intervals_are_stretched_on_the_scale_that_was_modelled():
    logs, prediction = mixture()
    for end, sign in zip(stretched(prediction, 2.0), (-1, 1), strict=True):
        torch.testing.assert_close(end.log(), logs.quantile(0.5) + sign * 2.0 * logs.total_std)


def test_positive_targets_with_relative_errors_are_modelled_by_their_logarithm(tmp_path):
    X, y = skewed(300)
    model = LIVIRegressor(**SHORT).fit(X[:200], y[:200])
    assert model.model_.target_scale == "log"
    scores = {trial.model: trial.log_score for trial in model.trials_}
    assert scores[Model("log", "constant")] > scores[Model("plain", "constant")]
    assert (model.predict_interval(X, 0.001) > 0).all()
    assert (model.sample_y(X[:5], 50) > 0).all()
    model.save(tmp_path / "model.livi")
    again = load(tmp_path / "model.livi")
    assert (again.model_, again.trials_) == (model.model_, model.trials_)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_the_log_score_is_per_unit_of_the_target():
    X, y = skewed(120)
    model = LIVIRegressor(**SHORT, target_scale="log", noise="constant").fit(X, y)
    row = np.zeros((1, 2))
    grid = np.exp(np.linspace(np.log(50), np.log(50_000), 4001))
    density = np.exp(model.log_density(np.repeat(row, len(grid), 0), grid))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)


def test_conformal_intervals_of_logarithms_are_positive_and_hold_their_share():
    X, y = skewed(600)
    model = LIVIRegressor(**SHORT, target_scale="log", noise="constant", interval="conformal").fit(X[:300], y[:300])
    lower, upper = model.predict_interval(X[300:], 0.2).T
    assert (lower > 0).all()
    assert 0.7 < np.mean((lower <= y[300:]) & (y[300:] <= upper)) < 0.9


def test_what_can_be_tried_follows_from_targets_and_settings():
    assert candidates("auto", "constant", np.array([1.0, 0.0])) == [Model("plain", "constant")]
    assert candidates("log", "varying", np.array([1.0])) == [Model("log", "varying")]
    assert candidates("auto", "auto", np.array([1.0]))[0] == Model("plain", "constant")  # the simplest comes first
    with pytest.raises(ValueError, match=r"target_scale='log': expected targets above 0, got -1; pass 'plain'"):
        LIVIRegressor(**SHORT, target_scale="log").fit([[0.0], [1.0]], [1.0, -1.0])


def test_the_simpler_model_is_taken_in_doubt():
    models, random = [Model("plain", "constant"), Model("log", "constant")], np.random.default_rng(0)
    noise = random.normal(size=100)
    for lead, expected in ((0.01, models[0]), (1.0, models[1])):
        scores = dict(zip(models, (np.zeros(100), lead + noise), strict=True))
        assert chosen(models, scores.__getitem__)[0] == expected
    scores = dict(zip(models, (np.full(100, -np.inf), noise), strict=True))
    best, trials = chosen(models, scores.__getitem__)
    assert (best, trials[0].log_score) == (models[1], None)


def test_chains_are_held_against_the_best_of_the_others():
    models, random = [Model("plain", "constant"), Model("log", "constant")], np.random.default_rng(0)
    noise = random.normal(size=100)
    known = dict(zip(models, (np.zeros(100), 1.0 + noise), strict=True))
    chains = sampled_like(models[1])
    assert chains == Model("log", "network")
    for lead, expected in ((-0.1, models[1]), (0.01, chains), (1.0, chains)):  # they go on to a better end than others
        away = random.normal(size=100)
        ahead = known[models[1]] + lead + 0.5 * (away - away.mean())
        best, trials = chosen(models, (known | {chains: ahead}).__getitem__, sampled_like)
        assert best == expected
        assert [trial.model for trial in trials] == [*models, chains]
    assert leads(ahead - 0.9, known[models[1]], min_lead=0.0)
    assert not leads(ahead - 0.9, known[models[1]], min_lead=3.0)
    assert sampled_like(Model("count", "poisson")) is None


def test_chains_are_scored_where_a_short_trial_is_ahead():
    model, random = Model("plain", "constant"), np.random.default_rng(0)
    known, chains = random.normal(size=100), sampled_like(model)
    score = {model: known, chains: known + 2.0}.__getitem__
    for lead, expected, told in ((-0.1, model, -0.1), (0.1, chains, 2.0)):
        best, trials = chosen([model], score, sampled_like, lambda _, lead=lead: known + lead)
        assert [trial.model for trial in trials] == [model, chains]
        assert (best, trials[1].log_score) == (expected, pytest.approx(known.mean() + told))


def test_of_many_rows_chains_must_lead_a_trial_as_long_as_theirs():
    model, random = Model("plain", "varying"), np.random.default_rng(0)
    known, chains = random.normal(size=100), sampled_like(model)
    score = {model: known, chains: known + 1.0}.__getitem__
    for gain, expected in ((0.5, chains), (2.0, model)):
        best, trials = chosen([model], score, sampled_like, long_trial=lambda _, gain=gain: known + gain)
        assert best == expected
        assert trials[0].log_score == pytest.approx(known.mean() + gain)  # what was compared in the end is told
    assert [has_many(rows) for rows in (3000, 3001)] == [False, True]


@pytest.mark.parametrize(("rows", "expected"), [(200, (True, False)), (3001, (False, True))])
def test_few_rows_get_a_short_trial_and_many_a_long_one(rows, expected, monkeypatch):
    seen = []

    def spy(models, score, by_chains, short_trial, long_trial):
        seen.append((short_trial is not None, long_trial is not None))
        return models[0], []

    monkeypatch.setattr("livi.tables.estimators.model_trials.chosen", spy)
    X = np.random.default_rng(0).normal(size=(rows, 2))
    LIVIRegressor(**SHORT).fit(X, X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=rows))
    assert seen == [expected]


def test_where_noise_varies_chains_are_scored_without_a_short_trial():
    model, random = Model("log", "varying"), np.random.default_rng(0)
    known, chains = random.normal(size=100), sampled_like(model)

    def short_trial(other):
        raise AssertionError(other)

    assert chosen([model], {model: known, chains: known + 1.0}.__getitem__, sampled_like, short_trial)[0] == chains


def test_residuals_say_what_is_worth_a_trial():
    models, random = candidates("auto", "auto", np.array([1.5])), np.random.default_rng(0)
    x, noise = random.uniform(size=(400, 3)), random.normal(size=400)
    mean = 10.0 + x[:, 0]

    def labels(targets, std=0.1):
        return [model.label for model in plausible(models, x, targets, mean, np.full(400, std))]

    assert labels(mean + 0.1 * noise) == ["plain constant"]
    assert labels(mean + 0.1 * np.exp(x[:, 1]) * noise) == ["plain constant", "plain varying"]
    assert labels(mean + (0.02 + np.abs(x[:, 2] - 0.5)) * noise) == ["plain constant", "plain varying"]
    assert labels(mean + 0.1 * (mean - 9.9) * noise) == [model.label for model in models]
    assert labels(np.exp(noise), 1.0)[1] == "log constant"  # skewed
    assert labels(np.full(400, np.nan)) == [model.label for model in models]


def test_rows_that_hardly_count_decide_nothing():
    random = np.random.default_rng(0)
    X, other = random.normal(size=(200, 1)), random.uniform(-2.0, -1.0, size=(200, 1))
    y = X[:, 0] + 0.3 * np.exp(1.2 * X[:, 0]) * random.normal(size=200)
    both = np.concatenate([X, other]), np.concatenate([y, other[:, 0] + random.choice([-1.0, 1.0], 200)])
    weights = np.repeat([1.0, 1e-9], 200)
    model = LIVIRegressor(hidden=(8,), steps=100, random_state=0, target_scale="plain")
    assert model.fit(*both).model_.noise == "constant"
    assert model.fit(*both, sample_weight=weights).model_.noise == "varying"


def test_few_trials_are_made_where_nothing_speaks_for_more():
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 3))
    model = LIVIRegressor(**SHORT).fit(X, 20.0 + X[:, 0] + random.normal(size=200))
    assert [trial.model for trial in model.trials_] == [Model("plain", "constant")]


def stepped(rows: int = 200):
    """A step with a noise that depends on the side of it: nothing that a noise linear in the inputs can follow."""
    random = np.random.default_rng(1)
    X = random.uniform(-1.0, 1.0, size=(rows, 2))
    noisy = np.abs(X[:, 1]) < 0.4
    return X, np.sign(X[:, 0]) * np.sign(X[:, 1]) + np.where(noisy, 0.8, 0.01) * random.normal(size=rows)


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_a_network_of_its_own_noise_is_tried_and_taken_where_it_leads(tmp_path):
    model = LIVIRegressor(random_state=0, steps=150, num_samples=32).fit(*stepped())
    assert model.model_ == model.trials_[-1].model == Model("plain", "network")
    assert not model.holds_rows_  # draws alone
    model.save(tmp_path / "model.livi")
    again = load(tmp_path / "model.livi")
    assert (again.model_, again.trials_) == (model.model_, model.trials_)


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
@pytest.mark.parametrize("weighted", [False, True])
def test_answers_of_a_network_with_its_own_noise_allow_for_outliers(tmp_path, weighted):
    X, y = stepped(80)
    weights = np.where(np.arange(80) < 40, 1.0, 2.0) if weighted else None
    model = LIVIRegressor(noise="network", target_scale="plain", steps=40, num_samples=16, random_state=0)
    model.fit(X, y, weights)
    likelihood = model.posterior_.likelihood
    assert isinstance(likelihood, livi.ContaminatedGaussian)
    assert (likelihood.share, likelihood.width) == (0.001, 10.0)
    mean, std = model.predict(X, return_std=True)
    far = model.log_density(X, mean + 100.0 * std)
    assert (far > -200.0).all()  # of Gaussian noise -5,000
    model.save(tmp_path / "model.livi")
    np.testing.assert_array_equal(load(tmp_path / "model.livi").predict_interval(X), model.predict_interval(X))


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_a_logarithm_has_no_outliers():
    X, y = stepped(80)
    model = LIVIRegressor(noise="network", target_scale="log", steps=40, num_samples=16, random_state=0).fit(
        X, np.exp(y)
    )
    assert type(model.posterior_.likelihood) is livi.HeteroscedasticGaussian


@pytest.mark.parametrize(
    "settings",
    [{"hidden": (8,)}, {"activation": "tanh"}, {"prior_scale": 1.0}, {"components": 2}, {"batch_size": 50}],
    ids=lambda settings: next(iter(settings)),
)
def test_chains_are_not_tried_where_something_else_was_asked_for(settings):
    model = LIVIRegressor(**({"random_state": 0, "steps": 20, "num_samples": 8} | settings)).fit(*stepped(100))
    assert "network" not in {trial.model.noise for trial in model.trials_}


def test_varying_noise_is_not_taken_for_falling_sooner():
    X, y = make_friedman1(300, noise=1.0, random_state=0)
    model = LIVIRegressor(steps=100, target_scale="plain", num_samples=30, random_state=0).fit(X, y)
    assert model.model_ == Model("plain", "constant")


def test_a_noise_starts_where_a_linear_model_leaves_it():
    random = np.random.default_rng(0)
    X, counts = random.normal(size=(500, 3)), random.integers(1, 4, size=500)
    y = X @ [0.5, 0.5, 0.0] + 0.7 * random.normal(size=500)
    design = np.repeat(np.column_stack([np.ones(500), X]), counts, axis=0)
    _, misfit, _, _ = np.linalg.lstsq(design, np.repeat(y, counts))
    expected = np.sqrt(misfit[0] / (counts.sum() - 4))
    assert first_noise(X, y, counts) == pytest.approx(expected, rel=1e-3)
    assert first_noise(np.tile(X, (5, 1)), np.tile(y, 5), np.ones(2500)) == 1.0  # a MAP estimate finds it
    assert first_noise(random.normal(size=(20, 100)), random.normal(size=20), np.ones(20)) <= 1.0


def test_trials_grow_with_the_table_up_to_a_limit():
    for rows, fitted, scored in ((100, 70, 30), (1000, 420, 180), (5000, 700, 300), (10**6, 1400, 600)):
        found = model_trial_rows(rows, 0)
        assert tuple(map(len, found)) == (fitted, scored)
        assert not set(found[0]) & set(found[1])


def test_few_rows_are_not_tried_on():
    X, y = skewed(MIN_TABLE_ROWS - 1)
    model = LIVIRegressor(**SHORT | {"steps": 5}).fit(X, y)
    assert (model.model_, model.trials_) == (Model("plain", "constant"), [])


def test_inputs_far_out_are_drawn_in_and_keep_their_order():
    scaling = Scaling(np.zeros(1), np.ones(1))
    values = np.array([[-1e6], [-6.0], [-5.0], [0.3], [5.0], [6.0], [1e6]])
    found = scaling.inputs(values)[:, 0]
    assert (np.diff(found) > 0).all()
    np.testing.assert_array_equal(found[2:5], values[2:5, 0])
    assert np.abs(found).max() < 20
