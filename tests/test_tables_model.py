"""A model of a table: what it learns, predicts, saves and says."""

import ast
import inspect
import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from support.small_tables import refuse, silent

import livi
from livi.inference import alarms
from livi.posterior.diagnostics import verdict
from livi.tables import Table, read_table, write_frames
from livi.tables.encoding import encode
from livi.tables.estimators import LIVIRegressor
from livi.tables.fitting import fit_table, split
from livi.tables.formulas import protected_frame
from livi.tables.model import load_model
from livi.tables.options import FitOptions
from livi.tables.values import texts
from livi.tables.wording import in_options


def test_a_model_predicts_the_same_after_its_file(houses, tmp_path):
    model = fit_table(houses, "price", FitOptions(steps=20, hidden=(4,)), refuse)
    model.save(tmp_path / "houses.livi")
    again = load_model(tmp_path / "houses.livi")
    pd.testing.assert_frame_equal(again.predict(houses, refuse), model.predict(houses, refuse))
    assert again.schema == model.schema
    others = replace(houses, columns=dict(houses.columns) | {"price": houses.columns["price"] + 1.0})
    assert str(again.evaluate(others, refuse)) == str(model.evaluate(others, refuse))
    content = again.content(again.evaluate(others, refuse))
    assert content.facts == model.facts
    assert content.unsure[0].values["town"] in ("u", "v")
    uncertain = content.rows.epistemic_std
    assert uncertain[content.unsure[0].position] == uncertain.max()


def test_rows_are_predicted_by_themselves(houses):
    model = fit_table(houses, "price", FitOptions(steps=5, hidden=(2,), validation=0.0), refuse)
    whole, part = model.predict(houses, refuse), model.predict(houses.rows(np.array([7, 3])), refuse)
    scale = whole["std_total"].max()  # quantiles are exact to 1e-7 of it
    np.testing.assert_allclose(part.to_numpy(), whole.iloc[[7, 3]].to_numpy(), rtol=1e-9, atol=3e-7 * scale)


def test_held_out_rows_do_not_touch_the_fit(houses):
    options = FitOptions(steps=5, hidden=(2,), seed=3)
    held = split(houses, "price", "regression", 0.2, 3)[1]
    columns = {name: values.copy() for name, values in houses.columns.items()}
    columns["area"][held] = 1e6
    columns["price"][held] *= 3.0
    changed = Table("houses", columns, houses.lines)
    one, other = (fit_table(found, "price", options, silent) for found in (houses, changed))
    pd.testing.assert_frame_equal(one.predict(houses, silent), other.predict(houses, silent))
    assert other.validation.metrics[0].value > one.validation.metrics[0].value


def test_predictions_are_rounded_to_digits_of_their_spread(houses):
    """Targets far from zero, such as times in seconds, must not lose what tells them apart."""
    far = Table("houses", {**houses.columns, "price": 1e9 + 1e-7 * houses.columns["price"]}, houses.lines)
    model = fit_table(far, "price", FitOptions(steps=20, hidden=(4,), diagnose=False), refuse)
    found = model.predict(far, refuse)
    exact = model.estimator.predict(encode(far, model.schema, refuse))
    np.testing.assert_allclose(found["mean"], exact, rtol=0, atol=1e-6 * found["std_total"].min() + 2e-7)
    assert (found["p05"] < found["p95"]).all()


def test_predictions_have_the_documented_columns(houses):
    for interval, more in (("posterior", []), ("conformal", ["lower", "upper"])):
        model = fit_table(houses, "price", FitOptions(steps=5, hidden=(2,), interval=interval), refuse)
        frame = model.predict(houses, refuse)
        assert list(frame) == ["row", "mean", "std_epistemic", "std_total", "p05", "p50", "p95", *more]
        assert (frame["p05"] < frame["p50"]).all()
        assert (frame["p50"] < frame["p95"]).all()
        assert (frame["std_epistemic"] < frame["std_total"]).all()
    for interval, more in (("posterior", []), ("conformal", ["set"])):
        model = fit_table(houses, "town", FitOptions(steps=5, hidden=(2,), interval=interval), refuse)
        frame = model.predict(houses, refuse, keep=True)
        assert list(frame) == [
            "row",
            "class",
            "p_u",
            "p_v",
            "entropy",
            "mutual_information",
            *more,
            "area",
            "town",
            "price",
        ]
        np.testing.assert_allclose(frame["p_u"] + frame["p_v"], 1.0)
        assert (frame["class"] == np.where(frame["p_u"] >= 0.5, "u", "v")).all()


