"""Numbers as people write them: read column by column, and in other files as in the fit."""

import json

import numpy as np
import pandas as pd
import pytest
from support.small_tables import refuse, table
from support.table_commands import SMALL, failed

from livi import cli
from livi.tables import Table, TableError, read_table
from livi.tables.detection import choose_task, column_kinds
from livi.tables.encoding import encode, target_numbers
from livi.tables.fitting import fit_table
from livi.tables.missing_words import with_missing
from livi.tables.model import load_model
from livi.tables.notation import Notation, could_be_decimals, in_common, written
from livi.tables.numbers import read_numbers
from livi.tables.options import FitOptions
from livi.tables.schema import Column, Schema


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,977", 1977.0),
        ("1,234,567.5", 1234567.5),
        ("1 977", 1977.0),
        ("1\u00a0977", 1977.0),
        ("1\u202f977", 1977.0),
        ("1'977", 1977.0),
        ("1’977", 1977.0),
        ("$5", 5.0),
        ("-$5", -5.0),
        ("$-5", -5.0),
        ("($1,200.50)", -1200.5),
        ("5 EUR", 5.0),
        ("EUR 5", 5.0),
        ("5€", 5.0),
        ("£1,000", 1000.0),
        ("5%", 5.0),
        ("5 %", 5.0),
        ("12 kg", 12.0),
        ("12kg", 12.0),
        ("37.5 °C", 37.5),
        ("90 km/h", 90.0),
        ("(40)", -40.0),
        ("\u221240", -40.0),
        ("3 stars", 3.0),
    ],
)
def test_a_number_is_read_however_it_is_dressed(text, value):
    assert written(text).value == value


@pytest.mark.parametrize(
    "text",
    [
        *("1,5", "0,977", "1,97", "1,9777", "1.234.567", "1,234 567", "(40", "40)", "(-40)", "4WD", "12a", "A12"),
        *("$5 EUR", "12 1/2", "2024-02-29", "3 big cats", "$", "%", "", "٣ kg", "1_000 kg", "--5 kg"),
    ],
)
def test_what_is_no_number_stays_text(text):
    assert written(text) is None


def test_a_column_has_one_notation():
    assert in_common(["1,977", "850", ""]).notation == Notation(",", "", "1,977")
    assert in_common(["$5", "7"]).notation == Notation("", "$", "$5")
    assert in_common(["5 USD", "$7"]).notation.unit == "$"
    assert in_common(["12 kg", "abc"]) == (None, "")
    assert in_common(["", ""]) == (None, "")
    assert in_common(["1,977", "1 977"]).mixed == "'1,977', but '1 977'"
    assert in_common(["5%", "0.05"]).mixed == "'5%' with '%', but '0.05' without"
    assert in_common(["$5", "7 €"]).mixed == "'$5' with '$', but '7 €' with '€'"
    assert in_common(["500 g", "1 kg"]).mixed
    assert in_common(["1 red", "2 blue"]) == (None, "")  # names, as far as anyone can tell
    assert could_be_decimals(["1,977", "2,400", ""])
    assert not could_be_decimals(["1,977", "850"])


def read(**columns):
    said = []
    found, notations = read_numbers(table(**columns), list(columns), "y", said.append)
    return {name: cells.tolist() for name, cells in found.columns.items()}, notations, said


def test_columns_become_numbers_with_a_note():
    found, notations, said = read(
        price=["1,977", "850"], rate=["5%", "7.5%"], weight=["12 kg", "9 kg"], debt=["(40)", "3"], y=["1", "2"]
    )
    assert found == {
        "price": [1977.0, 850.0],
        "rate": [5.0, 7.5],
        "weight": [12.0, 9.0],
        "debt": [-40.0, 3.0],
        "y": ["1", "2"],
    }
    assert list(notations) == ["price", "rate", "weight", "debt"]
    assert said == [
        "column 'price' is read as numbers, commas between thousands: '1,977' is 1977",
        "column 'rate' is read as numbers, percent: '5%' is 5",
        "column 'weight' is read as numbers, in kg: '12 kg' is 12",
        "column 'debt' is read as numbers, brackets for negative numbers: '(40)' is -40",
    ]


def test_a_comma_that_could_be_either_is_said():
    found, _, said = read(price=["1,977", "2,400"])
    assert found["price"] == [1977.0, 2400.0]
    assert said[0].endswith("; if that comma is a decimal one, pass --decimal comma")


