"""`livi bench runtime`: twice as long until nothing is gained, and the seconds and memory of what was enough."""

import json
from concurrent.futures.process import BrokenProcessPool

import pytest
import torch
from support.picture_files import few_steps, write_mnist

from livi import cli
from livi.experiments.deadlines import Deadline
from livi.experiments.images import runtime
from livi.experiments.images.runtime import Config, bench, long_enough, measure
from livi.experiments.images.runtime_text import text
from livi.report.image_figures import runtime_curves


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    torch.set_default_dtype(torch.float32)
    few_steps(monkeypatch)


@pytest.fixture
def _here(monkeypatch):
    """Fits in this process, one after the other."""

    def loop(fit, jobs, count, until):
        return [] if until.passed() else [fit(job) for job in jobs]

    monkeypatch.setattr(runtime, "side_by_side", loop)


def fitted(*log_prob, error=None):
    return {"log_prob": list(log_prob), "error": error}


def made(method, seed=300, **more):
    length = {"gradients": 100, "error": None, "seconds": 2.0, "memory": 400.0, "memory_of_fit": 90.0, "nll": 0.2}
    length |= {"accuracy": 0.9, "warnings": []}
    lengths = [length | {"gradients": 50, "seconds": 1.0, "nll": 0.4}, length, length | {"gradients": 200}]
    row = {
        "problem": "mnist",
        "method": method,
        "seed": seed,
        "settled": True,
        "whole_seconds": 5.0,
        "lengths": lengths,
    }
    return length | row | more


def test_a_fit_was_long_enough_where_twice_as_long_is_no_clearly_better():
    bad, good, same = fitted(-2.0, -2.1, -1.9), fitted(-1.0, -1.0, -0.9), fitted(-0.5, -1.4, -0.9)
    assert long_enough([]) == (None, False)
    assert long_enough([bad]) == (0, False)
    assert long_enough([bad, good]) == (1, False)
    assert long_enough([bad, good, same]) == (1, True)  # its mean is better, by less than a standard error
    assert long_enough([good, bad]) == (0, True)


def test_a_fit_that_fails_is_passed_over_until_one_does_not():
    failed, good = fitted(error="FitError: no"), fitted(-1.0, -1.1)
    assert long_enough([failed, failed]) == (None, False)
    assert long_enough([failed, good]) == (1, False)
    assert long_enough([failed, good, failed]) == (1, True)


