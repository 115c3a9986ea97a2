"""The benchmark on tables: methods, going on after an interruption, and what is printed."""

import json
from dataclasses import replace

import pytest
import torch
from support.uci_files import write_uci

from livi import cli
from livi.experiments import table_bench, table_methods
from livi.experiments.scoreboard import best_of
from livi.experiments.table_bench import Config, available_methods, bench, fit_row
from livi.experiments.table_data import task_of
from livi.experiments.table_methods import FOR_TASK, METHODS, PACKAGES
from livi.experiments.table_text import JUDGED, KIND, text, verdicts

QUICK = Config(data=("diabetes", "wine"), methods=("ridge", "boosting"), splits=2, quick=True)


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


def suits(method, name):
    return FOR_TASK.get(method, task_of(name)) == task_of(name)


def same(rows, others):
    """Whether rows agree but for seconds."""
    timed = {"seconds": None, "whole_seconds": None}
    return [row | timed for row in rows] == [row | timed for row in others]


@pytest.mark.parametrize(
    ("name", "method"),
    [(name, method) for name in ("diabetes", "wine") for method in METHODS if suits(method, name)],
)
def test_every_method_answers_for_its_tasks_and_the_same_again(name, method):
    if method in PACKAGES:
        pytest.importorskip(PACKAGES[method][0])
    config = Config(data=(name,), methods=(method,), quick=True)
    row = fit_row((name, method, 1), config, None)
    assert row["error"] is None
    missing = {name for name in KIND.quantities(row["task"]) if row[name] is None}
    assert missing == ({"log_score", "cell_score", "crps"} if (name, method) == ("diabetes", "boosting") else set())
    assert 0.0 <= row["coverage"] <= 1.0
    json.dumps(row, allow_nan=False)
    assert same([fit_row((name, method, 1), config, None)], [row])


def test_the_default_estimator_is_what_is_measured(monkeypatch):
    seen = []

    def spy(**options):
        seen.append(options)
        raise RuntimeError("seen enough")

    monkeypatch.setattr(table_methods, "LIVIRegressor", spy)
    row = fit_row(("diabetes", "livi", 7), Config(data=("diabetes",), methods=("livi",)), None)
    assert seen == [{"random_state": 7}]
    assert row["error"] == "RuntimeError: seen enough"
    assert row["rmse"] is row["seconds"] is None


def test_an_interrupted_run_goes_on_where_it_was_and_failures_are_tried_again(tmp_path, monkeypatch):
    whole = bench(QUICK, tmp_path / "whole", None, say=lambda _: None)
    assert [(row["data"], row["method"], row["split"]) for row in whole["rows"]] == QUICK.jobs(None)
    calls = []

    def stopped(split, run):
        calls.append(split.name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        if len(calls) == 1:
            raise ArithmeticError("no luck")
        return table_methods.fit_boosting(split, run)

    monkeypatch.setitem(table_methods.METHODS, "boosting", stopped)
    with pytest.raises(KeyboardInterrupt):
        bench(QUICK, tmp_path / "parts", None, say=lambda _: None)
    left = json.loads((tmp_path / "parts" / "tables.json").read_text())
    assert [row["error"] for row in left["rows"]] == [None, "ArithmeticError: no luck", None]
    heard = []
    resumed = bench(QUICK, tmp_path / "parts", None, say=heard.append)
    assert "going on after 2 of 8 fits" in heard[0]
    assert len(heard) == 7
    assert same(resumed["rows"], whole["rows"])
    assert json.loads((tmp_path / "parts" / "tables.json").read_text()) == resumed
    with pytest.raises(ValueError, match="choose another folder"):
        bench(replace(QUICK, max_rows=200), tmp_path / "parts", None)
    more = bench(replace(QUICK, methods=("ridge",), splits=3), tmp_path / "parts", None, say=lambda _: None)
    assert [row["split"] for row in more["rows"] if row["method"] == "ridge"] == [1, 1, 2, 2, 3, 3]


def test_two_processes_give_what_one_gives(tmp_path):
    config = Config(data=("diabetes",), methods=("gp", "ridge", "boosting"), splits=1, quick=True)
    one = bench(config, tmp_path / "one", None, jobs=1, say=lambda _: None)
    two = bench(config, tmp_path / "two", None, jobs=2, say=lambda _: None)
    assert same(two["rows"], one["rows"])
    assert [row["error"] for row in two["rows"]] == [None] * 3


def test_splits_that_a_uci_set_lacks_are_left_out_and_told(tmp_path):
    write_uci(tmp_path)
    config = Config(data=("yacht", "wine"), methods=("ridge",), splits=3, first_split=1)
    assert config.jobs(tmp_path) == [
        ("yacht", "ridge", 1),
        ("wine", "ridge", 1),
        ("wine", "ridge", 2),
        ("wine", "ridge", 3),
    ]
    notes = table_bench.notes(config, tmp_path)
    assert "yacht has splits 0 to 1 only." in notes
    assert any("boston" in note and "yacht" not in note for note in notes)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["network", "bde", "catboost", "vbll"])
