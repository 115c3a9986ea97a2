"""Tables: reading, detection, encoding, and the words about calibration."""

import ast
import inspect
import json
import math
import subprocess
import sys
import warnings
from datetime import datetime

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from livi.inference import alarms
from livi.posterior.diagnostics import verdict
from livi.posterior.prediction import RegressionPrediction
from livi.tables import Table, TableError, check_output, frame_bytes, read_table, write_frame
from livi.tables.content import ClassificationRows, RegressionRows
from livi.tables.detection import choose_task, class_names, column_kinds, counts_rows, learn_schema
from livi.tables.encoding import encode, target_classes, target_numbers
from livi.tables.estimators import LIVIRegressor
from livi.tables.evaluation import Evaluation, binomial_band, score_classification, score_regression, uniformity
from livi.tables.fitting import FitOptions, fit_table, split
from livi.tables.model import load_model
from livi.tables.predicting import regression_rows as predicted_rows
from livi.tables.schema import Column, Dropped, Schema
from livi.tables.values import clean, day, label, number, texts
from livi.tables.wording import in_options


def table(**columns):
    """A table from lists of text or numbers; the first row is on line 2."""
    cells = {
        name: texts(values) if any(isinstance(value, str) for value in values) else np.array(values, float)
        for name, values in columns.items()
    }
    return Table("some.csv", cells, np.arange(2, 2 + len(next(iter(cells.values())))))


def silent(_):
    pass


def refuse(text):
    raise AssertionError(f"said: {text}")


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "  ", "NA", "n/a", "NaN", "nan", "NULL", "null", "?", "#N/A", "<NA>"])
def test_these_words_mean_missing(text):
    assert clean(text) == ""


@pytest.mark.parametrize("text", ["none", "None", "-", "0", "missing", "N"])
def test_these_words_do_not_mean_missing(text):
    assert clean(f" {text} ") == text


@pytest.mark.parametrize(
    "text", ["1", "+1", "-1.5", ".5", "5.", "1e3", "1E-3", "007", "123456789012345678901234567890"]
)
def test_numbers_are_those_that_float_reads(text):
    assert number(text) == float(text)


@pytest.mark.parametrize(
    "text", ["1,5", "1_000", "0x10", "1 000", "5%", "$5", "٣", "one", "1e", "--1", "1.2.3", "True"]
)
def test_what_only_looks_like_a_number_is_none(text):
    assert number(text) is None


@pytest.mark.parametrize("text", ["inf", "-Infinity", "1e400", "-1e400"])
def test_infinite_numbers_are_recognised_as_such(text):
    assert math.isinf(number(text))


@pytest.mark.parametrize(
    "text", ["1970-01-01", "2024-02-29", "1969-12-31T23:59:59.5", "2024-01-01 06:00", "0001-01-01"]
)
def test_days_agree_with_datetime(text):
    assert day(text) == (datetime.fromisoformat(text) - datetime(1970, 1, 1)).total_seconds() / 86400


@pytest.mark.parametrize(
    "text", ["2024-02-30", "2024-1-1", "01.02.2024", "20240101", "2024-01-01T25:00", "2024-01-01x"]
)
def test_what_is_no_iso_date_is_none(text):
    assert day(text) is None


def test_a_time_zone_is_taken_off():
    assert day("2024-01-01T00:00+02:00") == day("2023-12-31T22:00")
    assert day("0001-01-01T00:00+02:00") is None  # before the first day there is


def test_whole_numbers_are_one_category_however_they_are_written():
    assert {label("3"), label("3.0"), label("3.00"), label(3.0)} == {"3"}
    assert label(2.5) == label("2.5") == "2.5"
    assert label("03") != label("3")


# --- reading --------------------------------------------------------------------------------------


