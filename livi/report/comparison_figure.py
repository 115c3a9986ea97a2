"""The figure of a comparison: scores, calibration and time of several methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from livi.report.compared import Compared
from livi.report.style import COLOURS, FAINT, INK, TEXT_WIDTH, new_figure, plainly, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAR = 4.0  # times the median distance from the best, beyond which a score is written at the edge
MOST_CURVES = 6  # in the calibration panel, those of the best methods
DASHES = ("-", (0, (4, 1.5)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)), (0, (3, 3)), (0, (8, 2)))


def comparison_figure(rows: Sequence[Compared]) -> Figure:
    """Negative log likelihoods with two standard errors, calibration curves, and seconds of fit and prediction."""
    done = [row for row in rows if not row.trouble]
    with style():
        figure = new_figure(1.5 * TEXT_WIDTH, max(2.4, 0.27 * len(done) + 1.1))
        scores, calibration, times = figure.subplots(1, 3, width_ratios=(1.15, 1.0, 0.85))
        _scores(scores, done)
        _calibration(calibration, done)
        _times(times, done)
        return figure


def _scores(ax: Axes, rows: list[Compared]) -> None:
    values = [row.scores["nll"] for row in rows]
    farthest = values[0] + FAR * max(float(np.median(values)) - values[0], 2.0 * rows[0].nll_error, 1e-9)
    for place, (row, value, colour) in enumerate(zip(rows, values, COLOURS, strict=False)):
        if value > farthest:  # it would leave the others no room
            ax.plot(farthest, place, ">", markersize=4, color=colour)
            ax.annotate(
                f"{value:.3g} ",
                (farthest, place),
                ha="right",
                va="center",
                fontsize=6.5,
                xytext=(-4, 0),
                textcoords="offset points",
            )
        else:
            ax.errorbar(value, place, xerr=2.0 * row.nll_error, fmt="o", markersize=4, color=colour, elinewidth=1.2)
    if values[-1] > farthest:
        ax.set_xlim(right=farthest + 0.03 * (farthest - values[0]))
    ax.axvline(values[0], color=FAINT, linewidth=0.7, dashes=(4, 2.5), zorder=0)
    _methods(ax, rows)
    ax.set(xlabel="negative log likelihood, nats (± 2 standard errors)", title="score: left is better")


def _calibration(ax: Axes, rows: list[Compared]) -> None:
    classes = any("accuracy" in row.scores for row in rows)
    ax.plot([0, 1], [0, 1], color=INK, linewidth=0.8, dashes=(4, 2.5))
    for i, (row, colour) in enumerate(zip(rows[:MOST_CURVES], COLOURS, strict=False)):
        if row.curve is not None:
            shape: dict[str, Any] = {"marker": "o", "markersize": 2.5} if classes else {}
            ax.plot(*row.curve, color=colour, linestyle=DASHES[i], label=plainly(row.title), **shape)
    words = (
        ("confidence", "share of right answers") if classes else ("level of the interval", "share of targets inside")
    )
    ax.set(xlabel=words[0], ylabel=words[1], title="calibration: on the diagonal")
    ends = np.concatenate([row.curve[0] for row in rows if row.curve is not None] or [np.zeros(1)])
    lowest = float(np.floor(10.0 * ends.min()) / 10.0) if classes else 0.0
    ax.set(xlim=(lowest, 1.0), ylim=(0.0, 1.02))
    if any(row.curve is not None for row in rows[:MOST_CURVES]):
        ax.legend(loc="lower right", fontsize=6.5, handlelength=2.4)


def _times(ax: Axes, rows: list[Compared]) -> None:
    places = np.arange(len(rows))
    for place, row, colour in zip(places, rows, COLOURS, strict=False):
        fit, prediction = (max(1e-3, seconds) for seconds in (row.seconds, row.prediction_seconds))
        ax.plot([prediction, fit], [place, place], color=FAINT, linewidth=0.7, zorder=0)
        ax.plot(fit, place, "o", markersize=4, color=colour)
        ax.plot(prediction, place, "|", markersize=7, color=colour)
    ax.set_xscale("log")
    _methods(ax, rows, named=False)
    ax.set(xlabel="seconds: ● fit, | prediction", title="time")


def _methods(ax: Axes, rows: list[Compared], *, named: bool = True) -> None:
    ax.set_yticks(np.arange(len(rows)), [plainly(row.title) for row in rows] if named else [""] * len(rows))
    ax.set_ylim(len(rows) - 0.5, -0.5)
