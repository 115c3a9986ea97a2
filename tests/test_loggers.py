"""What is written while a fit runs: a CSV file, the progress line."""

import csv
import io

import pytest
from support.watching_callbacks import VALIDATED, At, StopHere, quick_fit, stop_here

import livi
from livi.inference import loop as loop_module
from livi.inference.progress import FitProgress


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return [{name: float(cell) for name, cell in row.items() if cell} for row in csv.DictReader(file)]


def test_a_csv_file_has_the_history(tmp_path):
    path = tmp_path / "new" / "fit.csv"
    posterior = quick_fit(callbacks=[livi.CSVLogger(path)], **VALIDATED | {"validate_every": 20})
    assert rows_of(path) == posterior.history
    assert [row["step"] for row in rows_of(path) if "validation_nll" in row] == [20, 40, 60]
    assert list(path.parent.iterdir()) == [path]
    other = quick_fit(callbacks=[livi.CSVLogger(path)], seed=1)
    assert rows_of(path) == other.history


def test_a_csv_file_goes_on_with_the_fit(tmp_path):
    path, checkpoint = tmp_path / "fit.csv", tmp_path / "c.livi"
    with pytest.raises(StopHere):
        quick_fit(callbacks=[livi.CSVLogger(path), At(45, stop_here)], checkpoint=checkpoint, checkpoint_every=15)
    assert [row["step"] for row in rows_of(path)] == [10, 20, 30, 40]
    with path.open("a") as file:
        file.write("50,-1")  # a line that was cut short
    posterior = quick_fit(callbacks=[livi.CSVLogger(path)], checkpoint=checkpoint)
    assert rows_of(path) == posterior.history
    assert len(posterior.history) == 6


def test_a_csv_file_is_rolled_back_with_the_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(loop_module, "SNAPSHOT_EVERY", 20)
    path, poisoned = tmp_path / "fit.csv", []

    def poison(run):
        if not poisoned:
            poisoned.append(run.step)
            run._training.failed_at.fill_(run.step)

    posterior = quick_fit(callbacks=[livi.CSVLogger(path), At(35, poison)])
    assert poisoned == [35]
    assert rows_of(path) == posterior.history


def test_validation_scores_stay_in_the_progress_line():
    said = io.StringIO()
    progress = FitProgress(100, stream=said)
    row = {"step": 10.0, "bound": -1.0, "log_likelihood": -2.0, "log_prior": -3.0, "entropy": 4.0, "rate": 1e-3}
    progress.show(10, row | {"validation_nll": 0.51234, "validation_accuracy": 0.9})
    progress.show(20, row)
    for line in said.getvalue().splitlines():
        assert "validation nll 0.5123, accuracy 0.9  rate" in line