def read(tmp_path, data, name="some.csv", **options):
    (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_table(tmp_path / name, **options)


def cells(read):
    return {name: values.tolist() for name, values in read.columns.items()}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_delimiters_line_ends_and_byte_order_marks_are_found(tmp_path, delimiter, newline, mark):
    lines = [["a", "b c"], ["1", '"x,;\ty"'], ["", "é"]]
    found = read(tmp_path, mark + newline.join(delimiter.join(line) for line in lines).encode())
    assert cells(found) == {"a": ["1", ""], "b c": ["x,;\ty", "é"]}
    assert found.lines.tolist() == [2, 3]


def test_another_delimiter_can_be_set(tmp_path):
    assert cells(read(tmp_path, "a|b\n1|2\n", delimiter="|")) == {"a": ["1"], "b": ["2"]}


def test_decimal_commas_are_read_where_the_user_says_so(tmp_path):
    path = tmp_path / "euro.csv"
    path.write_text("a;b;c\n1,5;1.234,5;rot, gelb\n-,5;12.345.678;2024-02-29\n3e2;NA;1.2.3\n", encoding="utf-8")
    found = read_table(path, decimal="comma").columns
    assert [number(text) for text in found["a"]] == [1.5, -0.5, 300.0]
    assert list(found["b"]) == ["1234.5", "12345678", ""]
    assert list(found["c"]) == ["rot, gelb", "2024-02-29", "1.2.3"]
    assert list(read_table(path).columns["a"]) == ["1,5", "-,5", "3e2"]
    path.write_text("a;b\n1,5;2\n2.5;3\n", encoding="utf-8")
    with pytest.raises(
        TableError, match=r"row 3, column 'a': expected a decimal comma, got '2.5'; leave out --decimal"
    ):
        read_table(path, decimal="comma")


def test_lines_are_those_an_editor_shows(tmp_path):
    found = read(tmp_path, '\na,b\n"1\n1",2\n\n3,4\n')
    assert cells(found) == {"a": ["1\n1", "3"], "b": ["2", "4"]}
    assert found.lines.tolist() == [3, 6]


def test_columns_without_a_name_are_left_out_with_a_note(tmp_path):
    found = read(tmp_path, ",a,\n0,5,\n1,6,\n")
    assert cells(found) == {"a": ["5", "6"]}
    assert found.notes == ("left out: column 1, 3 of the file, without a name",)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "expected a header and rows, got an empty file"),
        (b" \n\n", "expected a header and rows, got an empty file"),
        (b"a,b\n", "expected rows below the header, got none"),
        (b"a,b,a\n1,2,3\n", "got 'a' twice"),
        (b",\n1,2\n", "expected a header with column names, got none"),
        (b"a,b\n1,2\n1,2,3\n", "row 3: expected 2 values as in the header, got 3"),
        (b'a,b\n"1\n",2\n1\n', "row 4: expected 2 values as in the header, got 1"),
        (b'a,b\n1,2\n1,"2\n', "row 3: expected quoted CSV fields that end"),
        (b"a,b\n1,\xe9\n", "row 2: expected UTF-8 text, got the byte 0xe9"),
        (b"a,b\n1,2\n3,\x00\n", "row 3: expected text, got a zero byte"),
        ("a,b\n".encode("utf-16"), "got UTF-16 text"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"PK\x03\x04", "spreadsheet"),
        (b"PAR1 and no more", "expected a Parquet file, got a damaged one"),
        (b"a\n" + b"x" * 200_000, "row 2"),
    ],
)
def test_a_bad_file_is_refused_with_the_row(tmp_path, data, complaint):
    with pytest.raises(TableError) as caught:
        read(tmp_path, data)
    assert complaint in str(caught.value)
    assert "some.csv" in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(TableError, match="No such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(TableError, match="got a folder"):
        read_table(tmp_path)
    with pytest.raises(TableError, match="expected a Parquet file, got something else"):
        read(tmp_path, "a,b\n1,2\n", "some.parquet")
    with pytest.raises(TableError, match="delimiter"):
        read(tmp_path, "a,b\n1,2\n", delimiter=",,")


def test_parquet_and_csv_of_one_frame_read_alike(tmp_path):
    frame = pd.DataFrame(
        {
            "number": [1.5, None, -3.0],
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "text": ["a", None, "NA"],
            "flag": [True, False, True],
            "category": pd.Categorical(["u", "v", None]),
            "when": pd.to_datetime(["2020-01-01", None, "2020-01-03"]),
        }
    )
    frame.to_csv(tmp_path / "some.csv", index=False)
    frame.to_parquet(tmp_path / "other.pq")
    one, other = read_table(tmp_path / "some.csv"), read_table(tmp_path / "other.pq")
    kinds = column_kinds(one, list(one.columns))
    assert kinds == column_kinds(other, list(other.columns))
    assert kinds["when"] == "date"
    schemas = [learn_schema(found, "number", "regression", kinds) for found in (one, other)]
    assert schemas[0] == schemas[1]
    np.testing.assert_array_equal(*(encode(found, schemas[0], silent) for found in (one, other)))


def test_the_index_and_lists_of_a_parquet_file_are_left_out(tmp_path):
    pd.DataFrame({"a": [1, 2], "list": [[1], [2]]}, index=["x", "y"]).to_parquet(tmp_path / "some.parquet")
    found = read_table(tmp_path / "some.parquet")
    assert cells(found) == {"a": [1.0, 2.0]}
    assert found.notes == ("left out: column 'list', which holds ndarray, neither numbers nor text",)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path):
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "some.parquet")
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from livi.tables import read_table\n"
        f"try: read_table({str(tmp_path / 'some.parquet')!r})\n"
        "except ImportError as error: print(error)"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert 'pip install "livi[parquet]"' in process.stdout