def test_conformal_levels_without_enough_rows_are_not_reported(houses):
    options = FitOptions(steps=2, hidden=(2,), interval="conformal")  # 15 rows to calibrate on: 90 %, but not 95 %
    for target in ("price", "town"):
        evaluation = fit_table(houses, target, options, refuse).validation
        assert [line.level for line in evaluation.coverage] == [0.5, 0.8, 0.9]


def test_an_input_column_with_a_taken_name_is_kept_under_another():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"mean": random.normal(size=20), "y": random.normal(size=20)})
    model = fit_table(Table.from_frame(frame), "y", FitOptions(steps=2, hidden=(2,), validation=0.0), silent)
    kept = model.predict(Table.from_frame(frame), silent, keep=True)
    np.testing.assert_array_equal(kept["mean (input)"], frame["mean"])
    assert (kept["mean"] != frame["mean"]).all()


def test_kept_columns_may_have_any_name_and_any_whole_number():
    random = np.random.default_rng(0)
    names = ["self", "mean", "mean (input)"]
    frame = pd.DataFrame({name: random.normal(size=20) for name in (*names, "y")})
    frame["id"] = 2**60 + np.arange(20)  # between which float64 knows no difference
    model = fit_table(Table.from_frame(frame), "y", FitOptions(steps=2, hidden=(2,), validation=0.0), silent)
    kept = model.predict(Table.from_frame(frame), silent, keep=True)
    assert kept["id"].astype("int64").tolist() == frame["id"].tolist()
    for title, name in {"self": "self", "mean (input)": "mean", "mean (input) (input)": "mean (input)"}.items():
        np.testing.assert_array_equal(kept[title], frame[name])
    protected_frame(kept)


def test_what_reading_left_out_is_said_of_new_rows_too(houses, tmp_path):
    model = fit_table(houses, "price", FitOptions(steps=2, hidden=(2,)), silent)
    (tmp_path / "new.csv").write_text("area,town,price,\n100,u,5,1\n90,v,4,2\n")
    new, heard = read_table(tmp_path / "new.csv"), []
    model.predict(new, heard.append)
    model.evaluate(new, heard.append)
    assert sum("column 4 of the file, without a name" in text for text in heard) == 2


def test_kept_columns_come_out_as_they_went_in(houses, tmp_path):
    model = fit_table(houses, "price", FitOptions(steps=2, hidden=(2,)), silent)
    frame = pd.DataFrame(
        {"area": [100.123456789012, 90.0], "town": ["u", None], "code": [2**40 + 1, 5], "when": ["2020-01-01", "NA"]}
    )
    frame.to_parquet(tmp_path / "new.parquet")
    frame.to_csv(tmp_path / "new.csv", index=False)
    for source in ("new.parquet", "new.csv"):
        for name in ("p.csv", "p.parquet"):
            write_frames(tmp_path / name, [model.predict(read_table(tmp_path / source), silent, keep=True)])
        texts = pd.read_csv(tmp_path / "p.csv", dtype=str, keep_default_na=False)
        assert texts[["area", "town", "code", "when"]].to_numpy().tolist() == [
            ["100.123456789012", "u", "1099511627777", "2020-01-01"],
            ["90.0", "", "5", ""],
        ]
        assert pd.read_parquet(tmp_path / "p.parquet")["town"].isna().tolist() == [False, True]


def test_numbers_that_were_taken_for_categories_are_told(houses):
    size = texts([f"{i % 4},5" for i in range(len(houses))])
    said = []
    found = Table("houses", {**houses.columns, "size": size}, houses.lines)
    fit_table(found, "price", FitOptions(steps=5, hidden=(2,), diagnose=False), said.append)
    assert len(said) == 1
    assert "column 'size' was taken for categories, such as '" in said[0]
    assert said[0].endswith(",5'; else write numbers as 1234.5, or pass --decimal comma")


