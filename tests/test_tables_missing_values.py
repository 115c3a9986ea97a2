"""Numbers that are missing though never in the fit: answers for all that they may be."""

import numpy as np
import pytest
import torch

from livi.tables.encoding import encode, with_medians
from livi.tables.estimators import LIVIRegressor, load
from livi.tables.estimators.missing_values import NUM_VALUES, filled, usual_values
from livi.tables.fitting import FitOptions, fit_table
from livi.tables.model import load_model
from livi.tables.reading import Table


def made(seed, gaps=(), count=300):
    rng = np.random.default_rng(seed)
    columns = dict(zip("ab", rng.standard_normal((2, count)), strict=True))
    columns["y"] = 3.0 * columns["a"] + columns["b"] + 0.1 * rng.standard_normal(count)
    columns["a"][list(gaps)] = np.nan
    return Table("made", columns, np.arange(count) + 2)


def classes(table):
    columns = dict(table.columns)
    sides = columns.pop("y") > 0
    return Table(table.name, columns | {"side": np.where(sides, "up", "down").astype(object)}, table.lines)


@pytest.fixture(scope="module")
def model():
    options = FitOptions(steps=300, noise="constant", diagnose=False)
    return fit_table(made(0), "y", options, lambda _: None)


def test_answers_are_as_wide_as_not_knowing_makes_them(model):
    gaps = range(150)
    new, said = made(1, gaps), []
    found = model.predict(new, said.append)
    inside = (found.p05 <= new.columns["y"]) & (new.columns["y"] <= found.p95)
    assert 0.83 <= inside[:150].mean() <= 0.97
    width = (found.p95 - found.p05).to_numpy()
    assert width[:150].mean() == pytest.approx(2 * 1.645 * np.hypot(3.0, 0.1), rel=0.2)
    whole = model.predict(made(1), said.append)
    for column in ("mean", "p05", "p95"):  # rows beside them answer as ever
        np.testing.assert_array_equal(found[column][150:], whole[column][150:])
    assert said == [
        "made, column 'a', rows 2, 3, 4 and 147 more: missing, but never in the fit; predictions average over the "
        "values that the fit has seen there"
    ]


def test_a_row_with_a_gap_answers_alike_whatever_is_beside_it_and_from_a_file(model, tmp_path):
    new = made(1, range(40))
    model.save(tmp_path / "m.livi")
    loaded, whole = load_model(tmp_path / "m.livi"), model.predict(new, lambda _: None)
    for rows in (slice(3, 5), slice(30, 60)):
        found = loaded.predict(new.rows(rows), lambda _: None)
        np.testing.assert_allclose(found["mean"], whole["mean"][rows], atol=1e-7)
        np.testing.assert_allclose(found["p95"], whole["p95"][rows], atol=1e-6)


def test_an_evaluation_scores_them_and_compares_baselines_by_medians(model):
    found = model.evaluate(made(1, range(150)), lambda _: None, explain=True)
    scores = {metric.key: metric for metric in found.metrics}
    assert all(np.isfinite(metric.value) for metric in found.metrics)
    assert scores["rmse"].value > 1.5
    coverage = {round(level.level, 2): level for level in found.coverage}
    assert 0.83 <= coverage[0.9].share <= 0.97


def test_a_model_of_old_answers_by_medians(model, tmp_path):
    model.save(tmp_path / "m.livi")
    old, said = load_model(tmp_path / "m.livi"), []
    old.estimator.usual_ = None
    filled_in = made(1, range(5))
    filled_in.columns["a"][:5] = model.schema.columns[0].median
    found = old.predict(made(1, range(5)), said.append)
    np.testing.assert_array_equal(found["mean"], old.predict(filled_in, said.append)["mean"])
    assert "the median" in said[0]


def test_classes_are_less_sure(tmp_path):
    options = FitOptions(steps=200, diagnose=False)
    model = fit_table(classes(made(0)), "side", options, lambda _: None)
    known = model.predict(classes(made(1)), lambda _: None)
    found = model.predict(classes(made(1, range(100))), lambda _: None)
    assert found["entropy"][:100].mean() > known["entropy"][:100].mean() + 0.2
    np.testing.assert_array_equal(found["entropy"][100:], known["entropy"][100:])