# --- detection ------------------------------------------------------------------------------------


def schema_of(found, target="y", task="regression", categorical=()):
    names = [name for name in found.columns if name != target]
    return learn_schema(found, target, task, column_kinds(found, names, categorical), categorical)


def test_kinds_are_found():
    found = table(
        number=["1", "2.5", ""],
        date=["2020-01-01", "", "2020-02-01"],
        text=["a", "b", "1"],
        flag=["True", "False", "True"],
        code=[1.0, 2.0, 1.0],
        mixed=["2020-01-01", "5", ""],
    )
    assert column_kinds(found, list(found.columns), ["code"]) == {
        "number": "numeric",
        "date": "date",
        "text": "categorical",
        "flag": "categorical",
        "code": "categorical",
        "mixed": "categorical",
    }


def test_a_mistake_in_a_column_of_numbers_is_named_with_its_row():
    values = [str(i) for i in range(200)]
    values[15] = "abc"
    with pytest.raises(TableError, match=r"some.csv, row 17, column 'area': expected a number as in 199 .* got 'abc'"):
        column_kinds(table(area=values), ["area"])
    assert column_kinds(table(area=values), ["area"], ["area"]) == {"area": "categorical"}


@pytest.mark.parametrize("value", ["inf", "-inf", "1e400", "1e101"])
def test_an_infinite_number_is_named_with_its_row(value):
    with pytest.raises(TableError, match="row 3, column 'a': expected a number below 1e"):
        column_kinds(table(a=["1", value]), ["a"])


def test_medians_categories_and_gaps_are_learned():
    found = table(
        a=["5", "", "1", "3", "", "3", "3"],
        b=["u", "v", "v", "", "w", "u", "v"],
        c=["2020-01-03", "2020-01-01", "2020-01-02", "", "", "", ""],
        y=["1", "2", "3", "4", "5", "6", "7"],
    )
    schema = schema_of(found)
    assert schema.columns == (
        Column("a", "numeric", missing=2, median=3.0),
        Column("b", "categorical", missing=1, categories=("v", "u", "w")),
        Column("c", "date", missing=4, median=day("2020-01-02")),
    )
    assert schema.features == ("a", "a is missing", "b=v", "b=u", "b=w", "b=(missing)", "c", "c is missing")


def test_columns_that_tell_nothing_are_dropped_with_a_reason():
    found = table(
        good=[str(i) for i in range(120)],
        id=[f"h{i}" for i in range(120)],
        one=["5"] * 120,
        same=["u"] * 120,
        empty=[""] * 120,
        day=[f"{1 + i % 28}/{1 + i // 28}/2024" for i in range(120)],
        y=[str(i) for i in range(120)],
    )
    schema = schema_of(found)
    assert [column.name for column in schema.columns] == ["good"]
    assert {column.name: column.reason for column in schema.dropped} == {
        "id": "120 different values in 120 rows, like a name or an identifier",
        "one": "the same value in all rows, 5",
        "same": "the same value in all rows, 'u'",
        "empty": "no values",
        "day": "120 different values in 120 rows, such as '1/1/2024'; write dates as 2024-02-29",
    }
    assert schema.describe() == "1 numeric; dropped: id, one, same, empty, day"
    with pytest.raises(TableError, match="column 'id': expected at most 50 categories, got 120"):
        schema_of(found, categorical=["id"])


