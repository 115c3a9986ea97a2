"""What a fit shows while it runs: on a terminal, in a file, in TensorBoard, or nowhere."""

from __future__ import annotations

import io
import sys

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

import livi
from livi.inference.progress import FitProgress

ROW = {"step": 10.0, "bound": -1.0, "log_likelihood": -2.0, "log_prior": -3.0, "entropy": 4.0, "rate": 1e-3}
CLEAR = "\r\x1b[2K"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def scalars(folder):
    events = EventAccumulator(str(folder)).Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_a_row_lacking_terms_shows_those_it_has():
    said = io.StringIO()
    FitProgress(100, stream=said).show(10, {"log_likelihood": 2.0, "log_prior": -3.0})
    assert "10/100  2.00 likelihood -3.00 prior  " in said.getvalue()
    assert "bound" not in said.getvalue()
    assert "rate" not in said.getvalue()
    said = io.StringIO()
    FitProgress(100, stream=said).show(10, {"learned": 1.0})
    assert said.getvalue().startswith("[##..................]")


def test_a_phase_has_its_own_name_total_and_lines_and_the_fit_s_come_back():
    said = io.StringIO()
    progress = FitProgress(100, stream=said)
    progress.begin(0, total=10, label="MAP start")
    for step in range(1, 11):
        progress.show(step, {"log_likelihood": -2.0})
    progress.begin(50)
    progress.show(55, ROW)
    lines = said.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[9].startswith("MAP start [####################] 0 s left, 10/10  -2.00 likelihood")
    assert lines[10].startswith("[###########.........]")
    assert "55/100  bound -1.00" in lines[10]


def test_a_phase_without_steps_can_be_shown():
    said = io.StringIO()
    progress = FitProgress(100, stream=said)
    progress.begin(0, total=0, label="MAP start")
    progress.show(0, {"log_likelihood": -2.0})
    assert "0/0" in said.getvalue()


def test_a_terminal_s_line_is_rewritten_and_ends_with_the_phase():
    said = Terminal()
    progress = FitProgress(100, stream=said)
    progress.begin(0, total=10, label="MAP start")
    progress.show(5, {"log_likelihood": -2.0})
    progress.show(6, {"log_likelihood": -2.0})
    assert said.getvalue().count(CLEAR) == 2
    assert "\n" not in said.getvalue()
    progress.begin(0)
    assert said.getvalue().endswith("\n")
    progress.show(10, ROW)
    progress.say("a rollback")
    assert said.getvalue().endswith(CLEAR + "a rollback\n")
    progress.say("another")
    assert said.getvalue().endswith("\nanother\n")


def test_a_terminal_s_line_is_no_wider_than_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    said = Terminal()
    FitProgress(100, stream=said).show(10, ROW)
    assert len(said.getvalue().removeprefix(CLEAR)) == 59


def test_closing_again_changes_nothing(tmp_path):
    said = Terminal()
    progress = FitProgress(100, stream=said, log_dir=tmp_path)
    progress.show(10, ROW)
    progress.close()
    once, logged = said.getvalue(), scalars(tmp_path)
    assert once.endswith("\n")
    progress.close()
    assert said.getvalue() == once
    assert scalars(tmp_path) == logged


def test_closing_what_showed_nothing_says_nothing():
    said = Terminal()
    FitProgress(100, stream=said).close()
    assert said.getvalue() == ""


def test_quiet_says_nothing_and_logs_all_the_same(tmp_path):
    said = Terminal()
    progress = FitProgress(100, quiet=True, stream=said, log_dir=tmp_path)
    progress.show(10, ROW)
    progress.say("a rollback")
    progress.close()
    assert said.getvalue() == ""
    assert scalars(tmp_path)["bound"] == [(10, -1.0)]


def test_tensorboard_reads_every_number_of_every_phase_back(tmp_path):
    progress = FitProgress(100, quiet=True, log_dir=tmp_path)
    progress.begin(0, total=10, label="MAP start")
    progress.show(10, {"log_likelihood": -7.0})
    progress.begin(0)
    progress.show(10, ROW)
    progress.show(20, ROW | {"bound": -0.5, "kl_weight": 0.25})
    progress.close()
    found = scalars(tmp_path)
    assert found["bound"] == [(10, -1.0), (20, -0.5)]
    assert found["entropy"] == [(10, 4.0), (20, 4.0)]
    assert found["kl_weight"] == [(20, 0.25)]
    assert found["MAP start/log_likelihood"] == [(10, -7.0)]
    assert "step" not in found


def test_a_fit_writes_its_history_to_tensorboard(tmp_path):
    recipe = livi.Recipe(steps=20, map_steps=5, map_restarts=1, num_samples=4)
    x, y = torch.randn(8, 1), torch.randn(8)
    posterior = livi.fit(nn.Linear(1, 1), (x, y), livi.Gaussian(0.5), recipe=recipe, progress=False, log_dir=tmp_path)
    found = scalars(tmp_path)
    for name in ("bound", "log_likelihood", "log_prior", "entropy"):
        assert found[name] == [(int(row["step"]), pytest.approx(row[name], rel=1e-6)) for row in posterior.history]


def test_log_dir_without_tensorboard_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r'log_dir: .* pip install "livi\[tensorboard\]", or drop log_dir'):
        FitProgress(100, log_dir=tmp_path)
