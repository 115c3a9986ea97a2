"""Files from `livi predict --keep` are read again as what they were made from."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from support.small_tables import refuse, silent

from livi.tables import Table, read_table, write_frames
from livi.tables.fitting import fit_table
from livi.tables.kept_columns import kept_titles, without_predictions
from livi.tables.options import FitOptions

BRIEF = FitOptions(steps=20, hidden=(4,), validation=0.0)


def scores(model, table, say=silent):
    return {metric.key: metric.value for metric in model.evaluate(table, say).metrics}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_of_taken_names_are_evaluated_as_inputs(tmp_path, suffix):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({name: random.normal(size=40) for name in ("mean", "mean (input)", "row", "x")})
    frame["p50"] = frame["mean"] - 2.0 * frame["mean (input)"] + frame["row"] + 0.1 * random.normal(size=40)
    model = fit_table(Table.from_frame(frame), "p50", BRIEF, silent)
    new = Table.from_frame(frame + 0.01)
    write_frames(tmp_path / f"kept{suffix}", [model.predict(new, silent, keep=True)])
    kept, heard = read_table(tmp_path / f"kept{suffix}"), []
    assert scores(model, kept, heard.append) == pytest.approx(scores(model, new))
    (text,) = [text for text in heard if "predictions by livi" in text]
    assert "'p50 (input)' is read as 'p50'" in text
    assert "'mean (input) (input)' is read as 'mean (input)'" in text
    again = model.predict(kept, silent, keep=True)
    first = model.predict(new, silent, keep=True)
    assert list(again) == list(first)
    np.testing.assert_allclose(again.drop(columns="row").astype(float), first.drop(columns="row"), rtol=1e-6)


def test_columns_that_gave_way_to_none_keep_their_names(houses):
    model = fit_table(houses, "price", FitOptions(steps=2, hidden=(2,)), silent)
    predicted = list(model.predict(houses, silent))
    frame = pd.DataFrame({"a (input)": ["1"], "a": ["2"], "price": ["3"], **{name: ["0"] for name in predicted}})
    schema = replace(model.schema, columns=tuple(replace(model.schema.columns[0], name=n) for n in ("a (input)", "a")))
    table = without_predictions(Table.from_frame(frame), predicted, schema, silent)
    assert [list(table.columns[name]) for name in ("a (input)", "a")] == [["1"], ["2"]]


def test_a_target_called_class_is_not_taken_from_the_predictions(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"x": random.normal(size=40), "class": random.choice(["a", "b"], 40)})
    model = fit_table(Table.from_frame(frame), "class", BRIEF, silent)
    frame["x"] += 0.01
    new = Table.from_frame(frame)
    write_frames(tmp_path / "kept.csv", [model.predict(new, silent, keep=True)])
    assert scores(model, read_table(tmp_path / "kept.csv")) == pytest.approx(scores(model, new))
    write_frames(tmp_path / "bare.csv", [model.predict(Table.from_frame(frame[["x"]]), silent, keep=True)])
    with pytest.raises(ValueError, match="expected the target 'class' among the columns, got 'x'"):
        model.evaluate(read_table(tmp_path / "bare.csv"), silent)


def test_a_name_that_is_taken_is_said(houses):
    model = fit_table(houses, "price", FitOptions(steps=2, hidden=(2,)), silent)
    model.predict(houses, refuse, keep=True)
    renamed = Table.from_frame(pd.DataFrame({**houses.columns, "p05": 1.0}), "new")
    heard = []
    model.predict(renamed, heard.append, keep=True)
    assert "new: column 'p05' is written as 'p05 (input)', for 'p05' is a column of the predictions" in heard


def test_a_model_of_predictions_reads_them(houses):
    first = fit_table(houses, "price", FitOptions(steps=2, hidden=(2,)), silent)
    frame = first.predict(houses, silent, keep=True)
    second = fit_table(Table.from_frame(frame, "stacked"), "price", FitOptions(steps=2, hidden=(2,)), silent)
    assert "mean" in {column.name for column in second.schema.columns}
    new = frame.assign(price=frame["price"] + 1.0)
    second.evaluate(Table.from_frame(new, "new"), refuse)
    assert kept_titles(Table.from_frame(new), ())["mean"] == "mean"