def test_one_value_and_gaps_tell_something():
    found = table(a=["5", "", "5", ""], y=["1", "2", "3", "4"])
    assert schema_of(found).features == ("a", "a is missing")


def test_a_table_without_usable_columns_is_refused():
    with pytest.raises(TableError, match=r"expected a column to predict 'y' from, got none .*'a': the same value"):
        schema_of(table(a=["1", "1"], y=["1", "2"]))
    with pytest.raises(TableError, match="the target is the only one"):
        schema_of(table(y=["1", "2"]))


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([str(0.5 * i) for i in range(20)], "regression"),
        ([str(i) for i in range(50)], "regression"),
        ([str(i % 10) for i in range(50)], "classification"),
        ([str(i % 10) for i in range(49)], "regression"),  # too few rows a value
        ([str(i % 11) for i in range(99)], "regression"),  # too many values
        ([str(i % 2 + 0.5) for i in range(50)], "regression"),  # not whole
        (["yes", "no"] * 5, "classification"),
        (["1", "2", "b"] * 5, "classification"),
    ],
)
def test_the_task_follows_from_the_target(values, task):
    assert choose_task(table(y=values), "y", None, silent) == task


def test_a_task_guessed_from_numbers_is_said_and_can_be_overruled():
    found = table(y=[str(i % 3) for i in range(30)])
    said = []
    assert choose_task(found, "y", None, said.append) == "classification"
    assert "--task regression" in said[0]
    assert choose_task(found, "y", "regression", refuse) == "regression"
    assert choose_task(table(y=["no", "yes"] * 9), "y", None, refuse) == "classification"


@pytest.mark.parametrize(
    ("values", "task", "complaint"),
    [
        (["1.5", "abc", "2.5"], "regression", "row 3, column 'y': expected a number as in 2 other rows, got 'abc'"),
        ([str(i) for i in range(40)] + ["abc"], None, "row 42, column 'y': expected a number"),
        (["5"] * 9, None, "column 'y': expected a target that varies, got '5' in all rows"),
        (["a"] * 9, "classification", "expected a target that varies"),
        ([f"n{i}" for i in range(300)], None, "expected at most 100 classes for 300 rows, got 300, 'n0' among them"),
        ([str(i) for i in range(12)], "classification", "expected at most 6 classes"),
        (["1.5", "inf", "2.5"], None, "row 3, column 'y': expected a number below"),
        ([f"{i},5" for i in range(40)], None, "'0,5' among them; write numbers as 1234.5, or pass --decimal comma."),
        (["1,5", "2,5"], "regression", "got '1,5'; write numbers as 1234.5, or pass --decimal comma, or leave it"),
    ],
)
def test_a_target_that_suits_no_task_is_refused(values, task, complaint):
    with pytest.raises(TableError) as caught:
        choose_task(table(y=values), "y", task, silent)
    assert complaint in str(caught.value)


def test_classes_are_ordered_by_value_or_by_name():
    assert class_names(texts(["10", "9", "2.0", "2"])) == ("2", "9", "10")
    assert class_names(texts(["b", "a", "10"])) == ("10", "a", "b")


def test_row_numbers_are_recognised():
    assert counts_rows(texts([str(i) for i in range(20)]))
    assert counts_rows(np.arange(1.0, 20.0))
    assert not counts_rows(np.arange(1990.0, 2020.0))
    assert not counts_rows(texts([str(i) for i in range(19)] + [""]))


# --- encoding -------------------------------------------------------------------------------------

SCHEMA = Schema(
    "y",
    "regression",
    (
        Column("a", "numeric", missing=1, median=2.0),
        Column("b", "numeric", median=7.0),
        Column("c", "categorical", missing=1, categories=("u", "v")),
        Column("d", "categorical", categories=("s", "t")),
    ),
)


