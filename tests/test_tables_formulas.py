"""Text that a spreadsheet would run as a formula, written to files and read again."""

import json

import numpy as np
import pandas as pd
import pytest
from support.table_commands import SMALL

from livi import cli
from livi.tables import frames_bytes, read_table
from livi.tables.formulas import protected, unprotected

BAD = "=HYPERLINK(1)"


@pytest.mark.parametrize(
    "text", ["=1+1", "+49 30", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "-", "-inf", "'=1", "''-x", "＝1"]
)
def test_formulas_get_a_quote_and_lose_it_again(text):
    assert protected(text) == "'" + text
    assert unprotected(protected(text)) == text


@pytest.mark.parametrize("text", ["-1.5", "+2e-3", "-.5", "a=b", "'tis", "'-1.5", "'", "", "2024-01-02", "x-1"])
def test_other_text_and_numbers_stay(text):
    assert protected(text) == text
    assert unprotected(text) == text


def test_a_frame_is_protected_in_csv_alone():
    frame = pd.DataFrame({"=a": [-1.5, 2.0], "-b": ["@x", None], "c": ["ok", "-3"], "d": pd.array([-1, None], "Int64")})
    lines = b"".join(frames_bytes([frame], ".csv")).decode().splitlines()
    assert lines == ["'=a,'-b,c,d", "-1.5,'@x,ok,-1", "2.0,,-3,"]
    assert b"".join(frames_bytes([frame], ".csv", raw_text=True)).decode().splitlines()[:2] == [
        "=a,-b,c,d",
        "-1.5,@x,ok,-1",
    ]
    assert list(frame) == ["=a", "-b", "c", "d"]
    assert frame["-b"][0] == "@x"


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A folder with a model whose classes, columns and categories begin like formulas, and a file of its kind."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"=x": random.normal(size=80).round(3), "kind": random.choice(["@a", "+b"], 80)})
    frame["class it"] = np.where(frame["=x"] > 0, BAD, "-good")
    frame.to_csv("data.csv", index=False)
    arguments = ["--target", "class it", "--out", "m.livi", *SMALL, "--interval", "conformal", "--quiet"]
    assert cli.main(["fit", "data.csv", *arguments]) == 0
    return tmp_path


def test_predictions_hold_no_formulas_and_can_be_evaluated(evil, capsys):
    assert cli.main(["predict", "m.livi", "data.csv", "--out", "p.csv", "--keep", "--quiet"]) == 0
    written = pd.read_csv("p.csv", dtype=str, keep_default_na=False)
    for cell in [*written, *written.to_numpy().ravel()]:
        assert cell[:1] not in ("=", "+", "@")
        assert cell[:1] != "-" or float(cell) < 0
    assert set(written["class"]) <= {"'" + BAD, "'-good"}
    assert read_table("p.csv").columns["class it"].tolist() == read_table("data.csv").columns["class it"].tolist()

    for name in ("data.csv", "p.csv"):
        assert cli.main(["evaluate", "m.livi", name, "--json", f"{name}.json", "--quiet"]) == 0
    first, second = (json.loads((evil / f"{name}.json").read_text()) for name in ("data.csv", "p.csv"))
    assert first["metrics"] == second["metrics"]


def test_raw_text_parquet_and_stdout(evil, capsys):
    assert cli.main(["predict", "m.livi", "data.csv", "--out", "raw.csv", "--raw-text", "--keep", "--quiet"]) == 0
    assert cli.main(["predict", "m.livi", "data.csv", "--out", "p.parquet", "--keep", "--quiet"]) == 0
    for frame in (pd.read_csv("raw.csv"), pd.read_parquet("p.parquet")):
        assert {"=x", f"p_{BAD}"} <= set(frame)
        assert set(frame["class it"]) == {BAD, "-good"}
    capsys.readouterr()
    assert cli.main(["predict", "m.livi", "data.csv", "--out", "-", "--quiet"]) == 0
    assert f",{BAD}," not in capsys.readouterr().out