def test_numbers_written_in_two_ways_are_refused():
    with pytest.raises(
        TableError, match=r"column 'a': expected numbers that are written in one way, got '5%' with '%'"
    ):
        read(a=["5%", "0.05"])


@pytest.mark.parametrize(("decimal", "text"), [("point", "$1,977.50"), ("comma", "1.977,50 €"), ("comma", "1 977,50")])
def test_the_decimal_option_holds_for_dressed_numbers_too(tmp_path, decimal, text):
    (tmp_path / "some.csv").write_text(f"a;b\n{text};1\n850;2\n", encoding="utf-8")
    found = read_table(tmp_path / "some.csv", decimal=decimal)
    assert found.decimal == decimal
    found, _ = read_numbers(found, ["a"], "b", lambda _: None)
    assert found.columns["a"].tolist() == [1977.5, 850.0]


SCHEMA = Schema("y", "regression", (Column("a", "numeric", notation=Notation("", "%", "5%")),), notation=Notation(","))


def test_other_tables_are_read_as_in_the_fit():
    found = table(a=["5%", "12.5 %"], y=["1,977", "850"])
    assert encode(found, SCHEMA, refuse).tolist() == [[5.0], [12.5]]
    assert target_numbers(found, SCHEMA).tolist() == [1977.0, 850.0]
    with pytest.raises(TableError, match=r"row 3, column 'a': expected a number as it was .* \('5%'\), got '0.05'"):
        encode(table(a=["5%", "0.05"]), SCHEMA, refuse)
    said = []
    assert encode(table(a=[5.0, 6.0]), SCHEMA, said.append).tolist() == [[5.0], [6.0]]
    assert said == ["some.csv, column 'a': numbers without a unit, taken for '%' as in the fit"]
    plain = Schema("y", "regression", (Column("a", "numeric"),))
    with pytest.raises(
        TableError, match=r"expected a number, got '1,977'; write numbers without separators .*decimal comma"
    ):
        encode(table(a=["1,977"]), plain, refuse)


def test_notations_are_kept_in_json_and_files_without_them_are_read():
    stored = json.loads(json.dumps(SCHEMA.to_json()))
    assert Schema.from_json(stored) == SCHEMA
    for name in ("notation", "decimal", "missing"):
        del stored[name]
    del stored["columns"][0]["notation"]
    assert Schema.from_json(stored) == Schema("y", "regression", (Column("a", "numeric"),))


# --- words among numbers --------------------------------------------------------------------------


def test_words_among_numbers_are_counted_and_named():
    values = [f"${i},{100 + i}" for i in range(1, 101)] + ["unknown"] * 30 + ["on request"] * 20
    with pytest.raises(TableError) as caught:
        column_kinds(table(price=values), ["price"])
    assert str(caught.value) == (
        "some.csv, row 102, column 'price': expected a number as in 100 other rows, got 50 words: 'unknown' (30), "
        "'on request' (20); correct it, pass --missing 'unknown,on request' if that means a gap, or pass "
        "--categorical price if these are names, or --drop price."
    )
    with pytest.raises(TableError, match=r"got 50 words: 'unknown' \(30\).*or pass --task classification"):
        choose_task(table(price=values), "price", None, refuse)


def test_names_of_all_kinds_are_no_numbers():
    values = [f"n{i}" for i in range(100)] + [str(i) for i in range(50)]
    assert column_kinds(table(code=values), ["code"]) == {"code": "categorical"}
    assert column_kinds(table(code=["1", "2", "3", "A", "B"] * 20), ["code"]) == {"code": "categorical"}


def test_few_numbers_with_words_are_categories_with_a_note(houses):
    age = np.array([str(20 + i % 15) for i in range(90)], object)
    age[:9] = "unknown"
    said = []
    found = Table("houses", {**houses.columns, "age": age}, houses.lines)
    fit_table(found, "price", FitOptions(steps=2, hidden=(2,), diagnose=False), said.append)
    expected = "since 9 of its cells are words: 'unknown' (9); to read the others as numbers, pass --missing unknown"
    assert any(expected in text for text in said)


# --- words that mean a gap ------------------------------------------------------------------------