def test_rows_become_features():
    found = table(d=["t", "s"], c=["", "v"], b=["1", "2"], a=["", "5"])
    np.testing.assert_array_equal(
        encode(found, SCHEMA, refuse),
        [[2.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0], [5.0, 0.0, 2.0, 0.0, 1.0, 0.0, 1.0, 0.0]],
    )


def test_what_the_fit_has_not_seen_is_said_with_its_places():
    found = table(
        a=["1"] * 5, b=["", "1", "1", "1", "1"], c=["u"] * 5, d=["new", "odd", "s", "new", ""], more=["1"] * 5
    )
    said = []
    features = encode(found, SCHEMA, said.append)
    assert features[0].tolist() == [1.0, 0.0, 7.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert said == [
        "some.csv: ignored, since the fit had no such column: 'more'",
        "some.csv, column 'b', row 2: missing, but never in the fit; the median 7 stands in",
        "some.csv, column 'd', rows 2, 3, 5 and 1 more: not seen in the fit: 'new', 'odd', '(missing)'; "
        "the prediction rests on the other columns",
    ]
    with pytest.raises(TableError, match=r"column 'b': row 2: missing.*drop --strict"):
        encode(found, SCHEMA, silent, strict=True)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"a": None}, "expected the columns of the fit, got none named 'a'"),
        ({"a": ["1", "x"]}, "row 3, column 'a': expected a number, got 'x'"),
        ({"b": ["1e400", "1"]}, "row 2, column 'b': expected a number below"),
        ({"b": [1.0, math.inf]}, "row 3, column 'b': expected a number below"),
    ],
)
def test_rows_that_cannot_be_encoded_are_refused(change, complaint):
    columns = {"a": ["1", "2"], "b": ["1", "2"], "c": ["u", "v"], "d": ["s", "t"]} | change
    with pytest.raises(TableError) as caught:
        encode(table(**{name: values for name, values in columns.items() if values}), SCHEMA, silent)
    assert complaint in str(caught.value)


def test_targets_are_read_or_refused_with_the_row():
    assert target_numbers(table(y=["1", "2.5"]), SCHEMA).tolist() == [1.0, 2.5]
    classes = Schema("y", "classification", SCHEMA.columns, ("no", "yes"))
    assert target_classes(table(y=["yes", "no"]), classes).tolist() == [1, 0]
    for values, complaint in (
        (["1", ""], "row 3, column 'y': expected a value, got none"),
        (["1", "x"], "row 3, column 'y': expected a number, got 'x'"),
        (["1", "1e400"], "row 3, column 'y': expected a number below"),
    ):
        with pytest.raises(TableError, match=complaint):
            target_numbers(table(y=values), SCHEMA)
    with pytest.raises(TableError, match=r"row 2, column 'y': expected a class of the fit \(no, yes\), got 'maybe'"):
        target_classes(table(y=["maybe", "no"]), classes)
    with pytest.raises(TableError, match="expected the target 'y' among the columns, got 'z'"):
        target_numbers(table(z=["1"]), SCHEMA)


def test_a_schema_is_plain_json():
    schema = Schema("y", "classification", SCHEMA.columns, ("no", "yes"), (Dropped("id", "like a name"),))
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


# --- splitting ------------------------------------------------------------------------------------


def test_the_split_is_a_partition_that_the_seed_decides():
    found = table(y=[str(i) for i in range(50)])
    fitted, held = split(found, "y", "regression", 0.2, 0)
    assert sorted([*fitted, *held]) == list(range(50))
    assert len(held) == 10
    assert split(found, "y", "regression", 0.2, 0)[1].tolist() == held.tolist()
    assert split(found, "y", "regression", 0.2, 1)[1].tolist() != held.tolist()
    assert len(split(found, "y", "regression", 0.0, 0)[1]) == 0


def test_every_class_is_held_out_in_proportion_and_none_is_lost():
    found = table(y=["common"] * 40 + ["rare"] * 10 + ["single"])
    fitted, held = split(found, "y", "classification", 0.2, 0)
    names = found.columns["y"]
    assert [list(names[held]).count(name) for name in ("common", "rare", "single")] == [8, 2, 0]
    assert set(names[fitted]) == {"common", "rare", "single"}


