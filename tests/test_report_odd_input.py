"""Figures, tables and pages of odd input: one example, odd names, many methods, numbers that are none."""

import json
import math

import numpy as np
import pytest
import torch

from livi.experiments.scoreboard import markdown
from livi.report import figures, results, results_page
from livi.report.bands import predictive_bands
from livi.report.compared import Compared
from livi.report.comparison_figure import comparison_figure
from livi.report.comparison_page import headline
from livi.report.demo_figures import FunctionBand
from livi.report.image_figures import _looks
from livi.report.interactive import padded


def compared(title, *log_prob, **more):
    values = np.array(log_prob)
    return Compared(title, title, scores={"nll": -float(values.mean())}, log_prob=values, **more)


def test_one_example_does_not_tell_methods_apart():
    assert headline([compared("A", -1.0), compared("B", -1.0001)]) == "A has the best score, and none is clearly behind"


def test_every_method_is_drawn_under_its_own_name():
    rows = [compared(name, -1.0 - 0.01 * i, -1.1) for i, name in enumerate(["a $^$ b", "_mine", *map(str, range(28))])]
    figure = comparison_figure(rows)
    scores = figure.axes[0]
    figure.canvas.draw()
    assert len(scores.containers) + sum(line.get_marker() == ">" for line in scores.lines) == 30
    assert [label.get_text() for label in scores.get_yticklabels()][:2] == [r"a \$^\$ b", "\u200b_mine"]


def test_curves_of_many_methods_of_ours_can_be_told_apart():
    looks = _looks([f"livi@prior={number}" for number in range(20)])
    assert len(looks) == 20
    assert len({str(look["linestyle"]) for look in looks[:8]}) == 8


def test_bars_in_names_are_no_borders():
    text = markdown(["data", "method"], [["a|b.csv", "x"]])
    assert results_page._cells(text.splitlines()[2]) == ["a|b.csv", "x"]
    assert results_page._block("    livi compare 'a -5.csv' `x`", {}) == (
        "<pre><code>livi compare &#x27;a -5.csv&#x27; `x`</code></pre>"
    )


def test_steps_without_a_finite_term_are_left_out_of_the_curve():
    history = [
        {"step": i, "bound": -1.0 - i, "log_likelihood": -1.0, "log_prior": 0.0, "entropy": 1.0} for i in range(40)
    ]
    history[3]["bound"], history[30]["entropy"] = math.nan, -math.inf
    del history[5]["log_prior"]
    axes = figures.learning_curve(history).axes
    assert [len(ax.lines[0].get_xdata()) for ax in axes[:4]] == [39, 40, 39, 39]
    assert all(np.isfinite(ax.lines[1].get_ydata()).all() for ax in axes[:4])
    with pytest.raises(ValueError, match="expected at least two rows with a step and a finite bound"):
        figures.learning_curve([row | {"bound": math.nan} for row in history])


def test_outlines_are_drawn_along_the_axis():
    x = torch.tensor([3.0, 1.0, 2.0])
    band = FunctionBand(torch.tensor([30.0, 10.0, 20.0]), torch.full((3,), 0.1))
    figure = predictive_bands({"one": band}, x, outlined=("NUTS", band))
    outline = figure.axes[0].lines[-1]
    assert outline.get_xdata().tolist() == [1.0, 2.0, 3.0]
    assert np.diff(outline.get_ydata()).min() > 0


def test_ranges_are_of_finite_numbers():
    assert padded(np.array([0.0, math.inf, 1.0]), np.array([math.nan])) == pytest.approx([-0.05, 1.05])
    assert padded(np.array([math.nan])) == pytest.approx([-0.05, 1.05])


@pytest.mark.parametrize("part", [{"rows": None}, {"config": []}])
def test_files_with_other_contents_are_passed_over(tmp_path, part):
    document = {"experiment": "toy", "config": {}, "rows": []} | part
    (tmp_path / "toy.json").write_text(json.dumps(document))
    assert results._document(tmp_path / "toy.json") is None
