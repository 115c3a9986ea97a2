"""livi fit, predict and evaluate from end to end: what they print, write and refuse."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from livi import cli
from livi.cli.options import names
from livi.inference.progress import Progress
from livi.tables import predicting

SMALL = ("--steps", "20", "--hidden", "4")


@pytest.fixture(scope="module")
def houses():
    """Rows with all kinds of columns, gaps, and columns to drop."""
    random = np.random.default_rng(0)
    rows = 120
    frame = pd.DataFrame(
        {
            "id": [f"h{i}" for i in range(rows)],
            "area": random.normal(100.0, 20.0, rows).round(1),
            "rooms": random.integers(1, 6, rows),
            "town": random.choice(["Aarhus", "Bath", "Cork"], rows),
            "built": [f"20{10 + i % 12}-0{1 + i % 9}-11" for i in range(rows)],
            "country": "X",
        }
    )
    frame["price"] = (1000.0 * frame["area"] + 5000.0 * frame["rooms"] + random.normal(0.0, 3000.0, rows)).round(2)
    frame["dear"] = np.where(frame["price"] > frame["price"].median(), "yes", "no")
    frame.loc[5:12, "area"] = np.nan
    frame.loc[20:25, "town"] = None
    return frame


@pytest.fixture
def here(tmp_path, monkeypatch, houses):
    """A folder to work in, with houses.csv, test.csv and new.csv."""
    monkeypatch.chdir(tmp_path)
    houses.iloc[:80].drop(columns="dear").to_csv("houses.csv", index=False)
    houses.iloc[80:].drop(columns="dear").to_csv("test.csv", index=False)
    houses.iloc[80:90].drop(columns=["dear", "price"]).to_csv("new.csv", index=False)
    return tmp_path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, houses):
    """The bytes of a model of price and of one of dear."""
    folder = tmp_path_factory.mktemp("models")
    models = []
    for target, other in (("price", "dear"), ("dear", "price")):
        houses.iloc[:80].drop(columns=other).to_csv(folder / "houses.csv", index=False)
        arguments = ["fit", str(folder / "houses.csv"), "--target", target, "--out", str(folder / f"{target}.livi")]
        assert cli.main([*arguments, *SMALL, "--quiet"]) == 0
        models.append((folder / f"{target}.livi").read_bytes())
    return models


@pytest.fixture
def model(here, fitted):
    (here / "houses.livi").write_bytes(fitted[0])
    (here / "dear.livi").write_bytes(fitted[1])


def failed(capsys, *arguments):
    """The one line that a command fails with."""
    before = _files()
    capsys.readouterr()
    assert cli.main(list(arguments)) == 1
    assert _files() == before
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1
    assert "--debug" not in lines[0]
    return lines[0]


def _files():
    found = {}
    for entry in os.scandir():
        if entry.is_file():
            with open(entry, "rb") as file:
                found[entry.name] = file.read()
    return found


def edit(name, row, column, value):
    """Change one cell of a CSV file; rows are counted as in the file."""
    frame = pd.read_csv(name, dtype=str, keep_default_na=False)
    frame.loc[row - 2, column] = value
    frame.to_csv(name, index=False)


# --- the three commands ---------------------------------------------------------------------------


def test_fit_predict_and_evaluate(here, capsys):
    assert cli.main(["fit", "houses.csv", "--target", "price", "--out", "houses.livi", *SMALL]) == 0
    out, err = capsys.readouterr()
    assert "regression of price" in out
    assert "64 fitted, 16 held out" in out
    assert "2 numeric, 1 date, 1 categorical; dropped: id, country" in out
    assert "16 held-out rows of houses.csv" in out
    assert "RMSE" in out
    assert out.endswith("written: houses.livi\n")
    assert "note: dropped: column 'id': 64 different values in 64 rows" in err
    assert "note: dropped: column 'country': the same value in all rows, 'X'" in err
    assert "20/20" in err

    assert cli.main(["predict", "houses.livi", "new.csv", "--out", "predictions.csv"]) == 0
    assert capsys.readouterr().out == "written: predictions.csv, 10 rows\n"
    predictions = pd.read_csv("predictions.csv")
    assert list(predictions) == ["row", "mean", "std_epistemic", "std_total", "p05", "p50", "p95"]
    assert predictions["row"].tolist() == list(range(2, 12))

    assert cli.main(["evaluate", "houses.livi", "test.csv", "--json", "scores.json"]) == 0
    out = capsys.readouterr().out
    assert "40 rows of test.csv" in out
    assert "The 90% intervals held" in out
    scores = json.loads((here / "scores.json").read_text())
    truth = pd.read_csv("test.csv")["price"]
    assert cli.main(["predict", "houses.livi", "test.csv", "--out", "all.parquet", "--quiet"]) == 0
    means = pd.read_parquet("all.parquet")["mean"]
    assert scores["metrics"]["rmse"] == pytest.approx(np.sqrt(((means - truth) ** 2).mean()))
    assert scores["rows"] == 40
    assert [line["level"] for line in scores["coverage"]] == [0.5, 0.8, 0.9, 0.95]


def test_classification_from_parquet(here, houses, capsys):
    houses.iloc[:80].drop(columns="price").to_parquet("houses.parquet", index=False)
    houses.iloc[80:].drop(columns="price").to_parquet("test.parquet", index=False)
    assert cli.main(["fit", "houses.parquet", "--target", "dear", "--out", "m.livi", *SMALL, "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert "classification of dear" in out
    assert "Accuracy" in out
    assert err == ""
    assert cli.main(["predict", "m.livi", "test.parquet", "--out", "p.parquet", "--keep"]) == 0
    predictions = pd.read_parquet("p.parquet")
    first = ["row", "class", "p_no", "p_yes", "entropy", "mutual_information"]
    assert list(predictions) == [*first, *houses.drop(columns="price")]
    assert set(predictions["class"]) <= {"no", "yes"}
    assert cli.main(["evaluate", "m.livi", "test.parquet"]) == 0
    out = capsys.readouterr().out
    assert "AUROC" in out
    assert "The 90% sets held" in out


def test_csv_and_parquet_are_predicted_alike(here, model, houses):
    houses.iloc[80:90].to_parquet("new.parquet")
    assert cli.main(["predict", "houses.livi", "new.csv", "--out", "one.csv", "--quiet"]) == 0
    assert cli.main(["predict", "houses.livi", "new.parquet", "--out", "other.csv", "--quiet"]) == 0
    one, other = pd.read_csv("one.csv"), pd.read_csv("other.csv")
    assert one["mean"].tolist() == other["mean"].tolist()
    assert other["row"].tolist() == list(range(1, 11))


def test_the_seed_decides_everything(here):
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        arguments = ["fit", "houses.csv", "--target", "price", "--out", f"{name}.livi", "--seed", seed, "--quiet"]
        assert cli.main([*arguments, "--steps", "3", "--hidden", "2"]) == 0
        assert cli.main(["predict", f"{name}.livi", "new.csv", "--out", f"{name}.csv", "--quiet"]) == 0
    a, b, c = ((here / f"{name}.csv").read_text() for name in "abc")
    assert a == b
    assert a != c


def test_predictions_can_go_to_stdout(here, model, capsys):
    assert cli.main(["predict", "houses.livi", "new.csv", "--out", "-"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("row,mean")
    assert len(out.splitlines()) == 11


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_rows_that_take_long_are_counted_on_stderr_unless_quiet(here, model, monkeypatch, capsys, command):
    monkeypatch.setattr(predicting, "PATIENCE", -1.0)
    arguments = [command, "houses.livi", "test.csv", *(["--out", "-"] if command == "predict" else [])]
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert "predicting [####################] 0 s left, 40/40" in err
    assert "predicting [" not in out
    assert cli.main([*arguments, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_options_reach_the_estimator(here, capsys):
    options = ["--activation", "tanh", "--noise", "varying", "--components", "2", "--threads", "1", "--validation", "0"]
    arguments = ["fit", "houses.csv", "--target", "price", "--out", "m.livi", "--drop", "town,built", "--quiet"]
    assert cli.main([*arguments, *options, "--categorical", "rooms", "--steps", "3", "--hidden", "3,2"]) == 0
    out = capsys.readouterr().out
    assert "80 fitted, 0 held out" in out
    assert "1 numeric, 1 categorical; dropped: id, country" in out
    assert "7 - 3 - 2 - 1, tanh; noise linear in the columns" in out
    assert "2 x MLP" in out
    assert "held-out rows of" not in out


def test_conformal_models_add_their_intervals_and_sets(here, houses):
    houses.iloc[:80].to_csv("both.csv", index=False)
    for target, more in (("price", ["lower", "upper"]), ("dear", ["set"])):
        arguments = ["fit", "both.csv", "--target", target, "--out", f"{target}.livi", "--interval", "conformal"]
        assert cli.main([*arguments, "--steps", "3", "--hidden", "2", "--quiet"]) == 0
        houses.iloc[80:].to_csv("more.csv", index=False)
        assert cli.main(["predict", f"{target}.livi", "more.csv", "--out", f"{target}.csv"]) == 0
        assert list(pd.read_csv(f"{target}.csv"))[-len(more) :] == more
        assert cli.main(["evaluate", f"{target}.livi", "more.csv"]) == 0


def test_another_delimiter(here, model, capsys):
    frame = pd.read_csv("new.csv")
    frame.to_csv("bars.csv", sep="|", index=False)
    frame.to_csv("tabs.csv", sep="\t", index=False)
    assert cli.main(["predict", "houses.livi", "bars.csv", "--out", "a.csv", "--delimiter", "|"]) == 0
    assert cli.main(["predict", "houses.livi", "tabs.csv", "--out", "b.csv", "--delimiter", "tab"]) == 0
    assert (here / "a.csv").read_text() == (here / "b.csv").read_text()
    assert "got none named 'area'" in failed(capsys, "predict", "houses.livi", "bars.csv", "--out", "c.csv")


def test_decimal_commas(here, model, houses, capsys):
    houses.iloc[80:].drop(columns="dear").to_csv("euro.csv", index=False, sep=";", decimal=",")
    assert cli.main(["predict", "houses.livi", "euro.csv", "--out", "euro_out.csv", "--decimal", "comma"]) == 0
    assert cli.main(["predict", "houses.livi", "test.csv", "--out", "test_out.csv"]) == 0
    pd.testing.assert_frame_equal(pd.read_csv("euro_out.csv"), pd.read_csv("test_out.csv"))
    assert "or pass --decimal comma" in failed(capsys, "predict", "houses.livi", "euro.csv", "--out", "p.csv")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b", ("a", "b")),
        (" a , b,,", ("a", "b")),
        ('"price, EUR",id', ("price, EUR", "id")),
        ('"a" , "b,c"', ("a", "b,c")),
        ('5" pipe,b', ('5" pipe', "b")),
        ("two\nlines", ("two\nlines",)),
        ("", ()),
    ],
)
def test_names_are_split_at_commas_that_are_not_quoted(text, expected):
    assert names(text) == expected


def test_a_fit_to_three_rows_asks_for_more(here, capsys):
    pd.read_csv("houses.csv").head(3).to_csv("three.csv", index=False)
    line = failed(capsys, "fit", "three.csv", "--target", "price", "--out", "m.livi")
    assert line.endswith("expected at least 5 rows to fit to, got 3; add rows.")


def test_reports_are_written(here, model, capsys):
    assert cli.main(["evaluate", "houses.livi", "test.csv", "--report", "report.html"]) == 0
    assert capsys.readouterr().out.endswith("written: report.html\n")
    page = (here / "report.html").read_text()
    assert "<html" in page
    assert "price" in page
    arguments = ["fit", "houses.csv", "--target", "price", "--out", "m.livi", "--report", "fit.html", *SMALL, "--quiet"]
    assert cli.main(arguments) == 0
    assert "houses.csv" in (here / "fit.html").read_text()


# --- what is refused ------------------------------------------------------------------------------


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
        (["--target", "price", "--validation", "0.99"], "expected at least 5 rows to fit to, got 1"),
        (["--target", "price", "--drop", "id,area,rooms,town,built"], "expected a column to predict 'price' from"),
    ],
)
def test_a_fit_that_makes_no_sense(here, capsys, options, complaint):
    assert complaint in failed(capsys, "fit", "houses.csv", "--out", "m.livi", *options)


def test_conformal_intervals_need_rows(here, capsys):
    pd.read_csv("houses.csv").head(40).to_csv("few.csv", index=False)
    line = failed(capsys, "fit", "few.csv", "--target", "price", "--out", "m.livi", "--interval", "conformal")
    assert "expected at least 45 rows to fit to for conformal intervals, got 32" in line


def test_rows_without_a_target_are_left_out_of_a_fit_but_not_of_an_evaluation(here, model, capsys):
    edit("houses.csv", 3, "price", "")
    edit("houses.csv", 4, "price", "NA")
    arguments = ["fit", "houses.csv", "--target", "price", "--out", "m.livi", "--steps", "2", "--hidden", "2"]
    assert cli.main(arguments) == 0
    assert "note: left out: 2 of 80 rows, which have no 'price'" in capsys.readouterr().err
    line = failed(capsys, "evaluate", "houses.livi", "houses.csv")
    assert "houses.csv, row 3, column 'price': expected a value, got none; leave the row out." in line


def test_whole_numbers_as_classes_are_said(here, capsys):
    arguments = ["fit", "houses.csv", "--target", "rooms", "--out", "m.livi", "--steps", "2", "--hidden", "2"]
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


def test_gaps_that_the_fit_did_not_have_are_filled_and_counted(here, model, capsys):
    for row in (2, 3, 5, 8):
        edit("new.csv", row, "rooms", "")
    assert cli.main(["predict", "houses.livi", "new.csv", "--out", "p.csv"]) == 0
    expected = "column 'rooms', rows 2, 3, 5 and 1 more: missing, but never in the fit; the median 3 stands in"
    assert expected in capsys.readouterr().err


def test_an_evaluation_refuses_new_classes_and_missing_targets(here, model, houses, capsys):
    houses.iloc[80:].to_csv("test.csv", index=False)
    edit("test.csv", 6, "dear", "maybe")
    line = failed(capsys, "evaluate", "dear.livi", "test.csv")
    assert "test.csv, row 6, column 'dear': expected a class of the fit (no, yes), got 'maybe'." in line
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
        (["fit", "houses.csv", "--target", "price"], "--out"),
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


# --- interruptions, tracebacks, help --------------------------------------------------------------


def test_an_interrupted_fit_leaves_no_file(here, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "show", interrupted)
    before = _files()
    assert cli.main(["fit", "houses.csv", "--target", "price", "--out", "m.livi", *SMALL]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "livi: interrupted"
    assert _files() == before


def test_debug_shows_the_traceback_in_both_places(here, capsys):
    for arguments in (["--debug", "fit"], ["fit", "--debug"]):
        assert cli.main([*arguments, "none.csv", "--target", "price", "--out", "m.livi"]) == 1
        assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate"])
def test_help_has_examples(capsys, command):
    with pytest.raises(SystemExit) as caught:
        cli.main([command, "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert f"  livi {command} houses" in out
    assert "Missing:" in out


def run_python(script, **options):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, **options)


def test_help_loads_no_optional_package():
    names = ("sklearn", "pandas", "plotly", "pyarrow", "scipy")
    script = (
        "import sys, contextlib\nfrom livi import cli\n"
        "with contextlib.suppress(SystemExit): cli.main(['fit', '--help'])\n"
        f"print([name for name in {names!r} if name in sys.modules], file=sys.stderr)"
    )
    assert run_python(script).stderr == "[]\n"


@pytest.mark.parametrize(("package", "extra"), [("sklearn", "tables"), ("pandas", "tables"), ("pyarrow", "parquet")])
def test_a_missing_package_is_named_with_its_extra(here, model, package, extra):
    script = (
        f"import sys; sys.modules[{package!r}] = None\nfrom livi import cli\n"
        "sys.exit(cli.main(['predict', 'houses.livi', 'none.csv', '--out', 'p.parquet']))"
    )
    process = run_python(script)
    assert process.returncode == 1
    assert f'pip install "livi[{extra}]"' in process.stderr
    assert len(process.stderr.splitlines()) == 1


def test_a_report_without_plotly_is_refused_before_the_fit(here):
    script = (
        "import sys; sys.modules['plotly'] = None\nfrom livi import cli\n"
        "sys.exit(cli.main(['fit', 'houses.csv', '--target', 'price', '--out', 'm.livi', '--report', 'r.html']))"
    )
    process = run_python(script)
    assert process.returncode == 1
    assert 'pip install "livi[tables]"' in process.stderr
    assert not (here / "m.livi").exists()


def test_a_reader_that_goes_away_is_no_traceback(here, model):
    pd.concat([pd.read_csv("new.csv")] * 300).to_csv("big.csv", index=False)
    command = [sys.executable, "-m", "livi", "predict", "houses.livi", "big.csv", "--out", "-", "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 1
    assert err == b""