def test_words_and_numbers_become_gaps():
    said = []
    found = with_missing(
        table(a=["Unknown", "5", "-999.0"], b=[-999.0, 1.0, 2.0]), ["unknown", "-999", "n.v."], said.append
    )
    assert found.columns["a"].tolist() == ["", "5", ""]
    np.testing.assert_array_equal(found.columns["b"], [np.nan, 1.0, 2.0])
    assert said == ["--missing: no cell is 'n.v.'"]


def test_gaps_of_the_fit_are_gaps_of_predictions_and_evaluations(here, homes, capsys):
    frame = homes.drop(columns=["dear", "id"])
    frame.assign(area=frame["area"].astype(object).fillna("unknown")).iloc[:80].to_csv("words.csv", index=False)
    frame.iloc[:80].to_csv("gaps.csv", index=False)
    more = frame.iloc[80:].assign(area=frame["area"].iloc[80:].astype(object))
    more.iloc[3:6, more.columns.get_loc("area")] = "UNKNOWN"
    more.to_csv("more.csv", index=False)
    assert "pass --missing unknown if" in failed(capsys, "fit", "words.csv", "--target", "price", "--out", "m.livi")
    for name, option in (("words", ["--missing", "unknown,on request"]), ("gaps", [])):
        assert cli.main(["fit", f"{name}.csv", "--target", "price", "--out", f"{name}.livi", *option, *SMALL]) == 0
    assert "note: --missing: no cell is 'on request'" in capsys.readouterr().err
    assert load_model("words.livi").schema.missing == ("unknown", "on request")
    assert cli.main(["predict", "words.livi", "more.csv", "--out", "one.csv", "--quiet", "--keep"]) == 0
    assert (pd.read_csv("one.csv")["area"] == "UNKNOWN").sum() == 3
    assert cli.main(["evaluate", "words.livi", "more.csv", "--quiet"]) == 0
    assert "column 'area': expected a number, got 'UNKNOWN'" in failed(capsys, "evaluate", "gaps.livi", "more.csv")


# --- from end to end ------------------------------------------------------------------------------


def test_a_model_reads_new_files_as_it_read_the_first(here, homes, capsys):
    frame = homes.drop(columns=["dear", "id"])
    frame["price"] = [f"${price:,.2f}" for price in frame["price"]]
    frame["rooms"] = [f"{rooms} m" for rooms in frame["rooms"]]
    homes.drop(columns=["dear", "id"]).iloc[:80].to_csv("plain.csv", index=False)
    frame.iloc[:80].to_csv("dressed.csv", index=False)
    frame.iloc[80:].to_csv("more.csv", index=False)
    for name in ("plain", "dressed"):
        assert cli.main(["fit", f"{name}.csv", "--target", "price", "--out", f"{name}.livi", *SMALL]) == 0
    assert "note: column 'price' is read as numbers, in $, commas between thousands" in capsys.readouterr().err
    assert cli.main(["predict", "dressed.livi", "more.csv", "--out", "dressed_out.csv", "--keep"]) == 0
    assert cli.main(["predict", "plain.livi", "test.csv", "--out", "plain_out.csv", "--quiet"]) == 0
    dressed, plain = pd.read_csv("dressed_out.csv"), pd.read_csv("plain_out.csv")
    pd.testing.assert_frame_equal(dressed[list(plain)], plain)
    assert dressed["price"].str.startswith("$").all()
    assert cli.main(["evaluate", "dressed.livi", "more.csv"]) == 0
    assert "40 rows of more.csv" in capsys.readouterr().out
    assert load_model("dressed.livi").schema.notation == Notation(",", "$", frame["price"][0])
    line = failed(capsys, "predict", "dressed.livi", "new.csv", "--out", "p.csv")
    assert "column 'rooms': expected a number as it was written in the fit" in line


def test_the_decimal_comma_of_the_fit_is_that_of_its_predictions(here, homes):
    frame = homes.drop(columns=["dear", "id"])
    frame.iloc[:80].to_csv("euro.csv", index=False, sep=";", decimal=",")
    frame.iloc[80:].to_csv("more.csv", index=False, sep=";", decimal=",")
    arguments = ["fit", "euro.csv", "--target", "price", "--out", "m.livi", "--decimal", "comma", "--quiet", *SMALL]
    assert cli.main(arguments) == 0
    assert cli.main(["predict", "m.livi", "more.csv", "--out", "one.csv"]) == 0
    assert cli.main(["predict", "m.livi", "test.csv", "--out", "other.csv", "--decimal", "point"]) == 0
    assert (here / "one.csv").read_text() == (here / "other.csv").read_text()