# --- the verdict ----------------------------------------------------------------------------------


def regression_rows(spread, rows=400, shift=0.0):
    """Standard normal targets predicted by N(shift, spread^2)."""
    target = np.random.default_rng(0).normal(size=rows)
    levels = np.array([0.5, 0.8, 0.9, 0.95])
    reach = stats.norm.ppf(0.5 + levels / 2)[:, None] * spread * np.ones(rows)
    flat = np.full(rows, spread)
    pit = stats.norm.cdf(target, shift, spread)
    return RegressionRows(target, np.full(rows, shift), 0 * flat, flat, flat, pit, levels, shift - reach, shift + reach)


@pytest.mark.parametrize(("spread", "judgement"), [(1.0, "calibrated"), (0.6, "too sure"), (1.6, "too unsure")])
def test_coverage_is_judged_by_its_standard_error(spread, judgement):
    rows = regression_rows(spread)
    found, coverage, verdict = score_regression(rows, np.zeros(400), 0.5, "price")
    assert {line.judgement for line in coverage} == {judgement}
    assert f": {judgement}." in verdict[0]
    assert ("do not fit as a whole" in " ".join(verdict)) == (judgement != "calibrated")
    assert {metric.key for metric in found} == {"rmse", "mae", "r2", "log_score", "crps", "pit_distance"}


def test_metrics_are_what_their_names_say():
    rows = regression_rows(1.0, shift=0.3)
    found = {m.key: m.value for m in score_regression(rows, np.full(400, -2.0), 0.5, "price")[0]}
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((rows.target - 0.3) ** 2)))
    assert found["mae"] == pytest.approx(np.abs(rows.target - 0.3).mean())
    assert found["r2"] == pytest.approx(
        1 - np.sum((rows.target - 0.3) ** 2) / np.sum((rows.target - rows.target.mean()) ** 2)
    )
    assert (found["log_score"], found["crps"]) == (-2.0, 0.5)


def words(rows, kind="posterior"):
    return " ".join(score_regression(rows, np.zeros(len(rows)), None, "y", kind)[2])


def test_bias_is_told_with_its_side():
    assert "too high more often than not" in words(regression_rows(1.0, shift=0.5))
    assert "too low more often than not: 67% of the targets lie above" in words(regression_rows(1.0, shift=-0.5))
    assert "more often than not" not in words(regression_rows(1.0))


def with_coverage(*shares, rows=200):
    """Intervals that hold these shares of the targets, beside PIT values that are as uniform as can be."""
    levels = np.array([0.5, 0.8, 0.9, 0.95])
    target, flat = np.linspace(0.0, 1.0, rows), np.ones(rows)
    pit = (np.arange(rows) + 0.5) / rows
    upper = np.stack([np.where(np.arange(rows) < share * rows, 2.0, -1.0) for share in shares])
    return RegressionRows(target, flat, flat, flat, flat, pit, levels, np.full((4, rows), -2.0), upper)


def test_the_whole_is_not_said_to_fit_where_the_intervals_do_not():
    """Kolmogorov-Smirnov's distance is blind to tails: all levels may miss while PIT values look uniform."""
    assert "do not fit, by their intervals" in words(with_coverage(0.4, 0.7, 0.82, 0.88))
    one = words(with_coverage(0.5, 0.8, 0.9, 0.88))
    assert "But too sure: the 95% intervals held 88.0%." in one
    assert "fit as a whole" in one
    assert "one calibrated model in eight" in one
    assert "one calibrated model in eight" not in words(with_coverage(0.5, 0.8, 0.9, 0.95))


def test_the_distributions_behind_conformal_intervals_are_judged_by_themselves():
    assert "Before they are made conformal, the distributions fit as a whole" in words(
        with_coverage(0.4, 0.7, 0.82, 0.88), "conformal"
    )
    assert "Before they are made conformal, the distributions do not fit" in words(regression_rows(0.6), "conformal")