def test_a_few_steps_of_every_peer_are_scored_in_the_units_of_the_target(method):
    if method in PACKAGES:
        pytest.importorskip(PACKAGES[method][0])
    config = Config(data=("diabetes",), methods=(method,), splits=1, quick=True)
    row = table_bench.fit_row(("diabetes", method, 1), config, None)
    assert row["error"] is None
    assert 40.0 < row["rmse"] < 120.0
    assert -15.0 < row["log_score"] < -5.0


@pytest.mark.parametrize("method", PACKAGES)
def test_a_missing_package_leaves_its_method_out_and_is_told(method, monkeypatch):
    monkeypatch.setattr(table_methods, "find_spec", lambda _: None)
    assert method not in available_methods()
    assert any(f"{method}, which is not installed" in note for note in table_bench.notes(QUICK, None))
    with pytest.raises(ValueError, match=f"pip install {PACKAGES[method][1]}"):
        Config(data=("diabetes",), methods=(method,))


@pytest.mark.filterwarnings("ignore")
def test_a_last_layer_of_vbll_learns_classes_and_leaves_the_global_random_state_alone():
    pytest.importorskip("vbll")
    before = torch.random.get_rng_state()
    row = fit_row(("wine", "vbll", 1), Config(data=("wine",), methods=("vbll",)), None)
    assert row["accuracy"] > 0.8
    assert row["log_score"] > -0.5
    assert torch.equal(torch.random.get_rng_state(), before)


# --- what is printed ------------------------------------------------------------------------------


def made_up(data, method, log_scores, rmse=1.0, coverage=0.9, **more):
    return [
        {
            "data": data,
            "method": method,
            "split": split,
            "task": "regression",
            "features": 3,
            "all_rows": 100,
            "train_rows": 100,
            "used_rows": 100,
            "test_rows": 10,
            "rmse": rmse,
            "log_score": value,
            "crps": None,
            "coverage": coverage,
            "width": 3.0,
            "seconds": 2.0,
            "warnings": [],
            "error": None,
        }
        | more
        for split, value in enumerate(log_scores, 1)
    ]


ROWS = [
    *made_up("won", "livi", [-1.0, -1.1, -1.2], rmse=0.5),
    *made_up("won", "gp", [-2.0, -2.1, -2.3], used_rows=50),
    *made_up("won", "conformal", [-0.5, -0.6, -0.7], rmse=0.4),
    *made_up("lost", "livi", [-3.0, -3.1, -3.0], rmse=0.02, coverage=0.8),
    *made_up("lost", "gp", [-1.0, -1.2, -1.1], rmse=0.0123),
    *made_up("level", "livi", [-1.0, -2.0, -3.0], rmse=2.0),
    *made_up("level", "gp", [-1.3, -1.6, -3.0], rmse=2.0),
]


def table(rows):
    """The lines of the first table in the text."""
    return text({"rows": rows, "notes": []}).partition("## Regression\n\n")[2].partition("\n\n")[0].splitlines()


def test_the_table_has_the_best_and_its_equals_in_bold():
    lines = table(ROWS)
    assert lines[0] == "| data | method | splits | log score | RMSE | in 90 %, % | s | width of the interval |"
    cells = {tuple(cell.strip() for cell in line.split("|")[1:3]): line for line in lines[2:]}
    assert (
        "| 3 | -1.100 ± 0.058 | 0.500 ± 0.000 | 90.0 ± 0.0 | 2.0 ± 0.0 | 3.00 ± 0.00 |"
        in cells["won (100 × 3)", "livi"]
    )
    assert "| **-0.600** ± 0.058 | **0.400** ± 0.000 |" in cells["won (100 × 3)", "conformal"]
    assert "| 1.000 ± 0.000 |" in cells["won (100 × 3)", "gp, 50 rows"]
    assert "| **-1.100** ± 0.058 | **0.0123** ± 0.0000 |" in cells["lost (100 × 3)", "gp"]
    assert "| **-2.000** ± 0.577 | **2.00** ± 0.00 |" in cells["level (100 × 3)", "livi"]
    assert "| **-1.967** ± 0.524 | **2.00** ± 0.00 |" in cells["level (100 × 3)", "gp"]
    assert "Mean ± standard error over splits." in text({"rows": ROWS, "notes": []})


