"""Columns of a table: what kind they are, how they are encoded, how rows are held out."""

import json
import math

import numpy as np
import pytest
from support.small_tables import refuse, silent, table

from livi.tables import TableError
from livi.tables.detection import choose_task, class_names, column_kinds, learn_schema, reach
from livi.tables.encoding import encode, target_classes, target_numbers
from livi.tables.fitting import split
from livi.tables.schema import Column, Dropped, Schema
from livi.tables.values import day, texts

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
        Column("a", "numeric", missing=2, median=3.0, reach=reach(np.array([1.0, 5.0]))),
        Column("b", "categorical", missing=1, categories=("v", "u", "w")),
        Column(
            "c", "date", missing=4, median=day("2020-01-02"), reach=reach(day("2020-01-02") + np.array([-1.0, 1.0]))
        ),
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
        (["5"] * 9, None, "column 'y': expected a target that varies, got '5' in all rows; choose another --target"),
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


def test_numbers_of_a_parquet_file_are_quoted_as_numbers():
    with pytest.raises(TableError, match=r"a target that varies, got '3.5' in all rows"):
        choose_task(table(y=[3.5] * 9), "y", None, silent)
    with pytest.raises(TableError, match=r"got 9, '0.5' among them; choose another target, or --task regression"):
        choose_task(table(y=np.arange(9) + 0.5), "y", "classification", silent)
    classes = Schema("y", "classification", SCHEMA.columns, ("1", "2"))
    with pytest.raises(TableError, match=r"row 3, column 'y': expected a class of the fit \(1, 2\), got '3.0'"):
        target_classes(table(y=[1.0, 3.0]), classes)


def test_classes_are_ordered_by_value_or_by_name():
    assert class_names(texts(["10", "9", "2.0", "2"])) == ("2", "9", "10")
    assert class_names(texts(["b", "a", "10"])) == ("10", "a", "b")


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


def test_other_capitals_are_asked_after():
    found, said = table(a=["1"] * 2, b=["1"] * 2, c=["u"] * 2, d=["S", "odd"]), []
    encode(found, SCHEMA, said.append)
    assert said == [
        "some.csv, column 'd', rows 2, 3: not seen in the fit: 'S', 'odd'; the prediction rests on the other columns "
        "('S' for 's'?)"
    ]
    rooms = Schema("y", "regression", (Column("rooms", "numeric"),))
    with pytest.raises(TableError, match="none named 'rooms'; add it, or rename a column such as 'ROOMS'"):
        encode(table(ROOMS=["1"], other=["2"]), rooms, silent)


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
