"""Predictions of a table model: in any blocks, by one pass over the rows, and what is shown meanwhile."""

import io
import sys

import numpy as np
import pytest

from livi.tables import predicting as module
from livi.tables.encoding import encode, target_numbers
from livi.tables.fitting import fit_table
from livi.tables.options import FitOptions
from livi.tables.predicting import LEVELS, in_blocks, regression_rows, usable_levels


def silent(_):
    pass


def fitted(table, target, interval):
    return fit_table(table, target, FitOptions(steps=5, hidden=(2,), interval=interval, diagnose=False), silent)


@pytest.mark.parametrize("interval", ["posterior", "conformal"])
@pytest.mark.parametrize("target", ["price", "town"])
def test_blocks_do_not_change_predictions_and_judgements(houses, monkeypatch, target, interval):
    model = fitted(houses, target, interval)
    frame, judged = model.predict(houses, silent), model.evaluate(houses, silent)
    monkeypatch.setattr(module, "BLOCK_ROWS", 7)
    numbers = frame.select_dtypes("number")
    other = model.predict(houses, silent)
    assert list(other) == list(frame)
    scale = 3e-7 * frame["std_total"].max() if target == "price" else 1e-9  # quantiles are exact to 1e-7 of it
    np.testing.assert_allclose(other[numbers.columns], numbers, rtol=1e-9, atol=scale)
    again = model.evaluate(houses, silent)
    assert [metric.name for metric in again.metrics] == [metric.name for metric in judged.metrics]
    assert [metric.value for metric in again.metrics] == pytest.approx([metric.value for metric in judged.metrics])
    assert [line.level for line in again.coverage] == [line.level for line in judged.coverage]


def test_conformal_ends_are_those_of_the_estimator(houses):
    model = fitted(houses, "price", "conformal")
    features, target = encode(houses, model.schema, silent), target_numbers(houses, model.schema)
    rows, *_ = regression_rows(model.estimator, features, target)
    assert tuple(rows.levels) == usable_levels(model.estimator, LEVELS)
    for level, lower, upper in zip(rows.levels, rows.lower, rows.upper, strict=True):
        expected = model.estimator.predict_interval(features, round(1.0 - level, 4))
        np.testing.assert_allclose(np.stack([lower, upper], 1), expected, rtol=1e-12)
    frame = model.predict(houses, silent)
    expected = model.estimator.predict_interval(features, 0.1)
    np.testing.assert_allclose(frame[["lower", "upper"]], expected, rtol=0, atol=1e-6 * frame["std_total"].min())


# --- what is shown --------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def show(monkeypatch, stream, patience, read=lambda some: some, **options):
    monkeypatch.setattr(module, "BLOCK_ROWS", 10)
    monkeypatch.setattr(module, "PROGRESS_DELAY", patience)
    monkeypatch.setattr(sys, "stderr", stream)
    return in_blocks(read, 995, **{"progress": True} | options)


def test_blocks_cover_the_rows_in_order(monkeypatch):
    blocks = show(monkeypatch, io.StringIO(), -1.0)
    assert [row for some in blocks for row in range(995)[some]] == list(range(995))


def test_rows_that_take_long_are_counted_in_a_few_plain_lines(monkeypatch):
    stream = io.StringIO()
    show(monkeypatch, stream, -1.0)
    lines = stream.getvalue().splitlines()
    assert 10 <= len(lines) <= 12
    assert all(line.startswith("predicting [") and line.endswith("rows/s") for line in lines)
    assert " 10/995 " in lines[0]
    assert " 995/995 " in lines[-1]


def test_a_terminal_s_line_ends_even_if_reading_fails(monkeypatch):
    def read(some):
        if some.start == 500:
            raise ValueError("no more")

    stream = Terminal()
    with pytest.raises(ValueError, match="no more"):
        show(monkeypatch, stream, -1.0, read)
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().endswith("rows/s\n")


@pytest.mark.parametrize(("patience", "progress"), [(3600.0, True), (-1.0, False)], ids=["quick", "quiet"])
def test_nothing_is_shown_where_it_is_quick_or_not_wanted(monkeypatch, patience, progress):
    stream = Terminal()
    show(monkeypatch, stream, patience, progress=progress)
    assert stream.getvalue() == ""