def test_a_calibrated_model_misses_a_level_about_one_time_in_eight():
    random = np.random.default_rng(0)
    levels = (0.5, 0.8, 0.9, 0.95)
    depths = np.abs(2.0 * random.random((2000, 200)) - 1.0)  # of the target in its predicted distribution
    shares = np.stack([(depths <= level).mean(1) for level in levels])
    bands = np.array([binomial_band(200, level) for level in levels])
    missed = ((shares < bands[:, :1]) | (shares > bands[:, 1:])).sum(0)
    assert (missed > 0).mean() == pytest.approx(1 / 8, abs=3 * np.sqrt(0.125 * 0.875 / 2000))
    assert (missed > 1).mean() == pytest.approx(1 / 30, abs=3 * np.sqrt(0.033 * 0.967 / 2000))


def test_the_headline_does_not_hide_the_other_levels():
    rows = with_coverage(0.5, 0.8, 0.9, 0.88)
    evaluation = Evaluation("200 rows", rows, *score_regression(rows, np.zeros(200), None, "y"))
    assert "But too sure: the 95% intervals" in evaluation.headline


def test_few_rows_are_not_judged():
    _, coverage, verdict = score_regression(regression_rows(0.1, rows=10), np.zeros(10), None, "y")
    assert {line.judgement for line in coverage} == {"too few rows"}
    assert len(verdict) == 1


def test_the_band_holds_a_calibrated_model_95_times_in_100():
    low, high = binomial_band(100, 0.9)
    inside = stats.binom.cdf(round(100 * high), 100, 0.9) - stats.binom.cdf(round(100 * low) - 1, 100, 0.9)
    assert 0.95 <= inside < 0.98


def test_uniformity_agrees_with_scipy():
    pit = np.random.default_rng(0).uniform(size=50) ** 1.3
    expected = stats.kstest(pit, "uniform", method="exact")
    assert uniformity(pit) == pytest.approx((expected.statistic, expected.pvalue))


def classification_rows(confidence, accuracy, rows=400):
    target = (np.arange(rows) >= accuracy * rows).astype(np.int64)  # the model always says class 0
    probabilities = np.tile([confidence, 1 - confidence], (rows, 1))
    return ClassificationRows(target, ("no", "yes"), probabilities, np.zeros(rows), np.zeros(rows))


@pytest.mark.parametrize(("accuracy", "judgement"), [(0.8, "calibrated"), (0.7, "too sure"), (0.9, "too unsure")])
def test_confidence_is_judged_by_its_standard_error(accuracy, judgement):
    rows = classification_rows(0.8, accuracy)
    sets = {level: np.tile([True, level > 0.8], (400, 1)) for level in (0.5, 0.8, 0.9, 0.95)}
    found, coverage, verdict = score_classification(rows, np.zeros(400), sets, "posterior")
    assert verdict[0].endswith(f"{judgement}.")
    assert [line.share for line in coverage] == [pytest.approx(accuracy)] * 2 + [1.0, 1.0]
    assert coverage[0].judgement == judgement
    assert (coverage[2].judgement, coverage[2].width) == ("calibrated", 2.0)
    assert {m.key: m.value for m in found}["accuracy"] == pytest.approx(accuracy)


def test_an_evaluation_prints_its_numbers_and_words():
    rows = regression_rows(1.0)
    printed = str(Evaluation("400 rows of a.csv", rows, *score_regression(rows, np.zeros(400), 0.5, "price")))
    assert printed.splitlines()[0] == "400 rows of a.csv"
    assert "RMSE" in printed
    assert "in units of price" in printed
    assert "expected" in printed


class Standard:
    """What is asked of an estimator, from one that predicts N(0, 1) for every row."""

    interval = "posterior"

    def read_predictive(self, features, what):
        found = []
        for start in range(0, len(features), 2048):
            count = len(features[start : start + 2048])
            part = RegressionPrediction(torch.zeros(1, count, dtype=torch.float64), torch.tensor(1.0))
            found.append([tensor.numpy() for tensor in what(part, slice(start, start + count))])
        return [np.concatenate(columns) for columns in zip(*found, strict=True)]


