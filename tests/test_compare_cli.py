"""livi compare on tables: what it prints and writes, and what it refuses before any work."""

import csv

import pytest
from support.table_commands import failed

from livi import cli

SMALL = ("--hidden", "4", "--gradients", "400")


def test_compare_prints_a_table_and_writes_page_and_numbers(here, capsys):
    arguments = ["--methods", "livi,ensemble,mc_dropout", "--out", "methods.csv", "--report", "methods.html"]
    assert cli.main(["compare", "houses.csv", "--target", "price", *SMALL, *arguments]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("method ")
    assert "16 held-out examples, 64 to fit to" in out
    assert out.endswith("written: methods.csv\nwritten: methods.html\n")
    assert "note: dropped: column 'id'" in err
    assert "fitting Deep ensemble" in err
    rows = {row["name"]: row for row in csv.DictReader((here / "methods.csv").read_text().splitlines())}
    assert rows.keys() == {"livi", "ensemble", "mc_dropout"}
    assert all(float(row["rmse"]) > 1.0 for row in rows.values())  # in the units of the prices
    assert (here / "methods.html").read_text().count("<tr>") == 4


def test_classes_are_compared_too(here, homes, capsys):
    homes.drop(columns="price").to_csv("homes.csv", index=False)
    arguments = ["--methods", "map,mean_field", "--quiet"]
    assert cli.main(["compare", "homes.csv", "--target", "dear", *SMALL, *arguments]) == 0
    out, err = capsys.readouterr()
    assert "accuracy" in out
    assert "coverage" not in out
    assert err == ""


def test_an_option_that_resembles_another_by_its_dashes_alone_is_not_taken_for_it(capsys):
    with pytest.raises(SystemExit):
        cli.main(["compare", "t.csv", "--target", "t", "--steps", "60"])
    err = capsys.readouterr().err
    assert "arguments: --steps 60" in err
    assert "did you mean" not in err


def test_what_cannot_be_done_is_said_before_any_work(here, capsys):
    assert cli.main(["compare", "houses.csv", "--target", "price", "--methods", "swagg"]) == 1
    assert "got 'swagg'; did you mean 'swag'?" in capsys.readouterr().err
    assert "expected a column 'prize', got none" in failed(capsys, "compare", "houses.csv", "--target", "prize")
    with pytest.raises(SystemExit):
        cli.main(["compare", "houses.csv", "--target", "price", "--out", "methods.xlsx"])
    assert "expected a name that ends in .csv, .md, .txt or .json" in capsys.readouterr().err
