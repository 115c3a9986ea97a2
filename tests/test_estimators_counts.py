"""Counts as targets of an estimator: offered where the targets are counts, chosen by held-out score, saved, judged."""

import numpy as np
import pytest
import torch
from scipy.stats import norm, poisson
from support.small_tables import silent

from livi.model.likelihoods import Poisson
from livi.posterior.prediction import DrawnPrediction
from livi.tables.estimators import LIVIRegressor, load
from livi.tables.estimators.model_choice import chosen
from livi.tables.estimators.target_models import MODELS, Model, candidates, look_counted
from livi.tables.fitting import fit_table
from livi.tables.options import FitOptions
from livi.tables.reading import Table

SHORT = {"hidden": (4,), "steps": 80, "num_samples": 32, "random_state": 0}
POISSON = {"target_scale": "count", "noise": "poisson"}


def visits(rows, seed=0, spread=None):
    """Counts whose mean is exp of a line: Poisson, or with a gamma variable of this shape in their rate."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    mean = np.exp(0.5 + X[:, 0])
    return X, rng.poisson(mean if spread is None else mean * rng.gamma(spread, 1.0 / spread, rows)).astype(float), mean


def test_counts_are_tried_where_targets_look_counted():
    assert [model.noise for model in candidates("auto", "auto", np.array([0.0, 3.0, 1.0]))] == [
        "constant",
        "poisson",
        "varying",
        "negative-binomial",
    ]
    assert candidates("auto", "auto", np.array([1.0, 2.0])) == list(MODELS)
    assert candidates("auto", "constant", np.array([0.0, 2.0])) == [Model("plain", "constant")]
    assert candidates("count", "auto", np.array([300.0])) == [Model("count", "poisson"), MODELS[-1]]
    assert not look_counted(np.array([0.0, 0.5]))
    assert not look_counted(np.array([-1.0, 2.0]))
    assert not look_counted(np.array([18_000.0, 326.0, 4_000.0]))  # prices


def test_a_count_model_is_chosen_by_the_probability_of_held_out_counts():
    X, y, _ = visits(300)
    model = LIVIRegressor(**SHORT).fit(X, y)
    assert model.model_.target_scale == "count"
    scores = {trial.model: trial.log_score for trial in model.trials_}
    assert scores[model.model_] > scores[Model("plain", "constant")] + 0.1


def test_the_mean_is_found_and_answers_are_counts(tmp_path):
    X, y, mean = visits(300)
    model = LIVIRegressor(**SHORT, **POISSON).fit(X, y)
    assert np.corrcoef(model.predict(X), mean)[0, 1] > 0.95
    ends = model.predict_interval(X)
    assert (ends == np.round(ends)).all()
    assert (ends >= 0).all()
    far = model.predict(np.array([[40.0, 0.0]]))
    assert far[0] <= y.max() * np.sqrt(1.0 + y.max() / y.mean()) * 1.01  # not exp(40)
    model.save(tmp_path / "counts.livi")
    again = load(tmp_path / "counts.livi")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_interval(X), ends)


def test_other_models_give_a_count_the_mass_around_it():
    X, y, _ = visits(60)
    model = LIVIRegressor(**SHORT, target_scale="plain", noise="constant").fit(X, y)
    prediction = model.predictive(X)
    means, stds = prediction.means.numpy(), prediction.stds.numpy()
    expected = np.log((norm.cdf(y + 0.5, means, stds) - norm.cdf(y - 0.5, means, stds)).mean(0))
    np.testing.assert_allclose(model.log_mass(X, y), expected, rtol=1e-9)


def test_what_is_no_count_and_noises_that_do_not_suit_are_refused():
    X, y, _ = visits(30)
    with pytest.raises(ValueError, match=r"expected counts 0, 1, 2, \.\.\., got other numbers"):
        LIVIRegressor(**SHORT, target_scale="count").fit(X, y + 0.5)
    with pytest.raises(ValueError, match="noise: expected one that suits target_scale='plain', got 'poisson'"):
        LIVIRegressor(**SHORT, target_scale="plain", noise="poisson").fit(X, y)


def test_a_table_of_counts_says_what_was_tried_and_is_judged_by_randomised_pit():
    X, y, _ = visits(240, spread=2.0)
    table = Table("visits.csv", {"a": X[:, 0], "b": X[:, 1], "visits": y}, np.arange(2, 242))
    options = FitOptions(steps=80, hidden=(4,), diagnose=False, validation=0.4, task="regression")
    model = fit_table(table, "visits", options, silent)
    assert model.estimator.model_.target_scale == "count"
    assert "the target as a count with" in model.facts["Target"]
    assert "count poisson" in model.facts["Target"]
    rows = model.validation.rows
    assert rows.counts
    inside = (rows.lower <= rows.target) & (rows.target <= rows.upper)
    assert (rows.inside.mean(1) <= inside.mean(1)).all()  # intervals that end in counts hold more than their level
    assert 0.8 < model.validation.coverage[2].share < 0.98
    assert model.validation.metrics[-2].key == "crps"
    frame = model.predict(table, silent)
    assert (frame["p05"] == frame["p05"].round()).all()


def test_a_target_that_a_model_rules_out_does_not_hide_that_another_is_better():
    rng = np.random.default_rng(0)
    good = rng.normal(-2.0, 0.1, 100)
    poor = good - 0.5 + rng.normal(0.0, 0.1, 100)
    poor[7] = -690.0
    scores = {Model("plain", "constant"): poor, Model("count", "poisson"): good}
    best, _ = chosen(list(scores), scores.__getitem__)
    assert best == Model("count", "poisson")
    equal = good + rng.normal(-0.01, 0.3, 100)
    best, _ = chosen(list(scores), lambda model: equal if model.target_scale == "plain" else good)
    assert best == Model("plain", "constant")


def test_the_pit_of_counts_draws_their_targets_once():
    class Counting(Poisson):
        drawn = 0

        def sample(self, outputs, rng=None):
            self.drawn += 1
            return super().sample(outputs, rng)

    likelihood, log_means = Counting(), torch.zeros(5, 3)
    prediction = DrawnPrediction(log_means, likelihood)
    prediction.cdf([0, 1, 2])
    once = likelihood.drawn
    for ask in (prediction.pit, lambda counts: prediction.log_mass([-1, 0, 1], counts)):
        likelihood.drawn = 0
        ask([0, 1, 2])
        assert likelihood.drawn == once


def test_the_crps_of_counts_is_that_of_their_distribution():
    log_means, targets = torch.tensor([[[0.5], [2.0]]], dtype=torch.float64), torch.tensor([3.0, 5.0])
    found = DrawnPrediction(log_means, Poisson(), seed=1).crps(targets)
    places = np.arange(60)
    for value, log_mean, target in zip(found, log_means[0, :, 0], targets, strict=True):
        below = poisson.cdf(places, float(log_mean.exp()))
        exact = ((below - (places >= float(target))) ** 2).sum()  # a step of one for each count
        assert float(value) == pytest.approx(exact, rel=0.1)  # by 2,000 draws


def test_blocks_of_rows_are_randomised_apart():
    log_means, targets = torch.full((4, 6, 1), 0.5), torch.tensor([0.0, 1.0, 2.0, 3.0, 1.0, 0.0])[:, None]
    whole = DrawnPrediction(log_means, Poisson(), seed=1).pit(targets)
    assert torch.equal(whole, DrawnPrediction(log_means, Poisson(), seed=1).pit(targets))
    low, high = (DrawnPrediction(log_means[:, :3], Poisson(), seed=1).pit(part) for part in (targets[:3], targets[3:]))
    parts = torch.cat([low, high])
    cdf = [DrawnPrediction(log_means, Poisson(), seed=1).cdf(targets - back) for back in (1, 0)]
    shares = ((parts - cdf[0]) / (cdf[1] - cdf[0])).flatten()
    assert len(shares.unique()) == 6
