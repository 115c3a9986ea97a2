"""Figures of the benchmarks on pictures: what happens to every method as pictures drift, and on foreign ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from livi.posterior.diagnostics import CorrelationCheck
from livi.report.style import FAINT, PALETTE, TEXT_WIDTH, Numbers, new_figure, save, shared_legend, style
from livi.report.weights import correlation_matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]

# Colour and dashes of each method: every colour drawn through, then dashed, dotted, and both.
LINES = [(colour, dashes) for dashes in ("-", "--", ":", "-.") for colour in PALETTE]
TITLES = {"nll": "negative log likelihood", "ece": "calibration error, %", "accuracy": "accuracy, %"}


def drift_curves(rows: Rows, drift: str, methods: Sequence[str] | None = None) -> Figure:
    """NLL and calibration error against how far pictures have drifted: means over seeds, bands of one standard error.

    Args:
        rows: of `livi bench`, without those that failed.
        drift: "rotation" (test M2) or the name of a corruption (test C2).
    """
    chosen = _by_method([row for row in rows if drift in row["shifts"]], methods)
    if not chosen:
        raise ValueError(f"rows: expected some with the drift {drift!r}, got none.")
    with style():
        figure = new_figure(TEXT_WIDTH, 0.42 * TEXT_WIDTH)
        axes = figure.subplots(1, 2)
        for ax, name in zip(axes, ("nll", "ece"), strict=True):
            for (method, group), look in zip(chosen.items(), LINES, strict=False):
                levels = group[0]["shifts"][drift]["levels"]
                curves = np.array([row["shifts"][drift][name] for row in group]) * (100.0 if name == "ece" else 1.0)
                _band(ax, np.array(levels), curves, method, look)
            ax.set(
                xlabel="degrees" if drift == "rotation" else f"{drift}, severity", ylabel=TITLES[name], ylim=(0, None)
            )
            if drift == "rotation":
                ax.set_xticks(range(0, 181, 45))
        shared_legend(figure, axes[0], min(5, len(chosen)))
        return figure


def entropy_curves(rows: Rows, classes: int, methods: Sequence[str] | None = None) -> Figure:
    """Empirical distribution of predictive entropy on each foreign set (test M3): a curve that rises late is unsure.

    Args:
        classes: whose logarithm is the highest entropy.
    """
    chosen = _by_method(rows, methods)
    names = list(dict.fromkeys(name for row in rows for name in row["entropy"] if name != "scored"))
    if not chosen or not names:
        raise ValueError("rows: expected some with foreign pictures, got none.")
    with style():
        figure = new_figure(TEXT_WIDTH, 0.42 * TEXT_WIDTH)
        axes = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
        top = math.log(classes)
        for ax, name in zip(axes, names, strict=True):
            for (method, group), look in zip(chosen.items(), LINES, strict=False):
                curves = np.array([row["entropy"][name] for row in group if name in row["entropy"]])
                _band(ax, np.linspace(0.0, top, curves.shape[1]), curves, method, look)
            ax.axvline(top, color=FAINT, linewidth=0.6, linestyle=":")
            ax.set(title=name, xlabel="entropy, nats", xlim=(0.0, 1.02 * top), ylim=(0.0, 1.0))
        axes[0].set_ylabel("share of pictures")
        shared_legend(figure, axes[0], min(5, len(chosen)))
        return figure


def draw(rows: Rows, classes: int, stem: Path) -> list[Path]:
    """All figures of these rows as files that begin with `stem`."""
    figures = {drift.replace(" ", "-"): drift_curves(rows, drift) for drift in rows[0]["shifts"]}
    if any(row["others"] for row in rows):
        figures["entropy"] = entropy_curves(rows, classes)
    paths = {stem.with_name(f"{stem.name}-{name}.png"): figure for name, figure in figures.items()}
    for path, figure in paths.items():
        save(figure, path)
    return list(paths)


def draw_correlations(found: Mapping[str, Any], path: Path) -> None:
    """Correlations between layers from a row of `livi bench --ablations`."""
    check = CorrelationCheck(
        layers=tuple(found["layers"]),
        sizes=tuple(found["sizes"]),
        mean_square=_matrix(found["mean_square"]),
        noise=_matrix(found["noise"]),
        across=found["across"],
        across_noise=found["across_noise"],
        matrix=None,
        num_samples=found["num_samples"],
    )
    save(correlation_matrix(check), path)


def _matrix(rows: Sequence[Sequence[float | None]]) -> Tensor:
    return torch.tensor([[math.nan if value is None else value for value in row] for row in rows], dtype=torch.float64)


def _band(ax: Axes, places: Numbers, curves: Numbers, label: str, look: tuple[str, str]) -> None:  # (n,), (seeds, n)
    middle, (colour, dashes) = curves.mean(0), look
    ax.plot(places, middle, color=colour, linestyle=dashes, label=label)
    if len(curves) > 1:
        error = curves.std(0, ddof=1) / math.sqrt(len(curves))
        ax.fill_between(places, middle - error, middle + error, color=colour, alpha=0.15, linewidth=0)


def _by_method(rows: Rows, methods: Sequence[str] | None) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if methods is None or row["method"] in methods:
            groups.setdefault(row["method"], []).append(row)
    return groups