@pytest.mark.usefixtures("_here")
def test_the_command_runs_from_files_to_table_and_figure(tmp_path, monkeypatch, capsys):
    write_mnist(tmp_path / "data")
    monkeypatch.setenv("LIVI_DATA_DIR", str(tmp_path / "data"))
    command = ["bench", "runtime", "--quick", "--gradients", "10", "--methods", "map,livi", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    printed = capsys.readouterr()
    document = json.loads((tmp_path / "runtime-quick.json").read_text())
    assert [row["method"] for row in document["rows"]] == ["map", "livi"]
    for row in document["rows"]:
        assert row["error"] is None
        assert [one["gradients"] for one in row["lengths"]] == [10, 20, 40][: len(row["lengths"])]
        assert row["gradients"] in {one["gradients"] for one in row["lengths"]}
        assert row["seconds"] > 0.0
        assert "log_prob" not in json.dumps(row)
        assert f"| {row['method']} | 1 |" in printed.out
    assert "| MNF | 18.7 | 1.77 |" in printed.out
    assert (tmp_path / "runtime-quick.png").is_file()
    assert cli.main(["report", str(tmp_path / "runtime-quick.json"), "--out", str(tmp_path / "page")]) == 0
    assert (tmp_path / "page-runtime-seconds.png").is_file()
    assert "livi bench runtime --gradients 10 --doublings 2 --quick --methods map,livi" in (
        tmp_path / "page.md"
    ).read_text(encoding="utf-8")


@pytest.mark.usefixtures("_here")
def test_a_stopped_run_loses_one_fit_at_most(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    config, begun = Config(methods=("map",), gradients=5, doublings=1, quick=True), []

    def counted(*args, **more):
        begun.append(args)
        return measure(*args, **more)

    monkeypatch.setattr(runtime, "measure", counted)
    taken, said = runtime.side_by_side, []
    monkeypatch.setattr(runtime, "side_by_side", lambda *args: [] if begun else taken(*args))
    assert bench(config, tmp_path, tmp_path, minutes=1.0, say=said.append)["rows"] == []
    assert said[-1] == "1 minutes are over; the same command goes on from here"
    monkeypatch.setattr(runtime, "side_by_side", taken)
    [row] = bench(config, tmp_path, tmp_path, say=said.append)["rows"]
    assert [gradients for _, _, gradients in begun] == [5, 10]
    assert len(row["lengths"]) == 2


def test_a_stopped_run_goes_on_with_twice_the_longest_fit(tmp_path, monkeypatch):
    tried, better = [], iter(range(1, 9))

    def measured(_, __, gradients, **___):
        tried.append(gradients)
        if gradients == 100:
            return {"gradients": 100, "error": "too short"}
        log_prob = [-1.0 / next(better)] * 3
        return {"gradients": gradients, "error": None, "seconds": 1.0, "memory": 1.0, "nll": 0.1, "accuracy": 0.9} | {
            "log_prob": log_prob,
            "memory_of_fit": 1.0,
            "warnings": [],
        }

    monkeypatch.setattr(runtime, "measure", measured)
    monkeypatch.setattr(runtime, "side_by_side", lambda fit, jobs, *_: [fit(job) for job in jobs[: len(tried) != 2]])
    config = Config(methods=("map",), seeds=(300,), gradients=100, doublings=3)
    bench(config, tmp_path, tmp_path, minutes=1.0, say=lambda _: None)
    assert tried == [100, 200]  # and the time was over
    monkeypatch.setattr(runtime, "side_by_side", lambda fit, jobs, *_: [fit(job) for job in jobs])
    found = bench(config, tmp_path, tmp_path, say=lambda _: None)
    assert tried == [100, 200, 400, 800]
    assert [one["gradients"] for one in found["rows"][0]["lengths"]] == [200, 400, 800]
    again = json.loads((tmp_path / "runtime.json").read_text())
    assert again["config"]["device"] == "cpu"


@pytest.mark.usefixtures("_here")
def test_a_method_that_always_fails_is_a_row_with_its_error(tmp_path, monkeypatch):
    write_mnist(tmp_path)

    def failing(name, task):
        raise RuntimeError("no luck\nat all")

    monkeypatch.setattr(runtime, "fit_method", failing)
    config = Config(methods=("map",), gradients=5, doublings=1, quick=True)
    document = bench(config, tmp_path, tmp_path, say=str)
    assert document["rows"][0]["error"] == "RuntimeError: no luck\nat all"
    assert "- map on mnist (300): failed: RuntimeError: no luck" in text(document)


def test_a_process_that_dies_is_a_fit_that_failed(monkeypatch):
    def dying(*_):
        raise BrokenProcessPool("a child was killed")

    monkeypatch.setattr(runtime, "side_by_side", dying)
    [row] = runtime._in_a_process(str, 5, Deadline())
    assert row == {"gradients": 5, "error": "BrokenProcessPool: a child was killed"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ("lvi",)}, "got 'lvi'"),
        ({"methods": ("map", "map")}, "methods: expected different names, got 'map,map'"),
        ({"seeds": ()}, "seeds: expected different numbers from 0 on, got none"),
        ({"doublings": 0}, "doublings"),
    ],
)
def test_a_wrong_configuration_is_an_error(options, message):
    with pytest.raises(ValueError, match=message):
        Config(**options)


def test_the_table_has_what_was_enough_and_says_what_was_not():
    told = text({"rows": [made("livi"), made("map", settled=False, memory=None)], "notes": ["a note"]})
    assert "| livi | 1 | **2.0** | **400** | 90 | **0.2000** | **90.00** | 100 | 5 |" in told
    assert "| map | 1 | **2.0** | – |" in told
    assert "- map (300): still improving at 100 gradients, the most that were tried." in told


def test_the_figure_has_a_curve_for_each_method_and_marks_what_was_enough():
    [ax] = runtime_curves([made("livi"), made("map")]).axes
    curves = [line for line in ax.lines if not str(line.get_label()).startswith("_")]
    assert [line.get_label() for line in curves] == ["LIVI", "MAP"]
    assert curves[0].get_ydata().tolist() == pytest.approx([0.4, 0.2, 0.2])
    assert ax.lines[1].get_xdata().tolist() == pytest.approx([2.0])
    with pytest.raises(ValueError, match="expected some of livi bench runtime"):
        runtime_curves([])
