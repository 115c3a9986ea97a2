"""livi fit, predict and evaluate from end to end: what they print and write, interruptions, help."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from support.table_commands import SMALL, failed, run_python

from livi import cli
from livi.cli.options import names
from livi.tables import predicting

# --- the three commands ---------------------------------------------------------------------------


def test_fit_predict_and_evaluate(here, capsys):
    assert cli.main(["fit", "houses.csv", "--target", "price", *SMALL]) == 0  # --out is houses.livi
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
    assert err.endswith("next: livi predict houses.livi NEW.csv --out predictions.csv\n")

    assert cli.main(["predict", "houses.livi", "new.csv", "--out", "predictions.csv"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("written: predictions.csv, 10 rows; Monte Carlo error ")
    assert "networks a row" in out
    assert err.endswith("next: livi evaluate houses.livi TEST.csv --report report.html\n")
    predictions = pd.read_csv("predictions.csv")
    assert list(predictions) == ["row", "mean", "std_epistemic", "std_total", "p05", "p50", "p95"]
    assert predictions["row"].tolist() == list(range(2, 12))

    assert cli.main(["evaluate", "houses.livi", "test.csv", "--json", "scores.json"]) == 0
    out, err = capsys.readouterr()
    assert err.endswith("next: livi evaluate houses.livi test.csv --report report.html\n")
    assert "40 rows of test.csv" in out
    assert "The 90% intervals held" in out
    scores = json.loads((here / "scores.json").read_text())
    truth = pd.read_csv("test.csv")["price"]
    assert cli.main(["predict", "houses.livi", "test.csv", "--out", "all.parquet", "--quiet"]) == 0
    means = pd.read_parquet("all.parquet")["mean"]
    assert scores["metrics"]["rmse"] == pytest.approx(np.sqrt(((means - truth) ** 2).mean()))
    assert scores["rows"] == 40
    assert [line["level"] for line in scores["coverage"]] == [0.5, 0.8, 0.9, 0.95]


def test_a_fit_worse_than_the_mean_ends_with_a_code_of_its_own(here, homes, capsys):
    random = np.random.default_rng(0)
    noise = pd.DataFrame(random.standard_t(1.5, size=(60, 8)), columns=[f"x{i}" for i in range(8)])
    noise.assign(y=random.normal(size=60)).to_csv("noise.csv", index=False)
    arguments = ["fit", "noise.csv", "--target", "y", "--out", "m.livi", "--steps", "2", "--hidden", "2", "--force"]
    assert cli.main([*arguments, "--quiet", "--report", "fit.html"]) == 3
    out, err = capsys.readouterr()
    assert "\nWorse than the mean: RMSE" in out
    assert err.startswith("livi: m.livi was written, but should not be used as it is. Worse than the mean: RMSE")
    assert len(err.splitlines()) == 1
    assert cli.main(arguments) == 3
    assert "next: livi predict" not in capsys.readouterr().err  # which would be with a model not to be used
    assert "Worse than the mean" in (here / "fit.html").read_text()
    assert cli.main(["predict", "m.livi", "noise.csv", "--out", "p.csv"]) == 0
    assert cli.main([*arguments, "--allow-poor"]) == 0
    assert "Worse than the mean" in capsys.readouterr().out


def test_classification_from_parquet(here, homes, capsys):
    homes.iloc[:80].drop(columns="price").to_parquet("houses.parquet", index=False)
    homes.iloc[80:].drop(columns="price").to_parquet("test.parquet", index=False)
    assert cli.main(["fit", "houses.parquet", "--target", "dear", "--out", "m.livi", *SMALL, "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert "classification of dear" in out
    assert "Accuracy" in out
    assert err == ""
    assert cli.main(["predict", "m.livi", "test.parquet", "--out", "p.parquet", "--keep"]) == 0
    predictions = pd.read_parquet("p.parquet")
    first = ["row", "class", "p_no", "p_yes", "entropy", "mutual_information"]
    assert list(predictions) == [*first, *homes.drop(columns="price")]
    assert set(predictions["class"]) <= {"no", "yes"}
    assert cli.main(["evaluate", "m.livi", "test.parquet"]) == 0
    out = capsys.readouterr().out
    assert "AUROC" in out
    assert "The 90% sets held" in out


def test_csv_and_parquet_are_predicted_alike(here, model, homes):
    homes.iloc[80:90].to_parquet("new.parquet")
    assert cli.main(["predict", "houses.livi", "new.csv", "--out", "one.csv", "--quiet"]) == 0
    assert cli.main(["predict", "houses.livi", "new.parquet", "--out", "other.csv", "--quiet"]) == 0
    one, other = pd.read_csv("one.csv"), pd.read_csv("other.csv")
    assert one["mean"].tolist() == other["mean"].tolist()
    assert other["row"].tolist() == list(range(1, 11))


def test_the_seed_decides_everything(here):
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        arguments = ["fit", "houses.csv", "--target", "price", "--out", f"{name}.livi", "--seed", seed, "--quiet"]
        assert cli.main([*arguments, "--steps", "3", "--hidden", "2", "--allow-poor"]) == 0
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
    monkeypatch.setattr(predicting, "PROGRESS_DELAY", -1.0)
    arguments = [command, "houses.livi", "test.csv", *(["--out", "-"] if command == "predict" else [])]
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    shown = "predicting 40 rows" if command == "predict" else "predicting [####################] 0 s left, 40/40"
    assert shown in err  # a file that is predicted is read part by part, and nobody knows its length
    assert "predicting" not in out
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


def test_where_no_class_has_a_row_to_spare_it_is_said_that_none_is_held_out(here, capsys):
    rows = [f"{number},{number % 20}" for number in range(80)]
    (here / "few.csv").write_text("\n".join(["x,kind", *(f"{row}x" for row in rows)]) + "\n")
    arguments = ["fit", "few.csv", "--target", "kind", "--out", "m.livi", "--steps", "3"]
    assert cli.main(arguments) == 0
    said = capsys.readouterr()
    assert "80 fitted, 0 held out" in said.out
    assert "no rows were held out, for 20% of each class is less than a row" in said.out + said.err


def test_conformal_models_add_their_intervals_and_sets(here, homes):
    homes.iloc[:80].to_csv("both.csv", index=False)
    for target, more in (("price", ["lower", "upper"]), ("dear", ["set"])):
        arguments = ["fit", "both.csv", "--target", target, "--out", f"{target}.livi", "--interval", "conformal"]
        assert cli.main([*arguments, "--steps", "3", "--hidden", "2", "--quiet", "--allow-poor"]) == 0
        homes.iloc[80:].to_csv("more.csv", index=False)
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


def test_decimal_commas(here, model, homes, capsys):
    homes.iloc[80:].drop(columns="dear").to_csv("euro.csv", index=False, sep=";", decimal=",")
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


# --- interruptions, tracebacks, help --------------------------------------------------------------


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
