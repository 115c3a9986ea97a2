"""The benchmark of a step: what it measures of a small network, what prevents it, its table and its figures."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import benchmarks.__main__
from benchmarks import bench_step, step_cases, step_measure, step_tables
from benchmarks.bench_step import Config, bench, measured
from benchmarks.step_cases import Case, dense

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.set_default_dtype(torch.float32)
    tiny = Case(lambda: nn.Sequential(nn.Linear(20, 80), nn.ReLU(), nn.Linear(80, 60), nn.Linear(60, 10)), (20,), 16)
    monkeypatch.setitem(step_cases.NETWORKS, "cpu", {"tiny": tiny})
    monkeypatch.setitem(step_cases.EXAMPLES, "cpu", 200)
    monkeypatch.setitem(step_cases.SCALES, "cpu", (10**4,))
    for numbers, value in ((step_measure.FIRST, 10), (step_measure.LAST, 30), (step_measure.REPEATS, 1)):
        monkeypatch.setitem(numbers, "cpu", value)


def test_every_benchmark_says_how_it_is_run(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "list"])
    assert benchmarks.__main__.main() == 0
    told = capsys.readouterr().out
    for path in Path(benchmarks.__file__).parent.glob("bench_*.py"):
        assert f"quick  python -m benchmarks.{path.stem}" in told


def test_dense_networks_have_as_many_weights_as_they_say():
    for size in (10**4, 10**6):
        count = sum(parameter.numel() for parameter in dense(size).build().parameters())
        assert count == pytest.approx(size, rel=0.05)


@pytest.mark.parametrize("way", ["plain", "ensemble member", "mean field", "livi", "L'' by LOBPCG"])
def test_every_way_of_ours_is_measured(way):
    row = measured(("tiny", way, 1), device=CPU)
    assert row["prevented"] is None
    assert row["seconds"] > 0.0
    assert row["memory"] is None  # there is no count of it on a CPU
    if way == "livi":
        parts = step_tables.split(row)
        assert set(parts) == {"network", "generator", "entropy", "rest"}
        assert parts["network"] > 0.0
        assert row["planned_seconds"] > 0.0
        assert row["planned_memory"] > 4 * row["generator_weights"]


def test_a_step_that_is_held_up_does_not_count(monkeypatch):
    monkeypatch.setitem(step_measure.REPEATS, "cpu", 15)
    clock, taken = [0.0], []

    def step():
        taken.append(100.0 if len(taken) == 4 else 1.0)
        clock[0] += taken[-1]

    monkeypatch.setattr(step_measure.time, "perf_counter", lambda: clock[0])
    bench = step_measure.Bench(step_cases.NETWORKS["cpu"]["tiny"], CPU, (torch.zeros(1), torch.zeros(1)), 0)
    assert bench.seconds(step) == 1.0
    assert len(taken) == 2 + 15


def test_a_run_goes_on_until_all_is_measured_and_is_drawn(tmp_path, capsys):
    config = Config("cpu", ways=("plain", "livi"), samples=(1,))
    assert len(config.jobs()) == 4  # with a dense network
    _, nothing = bench(config, tmp_path, minutes=0.0)
    assert nothing["rows"] == []
    bench_step.main(["--ways", "plain,livi", "--samples", "1", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "| tiny, 7,150 | livi | 1 |" in printed
    assert {path.name for path in tmp_path.glob("*.png")} == {"step-cpu.png", "step-cpu-scale.png"}
    path = tmp_path / "step-cpu.json"
    rows = json.loads(path.read_text())["rows"]
    assert [(row["network"], row["way"]) for row in rows] == [job[:2] for job in config.jobs()]
    bench_step.main(["--read", str(path), "--out", str(tmp_path / "again")])
    assert "| tiny, 7,150 | livi | 1 |" in capsys.readouterr().out


def test_what_prevents_a_way_is_said_in_the_table(monkeypatch):
    monkeypatch.setattr(bench_step, "find_spec", lambda _: None)
    missing = measured(("tiny", "bayesian-torch", 1), device=CPU)
    monkeypatch.setattr(bench_step, "find_spec", lambda _: object())
    monkeypatch.setitem(sys.modules, "laplace", None)
    broken = measured(("tiny", "laplace-torch fit", 1), device=CPU)
    told = step_tables.text({"rows": [missing, broken]})
    assert "- tiny, bayesian-torch: not installed" in told
    assert "- tiny, laplace-torch fit: ModuleNotFoundError" in told


def test_ratios_are_to_the_plain_step_of_the_same_network():
    plain = {"network": "a", "way": "plain", "samples": 1, "prevented": None, "seconds": 2e-3, "memory": 10**9}
    ours = plain | {"way": "livi", "seconds": 3e-3, "memory": 13 * 10**8, "planned_seconds": 2.4e-3}
    ours |= {"network_seconds": 1e-3, "generator_seconds": 1e-3, "entropy_seconds": 5e-4}
    ours |= {"planned_memory": 1170 * 10**6, "refused": {"value": "not quicker"}}
    told = step_tables.text({"rows": [plain | {"weights": 7}, ours]})
    assert "| a, 7 | livi | 1 | 3.00 | 1.50 | 1.00, 1.00, 0.50, 0.50 | – | 1.300 | 1.30 | 0.80, 0.90 |" in told
    assert "- a, livi, S = 1: steps with the entropy's value run eagerly: not quicker" in told


@pytest.mark.parametrize(("options", "message"), [({"only": ("none",)}, "only"), ({"ways": ("magic",)}, "ways")])
def test_names_that_are_not_known_are_refused(options, message):
    with pytest.raises(ValueError, match=f"{message}: expected"):
        Config("cpu", **options)
