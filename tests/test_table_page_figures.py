"""The numbers behind the figures of the report on a table model."""

import numpy as np
import pytest
from support.table_contents import TEN, classification, figures_of, history, regression

from livi.report import table_drivers
from livi.report import table_figures as draw
from livi.report.elements import number
from livi.report.interactive import padded
from livi.report.table_page import page
from livi.tables.content import Driver, Effect


def test_the_coverage_curve_is_the_share_of_targets_inside():
    rows = regression(200).rows
    curve = draw.coverage_curve(rows).data[-1]
    for level, share, low, high in zip(curve["x"], curve["y"], rows.lower, rows.upper, strict=True):
        inside = sum(a <= y <= b for a, y, b in zip(low, rows.target, high, strict=True))
        assert share == pytest.approx(inside / 200)
        assert 0 < level < 1


def test_pit_bars_have_area_one_and_the_count_of_rows():
    bars = draw.pit_histogram(regression(157).rows).data[0]
    assert sum(bars["customdata"]) == 157
    assert np.mean(bars["y"]) == pytest.approx(1.0, rel=1e-4)


def test_points_beyond_the_interval_are_marked():
    rows = regression(300).rows
    figure = draw.predictions(rows, "price", [9, 17], 17)
    shown = [trace for trace in figure.data if trace["mode"] == "markers" and trace["visible"]]
    assert [trace["name"] for trace in shown] == ["truth inside the interval", "truth outside the interval"]
    outside = int(((rows.target < rows.lower[17]) | (rows.target > rows.upper[17])).sum())
    assert [len(trace["x"]) for trace in shown] == [300 - outside, outside]
    assert 0 < outside < 300
    assert figure.chosen == "90% intervals"
    assert [trace.get("visible", True) for trace in figure.data] == figure.choices["90% intervals"]


def test_the_confusion_counts_rows_by_true_and_predicted_class():
    rows = classification(300, TEN).rows
    counts = np.array(draw.confusion(rows).data[0]["text"])
    predicted = rows.probabilities.argmax(1)
    for true in range(10):
        for given in range(10):
            assert counts[true, given] == np.sum((rows.target == true) & (predicted == given))


def test_reliability_groups_all_rows_and_finds_a_model_that_is_too_sure():
    rows = classification(2000, sharp=1.0).rows
    points = [trace for trace in draw.reliability(rows).data if trace.get("mode") == "markers"]
    assert sum(sum(trace["customdata"]) for trace in points) == 2000
    assert sum(len(trace["x"]) for trace in points if trace["name"] == "outside") <= 3
    odds = (rows.probabilities[:, 1] / rows.probabilities[:, 0]) ** 4
    sure = np.stack([1 / (1 + odds), odds / (1 + odds)], 1)
    wrong = draw.reliability(type(rows)(rows.target, rows.classes, sure, rows.entropy, rows.mutual_information))
    outside = [trace for trace in wrong.data if trace["name"] == "outside"]
    assert len(outside[0]["x"]) >= 5


def test_small_gains_of_a_rare_class_can_be_told_apart():
    gains = (0.00091, 0.00042, 0.0)
    rare = classification(
        drivers=tuple(Driver(name, 0.02, 0.02 + gain) for name, gain in zip("abc", gains, strict=True))
    )
    drawn = table_drivers.importance(rare)
    assert drawn.data[0]["text"] == ["+0.0%", "+0.042%", "+0.091%"]
    assert drawn.layout["xaxis"]["tickformat"] == "~%"  # as many digits as the ticks need


@pytest.mark.parametrize(("last", "separated"), [(2020.0, False), (202_000.0, True)])
def test_years_have_no_thousands_separator(last, separated):
    values = np.linspace(1890.0, last, 21)
    effect = Effect("built", "numeric", tuple(values), values, values, values, "")
    drawn = table_drivers.curve(effect, regression(effects=(effect,)))
    assert drawn.layout["xaxis"]["separatethousands"] is separated


def test_errors_of_the_surest_rows():
    unsure, errors = np.arange(40.0), np.repeat([1.0, -3.0], 20)
    shares, values = draw.surest_first(unsure[::-1], errors[::-1], root=True)
    assert shares[-1] == 1.0
    assert values[-1] == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert values[shares <= 0.5] == pytest.approx(1.0)
    alike, _ = draw.surest_first(np.ones(40), errors, root=True)
    assert len(alike) == 1
    assert len(draw.surest_first(np.ones(4), errors[:4], root=True)[0]) == 0


def test_no_share_is_drawn_beyond_one():
    shares = np.array([0.5, 1.0])
    for values in (np.ones(2), np.zeros(2), np.array([0.8, 0.7])):
        low, high = draw.set_aside(shares, values, "accuracy", share=True).layout["yaxis"]["range"]
        assert 0.0 <= low <= values.min()
        assert values.max() <= high < 1.01


def test_constant_predictions_are_drawn_with_ranges_that_are_not_empty():
    rows = regression(50).rows
    same = type(rows)(
        *(np.full_like(getattr(rows, name), 3.0) for name in ("target", "mean")),
        *(np.full(50, value) for value in (0.0, 2.0, 2.0, 0.5)),
        rows.levels,
        np.full_like(rows.lower, 1.0),
        np.full_like(rows.upper, 5.0),
    )
    figures = figures_of(page(regression(rows=same, unsure=())))
    assert "kept" not in figures
    for name in ("predictions", "unsure"):
        for axis in ("xaxis", "yaxis"):
            low, high = figures[name]["layout"][axis]["range"]
            assert high > low
    assert padded(np.zeros(3)) == [-1.0, 1.0]


def test_terms_that_are_not_finite_or_missing_are_left_out_of_the_course():
    rows = [dict(row) for row in history(100)]
    rows[3]["bound"] = float("nan")
    for row in rows:
        del row["entropy"]
    curves = {figure.name: figure for figure in draw.learning_curves(rows)}
    assert list(curves) == ["course-bound", "course-log_likelihood", "course-log_prior"]
    assert len(curves["course-bound"].data[0]["x"]) == len(rows) - 1
    assert draw.learning_curves(rows[:1])[0].data[0]["mode"] == "markers"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (-1234.5, "−1,234"), (12.3456, "12.35"), (3e-7, "3e−07"), (2.5e12, "2.5e+12"), (0.99999, "1.0000")],
)
def test_numbers_have_four_digits(value, text):
    assert number(value) == text