def test_the_verdicts_name_wins_draws_and_losses():
    rmse, log_score, covered = verdicts(ROWS)
    standing = "alone: won; within one standard error: level (gp); behind: lost (gp)."
    assert rmse == f"Best mean RMSE: livi on 2 of 3 data sets; {standing}"
    assert log_score == f"Best mean log score: livi on 1 of 3 data sets; {standing}"
    assert covered == "Coverage of livi's 90 % intervals lies in 85–95 % on 2 of 3 data sets; outside: lost (80.0 %)."


def test_one_split_has_no_standard_error():
    methods = {
        method: made_up("d", method, [value]) for method, value in (("livi", -1.0), ("gp", -1.01), ("ridge", -1.0))
    }
    rows = [row for group in methods.values() for row in group]
    _, log_score = JUDGED["regression"]
    found = KIND.board(rows, log_score.name)["d"]
    assert best_of(found, log_score.better) == ("livi", {"ridge"})
    assert not any("± " in line for line in table(rows))


def test_a_failed_fit_is_counted_and_not_averaged():
    lacking = dict.fromkeys(("rmse", "log_score", "coverage", "width", "seconds"))
    rows = [*made_up("d", "gp", [-1.0, -2.0]), *made_up("d", "gp", [0.0, 0.0, 0.0], error="LinAlgError", **lacking)[2:]]
    rows[-1]["log_score"] = None
    [found] = KIND.summary(rows)
    assert found["splits"] == 2
    assert found["log_score"]["mean"] == -1.5
    assert "| 2, 1 failed |" in table(rows)[2]
    assert verdicts(rows) == []


def test_the_command_prints_tables_notes_and_verdicts(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("LIVI_DATA_DIR", raising=False)
    arguments = [
        "bench",
        "tables",
        "--quick",
        "--data",
        "diabetes,wine",
        "--methods",
        "livi,ridge",
        "--out",
        str(tmp_path),
    ]
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert "The numbers mean nothing" in out
    assert "Left out: the UCI sets boston, concrete" in out
    assert "set LIVI_DATA_DIR" in out
    assert "At most 10,000 rows" in out
    assert "| diabetes (398 × 10) | livi | 1 |" in out
    assert "Best mean log score: livi on" in out
    assert "4 of 4: wine ridge split 1" in err
    document = json.loads((tmp_path / "tables.json").read_text())
    assert text(document) + "\n" == out
    assert document["config"] == {"max_rows": 10_000, "threads": 1, "quick": True}


def test_the_command_reads_the_folder_of_uci_sets(tmp_path, capsys, monkeypatch):
    home = write_uci(tmp_path / "uci")
    monkeypatch.setenv("LIVI_DATA_DIR", str(tmp_path))
    arguments = ["bench", "tables", "--quick", "--methods", "ridge", "--out", str(tmp_path / "out")]
    assert cli.main([*arguments, "--data", "yacht"]) == 0
    assert "| yacht (35 × 3) | ridge | 1 |" in capsys.readouterr().out
    (home / "data.txt").write_text("1 2 three 4\n")
    assert cli.main([*arguments, "--data", "yacht"]) == 1
    assert "got 'three' in row 1" in capsys.readouterr().err
    assert cli.main([*arguments, "--data", "boston"]) == 1
    assert "expected the data set 'boston'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--data", "iris"], "data: expected some of diabetes"),
        (["--data", "wine,wine"], "different names"),
        (["--data", ""], "different names"),
        (["--methods", "swag"], "methods: expected some of livi"),
        (["--splits", "0"], "splits"),
        (["--first-split", "-1"], "first_split"),
        (["--max-rows", "0"], "max_rows"),
        (["--threads", "0"], "threads"),
        (["--jobs", "0"], "jobs"),
    ],
)
def test_wrong_usage_is_said_in_words(arguments, complaint, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["bench", "tables", *arguments])
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_method_for_one_task_has_no_rows_of_the_other():
    jobs = Config(data=("diabetes", "wine"), methods=("livi", "varying"), splits=1).jobs(None)
    assert [job[:2] for job in jobs] == [("diabetes", "livi"), ("diabetes", "varying"), ("wine", "livi")]
