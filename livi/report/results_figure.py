"""One figure for each experiment: means with standard errors, a panel for each place, methods below each other."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from livi.experiments.images.problems import PROBLEMS
from livi.experiments.scoreboard import Values, often_enough, standard_error
from livi.experiments.uci.methods import METHODS as UCI_METHODS
from livi.report.image_figures import correlation_figure, figure_named, figure_names, runtime_curves
from livi.report.results import Result
from livi.report.style import COLOURS, FAINT, TEXT_WIDTH, new_figure, plainly, style
from livi.report.titles import SETS, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 3  # panels in a line
ORDER = tuple(UCI_METHODS)  # of methods; others follow in the order in which they appear
FAR = 4.0  # times the median distance from the best, beyond which a mean is put at the edge


def results_figure(result: Result) -> Figure | None:
    """The first quantity of the experiment, of all tasks that begin with it; None where no row has it.

    Raises:
        ImportError: matplotlib is not installed.
    """
    kind = result.kind
    tasks = {kind.of_task(row) for row in result.sound}
    first = [kind.columns[task][0] for task in kind.columns if task in tasks]
    if not first:
        return None
    column = first[0]
    alike = {task for task in tasks if kind.columns[task][0].name == column.name}
    rows = [row for row in result.sound if kind.of_task(row) in alike]
    boards = kind.board(rows, column.name)
    if not boards:
        return None
    there = list(dict.fromkeys(method for found in boards.values() for method in found))
    methods = sorted(there, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER) + there.index(name))
    lines = -(-len(boards) // WIDE)
    with style():
        figure = new_figure(1.4 * TEXT_WIDTH, lines * (0.55 + 0.14 * len(methods)) + 0.4)
        axes = figure.subplots(lines, min(WIDE, len(boards)), squeeze=False)
        for ax, (place, found) in zip(axes.flat, boards.items(), strict=False):
            _panel(ax, found, methods, column.better)
            ax.set_title(plainly(SETS.get(place, place)))
        for ax in axes.flat[len(boards) :]:
            ax.axis("off")
        for line in axes:
            line[0].set_yticks(range(len(methods)), [plainly(titled(method)) for method in methods])
        arrow = {"higher": " (right is better)", "lower": " (left is better)"}.get(column.better or "", "")
        figure.supxlabel(f"{column.title}, mean ± standard error{arrow}", fontsize=8.5)
    return figure


def further_figures(result: Result) -> list[str]:
    """Names of further figures: rotation, corruption, entropy, correlations between layers, NLL against seconds."""
    if result.experiment in PROBLEMS:
        return figure_names(result.sound)
    if any("correlations" in row for row in result.sound):
        return ["correlations"]
    return ["seconds"] if result.experiment == "runtime" and any("lengths" in row for row in result.sound) else []


def further_figure(result: Result, name: str) -> Figure:
    """The figure of this name, from `further_figures`."""
    if result.experiment == "runtime":
        return runtime_curves(result.sound)
    if name == "correlations":
        return correlation_figure(next(row[name] for row in result.sound if name in row))
    return figure_named(result.sound, name, PROBLEMS[result.experiment].classes)


def _panel(ax: Axes, found: dict[str, Values], methods: list[str], better: str | None) -> None:
    means, compared = {method: mean(values.values()) for method, values in found.items()}, often_enough(found)
    best = (max if better == "higher" else min)(means[method] for method in compared)
    away = [abs(means[method] - best) for method in compared]
    near = FAR * float(np.median(away)) or max(1e-9, 0.1 * abs(best))
    reach = max(near, 1.5 * max(distance for distance in away if distance <= near))  # what is hardly farther is shown
    ours = any(method.startswith("livi") for method in methods)
    for place, method in enumerate(methods):
        if method not in means:
            continue
        colour = COLOURS[0] if method.startswith("livi") or not ours else COLOURS[1]
        if abs(means[method] - best) > reach:  # it would leave the others no room
            edge = best + np.sign(means[method] - best) * near
            ax.plot(edge, place, "<" if edge < best else ">", markersize=3.5, color=colour)
            ax.annotate(f"{means[method]:.3g}", (edge, place), fontsize=6, xytext=(0, 3), textcoords="offset points")
        else:
            error = standard_error(found[method].values()) or 0.0
            filled = colour if method in compared else "white"  # hollow: of few repeats, and not compared
            at: dict[str, Any] = {"markersize": 3.5, "markerfacecolor": filled}
            ax.errorbar(means[method], place, xerr=error, fmt="o", color=colour, elinewidth=1.0, **at)
    ax.axvline(best, color=FAINT, linewidth=0.7, dashes=(4, 2.5), zorder=0)
    ax.set_yticks(range(len(methods)), [""] * len(methods))
    ax.set_ylim(len(methods) - 0.5, -0.5)
