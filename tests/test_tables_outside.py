"""Rows far outside the range of the fit are predicted, and said to be."""

import numpy as np
import pandas as pd
import pytest
from support.small_tables import refuse, silent, table

from livi.tables import Table
from livi.tables.detection import column_kinds, learn_schema, reach
from livi.tables.encoding import encode, encode_part
from livi.tables.fitting import fit_table
from livi.tables.model import load_model
from livi.tables.options import FitOptions
from livi.tables.schema import Schema
from livi.tables.unseen_values import UnseenValues


def learned(fitted):
    return learn_schema(
        fitted, "y", "regression", column_kinds(fitted, [name for name in fitted.columns if name != "y"])
    )


@pytest.fixture
def fitted():
    days = [f"2024-01-{day:02d}" for day in range(1, 31)]
    return table(x=list(range(30)), when=days, town=["u", "v", "w"] * 10, y=list(range(30)))


def test_one_sentence_counts_the_rows_and_names_columns_and_places(fitted):
    heard = []
    new = table(x=[5, 400, -90, 34], when=["2024-01-05", "2025-01-01", "2024-01-05", "2024-02-02"], town=["u"] * 4)
    encode(new, learned(fitted), heard.append)
    assert heard == [
        "some.csv: 2 rows are far outside the range of the rows fitted to, and predicted by extrapolation: 'x' in rows "
        "3, 4 (beyond -6 to 35), 'when' in row 3 (beyond 2023-12-26 to 2024-02-05)"
    ]


def test_rows_slightly_beyond_the_range_and_gaps_are_predicted_without_a_word(fitted):
    new = table(x=[-5, 34], when=["2023-12-29", "2024-02-03"], town=["u", "v"])
    encode(new, learned(fitted), refuse)
    encode(new, learned(fitted), refuse, strict=True)
    gaps = table(x=[1.0, float("nan"), 2.0] * 10, y=list(range(30)))
    encode(gaps, learned(gaps), refuse)


def test_many_columns_are_one_sentence():
    random = np.random.default_rng(0)
    some = {f"x{place}": random.normal(size=20).tolist() for place in range(6)}
    fitted = table(**some, y=list(range(20)))
    heard = []
    encode(table(**{name: [1000.0] for name in some}), learned(fitted), heard.append)
    assert len(heard) == 1
    assert "1 row is far outside" in heard[0]
    assert heard[0].endswith("and 3 more columns")


def test_parts_are_counted_together(fitted):
    schema, unseen, heard = learned(fitted), UnseenValues(), []
    for value in (100, 200):
        encode_part(table(x=[value, 1], when=["2024-01-05"] * 2, town=["u", "u"]), schema, unseen)
    unseen.tell(heard.append)
    assert "2 rows are far outside" in heard[0]


@pytest.mark.parametrize(
    "values", [[3.0, 3.0], [0.0, 0.0], [0.0, 5e-324], [-1e100, 1e100], [1e15, 1e15 + 1.0], [-7.0, -7.0]]
)
def test_a_reach_holds_its_values_with_a_margin_and_does_not_tell_them(values):
    low, high = reach(np.array(values))
    assert low < values[0] <= values[1] < high
    assert np.isfinite([low, high]).all()


def test_the_least_and_the_largest_value_are_not_told_by_the_reach():
    assert reach(np.array([21.3, 198.6])) == reach(np.array([22.9, 199.2]))


def test_a_model_knows_its_reach_after_its_file_and_files_of_old_have_none(houses, tmp_path, fitted):
    fit_table(houses, "price", FitOptions(steps=2, hidden=(2,)), silent).save(tmp_path / "houses.livi", rowless=True)
    new = Table.from_frame(pd.DataFrame({"area": [100.0, 5000.0], "town": ["u", "v"], "price": [1e5, 1e5]}), "new")
    model = load_model(tmp_path / "houses.livi")
    for answer in (model.predict, model.evaluate):
        heard = []
        answer(new, heard.append)
        assert [text for text in heard if text.startswith("new: 1 row is far outside")]
    stored = learned(fitted).to_json()
    for column in stored["columns"]:
        del column["reach"]
    assert Schema.from_json(stored).columns[0].reach is None


@pytest.mark.parametrize("wrong", [[2.0, 1.0], [0.0, float("nan")], [1.0], "x"])
def test_a_reach_that_makes_no_sense_is_refused(fitted, wrong):
    stored = learned(fitted).to_json()
    stored["columns"][0]["reach"] = wrong
    with pytest.raises(ValueError, match="schema"):
        Schema.from_json(stored)