def test_a_fit_without_held_out_rows_says_so_in_its_content(houses):
    content = fit_table(houses, "price", FitOptions(steps=2, hidden=(2,), validation=0.0), silent).content(None)
    assert content.rows is None
    assert "none were held out" in content.headline
    assert content.history
    json.dumps(content.summary(), allow_nan=False)


def test_the_diagnosis_is_made_and_kept(houses, tmp_path):
    for target in ("price", "town"):
        model = fit_table(houses, target, FitOptions(steps=5, hidden=(2,)), silent)
        assert any(finding.topic == "bound" for finding in model.findings)
        model.save(tmp_path / "m.livi")
        assert load_model(tmp_path / "m.livi").findings == model.findings
    assert fit_table(houses, "price", FitOptions(steps=2, hidden=(2,), diagnose=False), silent).findings == ()


@pytest.mark.parametrize("module", [alarms, verdict])
def test_no_advice_names_a_setting_that_the_commands_do_not_have(module):
    """Every sentence in the source of alarms and diagnosis, with {} for what is filled in."""
    nodes = ast.walk(ast.parse(inspect.getsource(module)))
    sentences = [
        "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in getattr(node, "values", [node]))
        for node in nodes
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    ]
    advice = [text for text in sentences if "Recipe." in text and "{}" in text]
    assert advice
    for text in advice:
        assert in_options(text) != text
        assert "Recipe" not in in_options(text)


def test_warnings_of_the_fit_are_said_in_words_of_the_command_line(houses, monkeypatch):
    heard = "Likelihood far below the MAP start: -9.0 against -1.0 nats. Raise Recipe.steps or num_samples."
    monkeypatch.setattr(LIVIRegressor, "fit", warning_first(LIVIRegressor.fit, heard))
    said = []
    model = fit_table(houses, "price", FitOptions(steps=5, hidden=(2,), diagnose=False), said.append)
    assert said == ["Likelihood far below the MAP start: -9.0 against -1.0 nats. Raise --steps."]
    assert model.notes == tuple(said)


def warning_first(fit, text):
    def warned(*arguments, **options):
        warnings.warn(text, livi.FitWarning, stacklevel=2)
        return fit(*arguments, **options)

    return warned


def test_the_facts_show_the_network_that_was_fitted(houses):
    model = fit_table(houses, "price", FitOptions(steps=5, hidden=(3, 2), noise="varying", diagnose=False), silent)
    assert model.facts["Network"] == "3 - 3 - 2 - 1, silu; noise linear in the columns"
    assert model.facts["Model"] == "HeteroscedasticGaussian likelihood, Relevance prior; the last layer integrated out"
    assert "town=" in model.facts["Most relevant"]
    assert " 1.00" in model.facts["Most relevant"]


def test_the_facts_say_that_answers_allow_for_outliers(houses):
    options = FitOptions(steps=40, noise="network", target_scale="plain", diagnose=False)
    model = fit_table(houses, "price", options, silent)
    assert "(one row in 1,000 may be 10 times as far off as the others)" in model.facts["Target"]


def test_the_facts_of_classes_have_no_relevance_that_was_not_learned(houses):
    model = fit_table(houses, "town", FitOptions(steps=5, hidden=(3,), diagnose=False), silent)
    assert "Most relevant" not in model.facts
    assert model.facts["Model"] == "Categorical likelihood, Relevance prior"


@pytest.mark.parametrize("target", ["price", "town"])
def test_a_conformal_model_is_diagnosed_on_the_rows_it_was_fitted_to(houses, target):
    model = fit_table(houses, target, FitOptions(steps=20, hidden=(4,), interval="conformal"), silent)
    assert not [finding for finding in model.findings if "could not be made" in finding.text]
    assert model.facts["Rows"].startswith(("57 fitted, 15 to calibrate, 18", "58 fitted, 15 to calibrate, 17"))


def test_a_diagnosis_that_fails_does_not_cost_the_fit(houses, monkeypatch):
    def failing(*_, **__):
        raise RuntimeError("no eigenvalues")

    monkeypatch.setattr("livi.posterior.posterior.diagnose", failing)
    [finding] = fit_table(houses, "price", FitOptions(steps=2, hidden=(2,)), silent).findings
    assert finding.text == "could not be made: no eigenvalues"