def test_values_are_as_frequent_as_in_the_fit():
    rng = np.random.default_rng(0)
    columns = np.stack([np.repeat([0.0, 1.0], [300, 100]), rng.exponential(size=400)], 1)
    found = usual_values(columns, np.ones(400), 0)
    assert found.shape == (NUM_VALUES, 2)
    assert found[:, 0].mean() == 0.25
    assert found[:, 1].mean() == pytest.approx(columns[:, 1].mean(), rel=0.1)
    heavy = usual_values(columns, np.repeat([1.0, 9.0], [300, 100]), 0)
    assert heavy[:, 0].mean() == 0.75
    rows = np.array([[np.nan, 1.0], [2.0, np.nan], [3.0, 4.0]])
    whole = filled(rows, found)
    assert whole.shape == (NUM_VALUES, 3, 2)
    np.testing.assert_array_equal(whole[:, 0, 0], found[:, 0])
    np.testing.assert_array_equal(whole[:, 2], np.tile([3.0, 4.0], (NUM_VALUES, 1)))


@pytest.mark.parametrize("count", [2, 16, 17, 33, 400])
def test_a_file_without_rows_holds_no_number_of_theirs(count, tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.uniform(0.0, 1e6, (count, 2)).round(2)
    estimator = LIVIRegressor(steps=2, hidden=(2,), noise="constant", target_scale="plain", random_state=0)
    estimator.fit(rows, rows[:, 0] / 1e6).save(tmp_path / "m.livi", rowless=True)
    assert not np.isin(load(tmp_path / "m.livi").usual_, rows).any()
    written = (tmp_path / "m.livi").read_bytes()
    assert not any(number.tobytes() in written for number in rows.ravel())


@pytest.mark.parametrize("scale", [1e-290, 1e-3, 1.0, 1e9, 1e305])
def test_values_keep_three_digits_of_how_far_they_are_apart(scale):
    rng = np.random.default_rng(0)
    column = scale * (8.0 + rng.standard_normal(999))
    column[:5] *= 100.0  # a code, which takes no digits from the others
    found = np.sort(usual_values(column[:, None], np.ones(999), 0)[:, 0])
    exact = np.quantile(column, (np.arange(NUM_VALUES) + 0.5) / NUM_VALUES)
    np.testing.assert_allclose(found[:-1], exact[:-1], rtol=0.0, atol=0.01 * scale)
    assert (found != exact).all()


def test_few_different_values_stay_as_they_are():
    columns = np.stack([np.repeat([0.0, 1.0], [150, 50]), np.full(200, 0.123456789), np.arange(200) % 5 + 1990.0], 1)
    found = usual_values(columns, np.ones(200), 0)
    for column, values in zip(columns.T, found.T, strict=True):
        assert set(values) <= set(column)


def test_networks_take_the_values_in_turn(model):
    estimator = model.estimator
    row = np.array([[np.nan, 0.3]])
    layout, usual = estimator.posterior_.layout, estimator.usual_
    asked = estimator._outputs(layout, estimator._inputs(layout, row), 0, 40)
    for network in (0, 7, 15, 16, 39):
        alone = np.where(np.isnan(row), usual[network % NUM_VALUES], row)
        expected = estimator._outputs(layout, estimator._inputs(layout, alone), 0, 40)[network]
        torch.testing.assert_close(asked[network], expected)
    more = estimator._outputs(layout, estimator._inputs(layout, row), 40, 64)
    torch.testing.assert_close(more, estimator._outputs(layout, estimator._inputs(layout, row), 0, 64)[40:])


def test_medians_take_the_place_of_missing_values(model):
    features = encode(made(1, [0]), model.schema, lambda _: None, missing_as_nan=True)
    assert np.isnan(features[0]).tolist() == [True, False]
    whole = with_medians(features, model.schema)
    assert whole[0, 0] == model.schema.columns[0].median
    np.testing.assert_array_equal(whole[1:], features[1:])
