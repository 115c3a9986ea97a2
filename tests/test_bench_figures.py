"""`livi bench ... --figure`: what is said before and after, and that only the first of several processes draws."""

import sys

import pytest
import torch

from livi import cli
from livi.experiments import density_bench, spreading

QUICK = ("bench", "densities", "--only", "funnel", "--methods", "mean_field", "--steps", "2", "--seeds", "0")


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


def test_where_no_run_has_anything_to_draw_the_benchmark_says_so(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert cli.main([*QUICK, "--out", str(tmp_path), "--figure", str(tmp_path / "five-dimensions.png")]) == 0
    assert "no figure: no run has anything to draw" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["densities.json"]


@pytest.mark.parametrize("benchmark", ["densities", "entropy", "toy"])
def test_only_the_first_of_several_processes_draws(tmp_path, monkeypatch, benchmark):
    for package in ("matplotlib", "sklearn"):
        pytest.importorskip(package)
    monkeypatch.setattr(spreading, "first_rank", lambda: False)
    name = {"densities": "density_bench", "entropy": "entropy_bench", "toy": "toy_bench"}[benchmark]
    monkeypatch.setattr(f"livi.experiments.{name}.bench", lambda *_, **__: {"rows": []})  # no file to draw
    assert cli.main(["bench", benchmark, "--out", str(tmp_path), "--figure", str(tmp_path / "figure.png")]) == 0


def test_a_missing_matplotlib_is_said_before_the_first_fit(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(density_bench, "bench", lambda *_, **__: pytest.fail("fitted"))
    assert cli.main([*QUICK, "--out", str(tmp_path), "--figure", str(tmp_path / "figure.png")]) == 1
    assert 'pip install "livi[plots]"' in capsys.readouterr().err