def test_the_crps_of_many_rows_does_not_depend_on_their_order():
    target = np.sort(np.abs(np.random.default_rng(0).normal(0.0, 3.0, 12_000)))
    known = torch.from_numpy(target)
    scores = torch.distributions.Normal(0.0, 1.0).cdf(known)
    density = torch.exp(-0.5 * known**2) / math.sqrt(2.0 * math.pi)
    scores = (known * (2.0 * scores - 1.0) + 2.0 * density - 1.0 / math.sqrt(math.pi)).numpy()  # of N(0, 1), exactly
    rows, _, crps = predicted_rows(Standard(), target[:, None], target)
    assert crps == pytest.approx(scores.mean(), abs=4 * scores.std() / math.sqrt(4096))
    metrics = {m.key: m for m in score_regression(rows, np.zeros(12_000), crps, "y")[0]}
    assert "4,096 rows drawn at random" in metrics["crps"].note


# --- files ----------------------------------------------------------------------------------------


def test_outputs_are_checked_before_the_work(tmp_path):
    old, folder = tmp_path / "old.csv", tmp_path / "folder"
    old.write_text("old")
    folder.mkdir()
    check_output(tmp_path / "new.csv", inputs=[old])
    check_output(old, force=True)
    for path, options, complaint in (
        (old, {}, "pass --force"),
        (old, {"force": True, "inputs": [str(old)]}, "expected another file"),
        (folder, {"force": True}, "got a folder"),
        (tmp_path / "none" / "new.csv", {}, "create it first"),
    ):
        with pytest.raises(TableError, match=complaint):
            check_output(path, **options)
    link = tmp_path / "link.csv"
    link.symlink_to(old)
    with pytest.raises(TableError, match="expected another file"):
        check_output(link, force=True, inputs=[old])


def test_a_folder_that_cannot_be_written_in_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(TableError, match="expected a folder to write in"):
        check_output(tmp_path / "new.csv")


def test_frames_are_written_as_csv_and_parquet(tmp_path):
    frame = pd.DataFrame({"row": [1, 2], "class": ["é", 'a,"b'], "p": [0.1, 1e-9]})
    for name in ("some.csv", "some.parquet"):
        write_frame(tmp_path / name, frame)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "some.csv"), frame)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "some.parquet"), frame)
    assert frame_bytes(frame, ".csv").count(b"\n") == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["some.csv", "some.parquet"]


# --- the model ------------------------------------------------------------------------------------


def test_a_model_predicts_the_same_after_its_file(houses, tmp_path):
    model = fit_table(houses, "price", FitOptions(steps=20, hidden=(4,)), refuse)
    model.save(tmp_path / "houses.livi")
    again = load_model(tmp_path / "houses.livi")
    pd.testing.assert_frame_equal(again.predict(houses, refuse), model.predict(houses, refuse))
    assert again.schema == model.schema
    assert str(again.evaluate(houses, refuse)) == str(model.evaluate(houses, refuse))
    content = again.content(again.evaluate(houses, refuse))
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


def test_kept_columns_come_out_as_they_went_in(houses, tmp_path):
    model = fit_table(houses, "price", FitOptions(steps=2, hidden=(2,)), silent)
    frame = pd.DataFrame(
        {"area": [100.123456789012, 90.0], "town": ["u", None], "code": [2**40 + 1, 5], "when": ["2020-01-01", "NA"]}
    )
    frame.to_parquet(tmp_path / "new.parquet")
    frame.to_csv(tmp_path / "new.csv", index=False)
    for source in ("new.parquet", "new.csv"):
        for name in ("p.csv", "p.parquet"):
            write_frame(tmp_path / name, model.predict(read_table(tmp_path / source), silent, keep=True))
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
        warnings.warn(text, alarms.FitWarning, stacklevel=2)
        return fit(*arguments, **options)

    return warned


def test_the_facts_show_the_network_that_was_fitted(houses):
    model = fit_table(houses, "price", FitOptions(steps=5, hidden=(3, 2), noise="varying", diagnose=False), silent)
    assert model.facts["Network"] == "3 - 3 - 2 - 1, silu; noise linear in the columns"
    assert model.facts["Model"] == "HeteroscedasticGaussian likelihood, Relevance prior; the last layer integrated out"
    assert "town=" in model.facts["Most relevant"]
    assert " 1.00" in model.facts["Most relevant"]


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
