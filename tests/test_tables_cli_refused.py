"""What livi fit, predict and evaluate refuse, and in which words."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.table_commands import edit, failed

from livi import cli


def test_a_target_that_is_no_number_is_named_with_row_and_column(here, capsys):
    edit("houses.csv", 17, "price", "abc")
    line = failed(capsys, "fit", "houses.csv", "--target", "price", "--out", "m.livi")
    assert line.startswith(
        "livi: houses.csv, row 17, column 'price': expected a number as in 79 other rows, got 'abc'; "
    )


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("area", "abc", "row 9, column 'area': expected a number as in 79 other rows, got 'abc'"),
        ("area", "1e400", "row 9, column 'area': expected a number below 1e+100, got 1e400"),
        ("price", "inf", "row 9, column 'price': expected a number below 1e+100, got inf"),
    ],
)
def test_a_bad_value_in_the_fit(here, capsys, column, value, complaint):
    edit("houses.csv", 9, column, value)
    assert complaint in failed(capsys, "fit", "houses.csv", "--target", "price", "--out", "m.livi")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--target", "prise"], "expected a column 'prise', got none of that name; did you mean 'price'?"),
        (["--target", "zzz"], "it has id, area, rooms"),
        (["--target", "price", "--drop", "zzz"], "expected a column 'zzz'"),
        (["--target", "price", "--drop", "price"], "column 'price': expected a target to keep"),
        (["--target", "price", "--drop", "area", "--categorical", "area"], "column 'area': expected --drop or"),
        (["--target", "price", "--categorical", "id"], "column 'id': expected at most 32 categories, got 64"),
        (["--target", "price", "--task", "classification"], "expected at most 40 classes for 80 rows, got 80"),
        (["--target", "town", "--task", "regression"], "column 'town': expected a number, got"),
        (["--target", "country"], "column 'country': expected a target that varies, got 'X' in all rows"),
        (["--target", "town", "--noise", "varying"], "column 'town': expected --noise for regression only"),
        (["--target", "price", "--noise", "poisson"], "column 'price': expected small counts for --noise poisson"),
        (["--target", "price", "--validation", "0.99"], "expected at least 5 rows to fit to, got 1"),
        (["--target", "price", "--drop", "id,area,rooms,town,built"], "expected a column to predict 'price' from"),
    ],
)
def test_a_fit_that_makes_no_sense(here, capsys, options, complaint):
    assert complaint in failed(capsys, "fit", "houses.csv", "--out", "m.livi", *options)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a|b\n" + "1|2\n" * 9, "it has a|b alone; if another character separates the columns, pass --delimiter."),
        ("price|b\n" + "1|2\n" * 9, "it has price|b alone; if another character separates"),
        ("a,b\n1,2\n", "expected at least 5 rows to fit to, got 1; add rows."),
        ("a,b\n" + "".join(f"{i},2024-01-{i:02}\n" for i in range(1, 29)), "dates cannot be predicted"),
        ("a,b\n" + "".join(f"{i},{i:02}/01/2024\n" for i in range(1, 29)), "dates cannot be predicted"),
        ("a,c\n" + "1,2\n" * 9, "expected a column 'b', got none of that name; it has a, c."),
        ("a,c,d,e,f,g,h,i,j\n1,2,3,4,5,6,7,8,9\n", "it has a, c, d, e, f, g, h, i and 1 more."),
        ("a,b\n" + "".join(f'{i},"{i}.471,15 €"\n' for i in range(1, 29)), "1234.5, or pass --decimal comma."),
    ],
    ids=[
        "another delimiter",
        "another delimiter after the target",
        "one row",
        "dates",
        "other dates",
        "no b",
        "many columns",
        "German prices",
    ],
)
def test_a_file_that_makes_no_sense(here, capsys, text, complaint):
    Path("odd.csv").write_text(text, encoding="utf-8")
    target = "price" if "|" in text else "b"
    assert complaint in failed(capsys, "fit", "odd.csv", "--target", target, "--out", "m.livi", "--delimiter", ",")


def test_words_alone_are_no_gaps(here, capsys):
    line = failed(capsys, "fit", "houses.csv", "--out", "m.livi", "--target", "town", "--task", "regression")
    assert "--missing" not in line


def test_conformal_intervals_need_rows(here, capsys):
    pd.read_csv("houses.csv").head(40).to_csv("few.csv", index=False)
    line = failed(capsys, "fit", "few.csv", "--target", "price", "--out", "m.livi", "--interval", "conformal")
    assert "expected at least 45 rows to fit to for conformal intervals, got 32" in line


def test_rows_without_a_target_are_left_out_of_a_fit_and_of_an_evaluation(here, model, capsys):
    edit("houses.csv", 3, "price", "")
    edit("houses.csv", 4, "price", "NA")
    arguments = [
        "fit",
        "houses.csv",
        "--target",
        "price",
        "--out",
        "m.livi",
        "--steps",
        "2",
        "--hidden",
        "2",
        "--allow-poor",
    ]
    assert cli.main(arguments) == 0
    assert "note: left out: 2 of 80 rows, which have no 'price'" in capsys.readouterr().err
    pd.read_csv("houses.csv").drop(index=[1, 2]).to_csv("less.csv", index=False)
    for name in ("houses", "less"):
        assert cli.main(["evaluate", "houses.livi", f"{name}.csv", "--json", f"{name}.json"]) == 0
    out, err = capsys.readouterr()
    assert "80 rows of houses.csv, without 2 that have no 'price'" in out
    assert "note: houses.csv: left out: 2 of 80 rows, which have no 'price'" in err
    one, other = (json.loads((here / f"{name}.json").read_text())["metrics"] for name in ("houses", "less"))
    assert one == other
    line = failed(capsys, "evaluate", "houses.livi", "houses.csv", "--strict")
    assert "houses.csv, row 3, column 'price': expected a value, got none; leave the row out." in line


def test_whole_numbers_as_classes_are_said(here, capsys):
    arguments = [
        "fit",
        "houses.csv",
        "--target",
        "rooms",
        "--out",
        "m.livi",
        "--steps",
        "2",
        "--hidden",
        "2",
        "--allow-poor",
    ]
    assert cli.main(arguments) == 0
    assert (
        "note: 'rooms' has 5 different whole numbers, taken as classes; pass --task regression"
        in capsys.readouterr().err
    )
    assert cli.main([*arguments, "--task", "regression", "--force"]) == 0
    assert "regression of rooms" in capsys.readouterr().out


def test_an_unknown_category_is_a_warning_or_with_strict_an_error(here, model, capsys):
    edit("new.csv", 4, "town", "Paris")
    assert cli.main(["predict", "houses.livi", "new.csv", "--out", "p.csv"]) == 0
    err = capsys.readouterr().err
    assert "note: new.csv, column 'town', row 4: not seen in the fit: 'Paris'; the prediction rests on the other" in err
    line = failed(capsys, "predict", "houses.livi", "new.csv", "--out", "q.csv", "--strict")
    assert "new.csv, column 'town': row 4: not seen in the fit: 'Paris'; drop --strict to go on." in line


def test_columns_may_come_in_any_order_with_others_but_not_be_missing(here, model, capsys):
    frame = pd.read_csv("new.csv")
    assert cli.main(["predict", "houses.livi", "new.csv", "--out", "p.csv"]) == 0
    frame[frame.columns[::-1]].assign(more=1).to_csv("other.csv", index=False)
    assert cli.main(["predict", "houses.livi", "other.csv", "--out", "q.csv"]) == 0
    assert "note: other.csv: ignored, since the fit had no such column: 'more'" in capsys.readouterr().err
    assert (here / "p.csv").read_text() == (here / "q.csv").read_text()
    frame.drop(columns=["area", "town"]).to_csv("less.csv", index=False)
    line = failed(capsys, "predict", "houses.livi", "less.csv", "--out", "r.csv")
    assert "less.csv: expected the columns of the fit, got none named 'area', 'town'" in line


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("area", "big", "row 5, column 'area': expected a number, got 'big'"),
        ("rooms", "-inf", "row 5, column 'rooms': expected a number below"),
        ("built", "long ago", "row 5, column 'built': expected a date such as 2024-02-29, got 'long ago'"),
    ],
)
def test_a_value_that_does_not_parse_is_named(here, model, capsys, column, value, complaint):
    edit("new.csv", 5, column, value)
    assert complaint in failed(capsys, "predict", "houses.livi", "new.csv", "--out", "p.csv")


def test_gaps_that_the_fit_did_not_have_are_counted(here, model, capsys):
    for row in (2, 3, 5, 8):
        edit("new.csv", row, "rooms", "")
    assert cli.main(["predict", "houses.livi", "new.csv", "--out", "p.csv"]) == 0
    expected = "column 'rooms', rows 2, 3, 5 and 1 more: missing, but never in the fit; predictions average over the"
    assert expected in capsys.readouterr().err


def test_an_evaluation_leaves_new_classes_out_and_refuses_to_have_no_targets(here, model, homes, capsys):
    homes.iloc[80:].to_csv("test.csv", index=False)
    homes.iloc[80:].drop(index=84).to_csv("less.csv", index=False)
    edit("test.csv", 6, "dear", "maybe")
    for name in ("test", "less"):
        assert cli.main(["evaluate", "dear.livi", f"{name}.csv", "--json", f"{name}.json"]) == 0
    out, err = capsys.readouterr()
    assert "40 rows of test.csv, without 1 of classes that the fit has not seen" in out
    assert "note: test.csv: left out: 1 of 40 rows, of classes not seen in the fit: 'maybe' (1)" in err
    one, other = (json.loads((here / f"{name}.json").read_text()) for name in ("test", "less"))
    assert one["rows"] == 39
    assert one["metrics"] == other["metrics"]
    line = failed(capsys, "evaluate", "dear.livi", "test.csv", "--strict")
    assert "test.csv, row 6, column 'dear': expected a class of the fit (no, yes), got 'maybe'." in line
    homes.iloc[80:].assign(dear="maybe").to_csv("test.csv", index=False)
    assert "expected a class of the fit (no, yes)" in failed(capsys, "evaluate", "dear.livi", "test.csv")
    assert "expected the target 'price' among the columns" in failed(capsys, "evaluate", "houses.livi", "new.csv")


def test_existing_files_are_replaced_only_by_force(here, model, capsys):
    (here / "old").write_text("old")
    for arguments in (
        ["fit", "none.csv", "--target", "price", "--out", "old"],
        ["fit", "none.csv", "--target", "price", "--out", "new", "--report", "old"],
        ["evaluate", "houses.livi", "none.csv", "--json", "old"],
        ["evaluate", "houses.livi", "none.csv", "--report", "old"],
    ):
        assert (
            failed(capsys, *arguments)
            == "livi: old: expected a new file, got one that exists; pass --force to replace it."
        )
    (here / "old.csv").write_text("old")
    assert "--force" in failed(capsys, "predict", "houses.livi", "new.csv", "--out", "old.csv")
    assert cli.main(["predict", "houses.livi", "new.csv", "--out", "old.csv", "--force"]) == 0
    assert (here / "old.csv").read_text().startswith("row,mean")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fit", "houses.csv", "--target", "price", "--out", "none/m.livi"], "expected an existing folder"),
        (["fit", "houses.csv", "--target", "price", "--out", "."], "got a folder"),
        (["fit", "houses.csv", "--target", "price", "--out", "houses.csv", "--force"], "expected another file"),
        (["fit", "houses.csv", "--target", "price", "--out", "m", "--report", "m"], "expected another file"),
        (["predict", "houses.livi", "new.csv", "--out", "new.csv", "--force"], "expected another file"),
        (["fit", "none.csv", "--target", "price", "--out", "m.livi"], "none.csv: expected a readable file"),
        (["fit", ".", "--target", "price", "--out", "m.livi"], "expected a file, got a folder"),
        (["predict", "none.livi", "new.csv", "--out", "p.csv"], "none.livi: expected a file"),
        (["predict", "new.csv", "new.csv", "--out", "p.csv"], "new.csv: expected a safetensors file from livi"),
        (["evaluate", ".", "new.csv"], "expected a file, got a folder"),
    ],
)
def test_files_that_cannot_be_read_or_written(here, model, capsys, arguments, complaint):
    assert complaint in failed(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fit", "houses.csv", "--out", "m.livi"], "--target"),
        (["fit", "houses.csv", "--target", "y", "--out", "m", "--task", "ranking"], "invalid choice"),
        (["fit", "houses.csv", "--target", "y", "--out", "m", "--steps", "0"], "expected a number from 1 on, got '0'"),
        (
            ["fit", "houses.csv", "--target", "y", "--out", "m", "--steps", "ten"],
            "expected a number from 1 on, got 'ten'",
        ),
        (["fit", "houses.csv", "--target", "y", "--out", "m", "--hidden", "5,x"], "got 'x'"),
        (["fit", "houses.csv", "--target", "y", "--out", "m", "--hidden", ","], "expected widths"),
        (["fit", "houses.csv", "--target", "y", "--out", "m", "--seed", "-1"], "--seed"),
        (["fit", "houses.csv", "--target", "y", "--out", "m", "--validation", "1"], "from 0 to below 1, got '1'"),
        (["fit", "houses.csv", "--target", "y", "--out", "m", "--validation", "some"], "got 'some'"),
        (["fit", "houses.csv", "--target", "y", "--out", "m", "--delimiter", "||"], "expected one character"),
        (["predict", "m.livi", "new.csv", "--out", "p.txt"], "ends in .csv or .parquet"),
        (["predict", "m.livi", "new.csv", "--out", "p.csv", "--fast"], "--fast"),
        (["evaluate", "m.livi"], "DATA"),
    ],
)
def test_wrong_usage_has_exit_code_two(here, capsys, arguments, complaint):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_model_of_something_else_is_refused(here, capsys):
    from livi.tables.estimators import LIVIRegressor

    estimator = LIVIRegressor((2,), steps=2, random_state=0).fit(np.arange(10.0)[:, None], np.arange(10.0))
    estimator.save("bare.livi")
    line = failed(capsys, "predict", "bare.livi", "new.csv", "--out", "p.csv")
    assert "bare.livi: expected a model written by livi fit, got an estimator that was fitted to no table." in line
