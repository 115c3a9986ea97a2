"""`livi bench public` in a few steps, on the tables that come with scikit-learn."""

import json

import pytest

from livi import cli
from livi.experiments.public_data import TABLES, split_frame


@pytest.mark.filterwarnings("ignore")
def test_the_command_fits_scores_and_goes_on_where_it_was(tmp_path, capsys):
    command = ["bench", "public", "--quick", "--data", "diabetes,wine", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    out = capsys.readouterr().out
    for text in ("| diabetes (", "| wine (", "Worst fifth", "boosting", "R2 below 0: on "):
        assert text in out
    document = json.loads((tmp_path / "public.json").read_text(encoding="utf-8"))
    assert len(document["rows"]) == 4
    assert all(row["error"] is None for row in document["rows"])
    assert cli.main(command) == 0
    assert json.loads((tmp_path / "public.json").read_text(encoding="utf-8"))["rows"] == document["rows"]


def test_a_fifth_of_the_rows_is_held_out_and_the_seed_decides_which():
    fitted, held = split_frame("diabetes", 0)
    assert len(fitted) + len(held) == 442
    assert len(held) == 88
    assert not held.equals(split_frame("diabetes", 1)[1])
    assert held.equals(split_frame("diabetes", 0)[1])


def test_there_are_fifteen_regressions():
    assert sum(table.task == "regression" for table in TABLES.values()) >= 15


def test_a_split_below_zero_is_wrong_usage(capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench", "public", "--data", "wine", "--first-split", "-1"])
    assert "first_split: expected 0 or more, got -1" in capsys.readouterr().err
