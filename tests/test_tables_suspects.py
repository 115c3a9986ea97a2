"""Columns that number the rows, and columns that give the target away."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from support.small_tables import table

from livi.tables import Table
from livi.tables.fitting import fit_table, prepare
from livi.tables.missing_words import with_missing
from livi.tables.options import FitOptions
from livi.tables.schema import Column, Schema
from livi.tables.suspects import giveaway_notes, left_out, numbering_notes, oddity_notes, one_to_one, rank_correlation
from livi.tables.values import texts

SHUFFLED = np.random.default_rng(0).permutation(100).astype(float)
KINDS = {"a": "numeric", "x": "numeric"}


def numbering(name, values):
    found = table(**{name: values, "x": [0.5 * i**2 for i in range(len(values))]})
    return [column.reason for column in left_out(found, {name: "numeric", "x": "numeric"}, ())]


@pytest.mark.parametrize(
    "values", [SHUFFLED, SHUFFLED + 1, SHUFFLED[SHUFFLED % 20 != 3], [str(int(i)) for i in SHUFFLED]]
)
def test_a_shuffled_row_number_is_left_out(values):
    [reason] = numbering("a", list(values))
    assert "in no order, like a row number; pass --use a to keep it" in reason


@pytest.mark.parametrize(
    "values",
    [
        np.arange(100.0),  # in order: perhaps a time
        SHUFFLED + 1900,
        SHUFFLED % 50,
        SHUFFLED + 0.5,
        3 * SHUFFLED,
        np.append(SHUFFLED, np.nan),
        np.random.default_rng(0).permutation(12) + 1.0,
    ],
)
def test_other_numbers_are_not_left_out(values):
    assert numbering("a", list(values)) == []


@pytest.mark.parametrize("name", ["id", "ID", "customer_id", "houseId", "Index", "row", "Lfd. Nr", "#"])
def test_different_whole_numbers_with_such_a_name_are_left_out(name):
    assert "a name as of a row number" in numbering(name, list(7 * SHUFFLED + 1000))[0]
    assert numbering(name, list(SHUFFLED % 50)) == []
    assert numbering("idle", list(7 * SHUFFLED)) == []


def test_a_row_number_stays_where_it_is_wanted_or_the_only_column():
    found = table(a=list(SHUFFLED), x=[0.5 * i for i in range(100)])
    assert left_out(found, KINDS, ["a"]) == ()
    assert left_out(found, {"a": "numeric"}, ()) == ()


def noted(values, used=()):
    schema = Schema("y", "regression", (Column("a", "numeric"),))
    return numbering_notes(table(a=values), schema, used)


def test_what_may_be_a_row_number_is_said():
    expected = ["column 'a' counts the rows; if it says nothing else, pass --drop a"]
    assert noted([str(i) for i in range(20)]) == expected
    assert noted(list(np.arange(1.0, 20.0))) == expected
    assert noted(list(SHUFFLED + 5000)) == expected
    assert noted(list(np.arange(1990.0, 2020.0))) == []
    assert noted([str(i) for i in range(19)] + [""]) == []
    assert noted(list(np.arange(1.0, 20.0)), ["a"]) == []


def test_rank_correlation_agrees_with_scipy():
    random = np.random.default_rng(0)
    one, other = random.integers(0, 9, 60).astype(float), random.normal(size=60)
    assert rank_correlation(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)
    assert rank_correlation(one, np.exp(one)) == pytest.approx(1.0)
    assert rank_correlation(one[:19], one[:19]) == 0.0
    assert rank_correlation(np.ones(60), other) == 0.0


def test_columns_that_tell_the_target_are_named():
    target = np.random.default_rng(0).normal(size=60)
    schema = Schema("y", "regression", (Column("a", "numeric"), Column("b", "numeric")))
    found = table(a=list(-np.exp(target)), b=list(target[::-1]), y=list(target))
    assert giveaway_notes(found, schema) == [
        "column 'a' tells 'y' all by itself (rank correlation -1.0000); if it is not known before the target is, pass "
        "--drop a"
    ]
    classes = Schema("y", "classification", (Column("a", "categorical"), Column("b", "categorical")), ("no", "yes"))
    found = table(a=["1", "0"] * 20, b=["1", "0"] * 19 + ["1", "1"], y=["yes", "no"] * 20)
    [said] = giveaway_notes(found, classes)
    assert "column 'a' tells 'y' all by itself (one value for each class)" in said


def test_one_to_one_needs_rows_and_all_classes():
    assert one_to_one(["u", "v"] * 10, ["a", "b"] * 10)
    assert not one_to_one(["u", "v"] * 9, ["a", "b"] * 9)
    assert not one_to_one(["u", "v"] * 10 + [""], ["a", "b"] * 10 + ["c"])
    assert not one_to_one(["u", "v", "w", "v"] * 10, ["a", "b"] * 20)


def test_a_fit_does_not_read_a_shuffled_row_number(houses):
    order = np.random.default_rng(1).permutation(90) + 1.0
    leak = 2.0 * houses.columns["price"]
    found = Table("houses", {**houses.columns, "position": order, "tax": leak}, houses.lines)
    said = []
    options = FitOptions(steps=2, hidden=(2,), diagnose=False)
    model = fit_table(found, "price", options, said.append)
    assert model.schema.dropped[0].name == "position"
    assert "position" not in model.schema.features
    assert said[0].startswith("dropped: column 'position': 90 different whole numbers in 90 rows, 1 to 90 in no order")
    assert said[1].startswith("column 'tax' tells 'price' all by itself (rank correlation 1.0000)")
    kept = fit_table(found, "price", FitOptions(steps=2, hidden=(2,), diagnose=False, use=["position"]), said.append)
    assert "position" in kept.schema.features


def test_words_are_not_numbers():
    assert left_out(table(a=texts([f"h{i}" for i in range(50)]).tolist(), x=[1.0] * 50), {"a": "categorical"}, ()) == ()


def test_oddities_are_said_once_each():
    schema = Schema("y", "classification", (Column("a", "numeric"), Column("b", "categorical")), ("no", "x", "yes"))
    numbers = [*map(str, range(11)), "99999", "", "99999"]
    found = table(a=numbers, b=["True", "TRUE", *["False"] * 11, "false"], y=["no", "x", *["yes"] * 12])
    assert oddity_notes(found, schema) == [
        "column 'a', rows 13, 15: 99999, where all others are 0 to 10; if it stands for a missing value, pass "
        "--missing=99999; if it is a mistake, correct it",
        "column 'b': 'TRUE' and 'True', 'False' and 'false' differ in capitals only and count as different; write them "
        "alike if they are the same",
        "'y' has a single row of class 'no', 'x': too little to learn it from, and none to judge it by",
    ]
    plain = Schema("y", "regression", (Column("a", "numeric"),))
    usual = [*map(str, range(12)), "30"]
    assert oddity_notes(table(a=usual, y=usual), plain) == []
    (said,) = oddity_notes(table(a=usual, y=[*map(str, range(12)), "-1e9"]), plain)
    assert said.startswith("column 'y', row 14: -1e9, where all others are 0 to 11;")
    assert "pass --missing=-1e9;" in said
    assert oddity_notes(with_missing(table(a=numbers, y=numbers), ["99999"]), plain) == []
    (said,) = oddity_notes(table(a=usual, y=[*range(12), -1e9]), plain)  # numbers, or read with a unit
    assert "leave such rows out;" in said


def test_a_class_called_na_is_said_to_count_as_missing():
    frame = pd.DataFrame({"a": range(60), "continent": ["EU", "NA", "AS"] * 20, "size": ["$5", "$7", "NA"] * 20})
    for target, expected in (
        ("continent", ": 'NA' counts as missing; if that is a class, write it in another way"),
        ("size", ""),
    ):
        said = []
        prepare(Table.from_frame(frame), target, FitOptions(), said.append)
        assert said[0] == f"left out: 20 of 60 rows, which have no {target!r}{expected}"


def test_zeros_in_front_are_said():
    schema = Schema("y", "regression", (Column("zip code", "numeric"), Column("a", "numeric")))
    found = table(**{"zip code": ["01234", "10117", ""], "a": ["0", "0.5", "-0.1"], "y": ["1", "2", "3"]})
    assert oddity_notes(found, schema) == [
        "column 'zip code': 01234 and the like are read as numbers; if they are codes, pass --categorical 'zip code'"
    ]
