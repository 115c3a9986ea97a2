"""Figures of calibration, from probability integral transforms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from livi import checks
from livi.report.style import COLOURS, FAINT, INK, PALETTE, TEXT_WIDTH, Numbers, flat, new_figure, style, tint

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def coverage_curve(pits: Tensor | Mapping[str, Tensor], *, confidence: float = 0.95) -> Figure:
    """Share of targets inside the central interval of each level, which should be the level.

    Args:
        pits: F(y) of each target, from `livi.metrics.pit`; of one prediction, or of several by name.
        confidence: of the grey band in which a calibrated prediction's share lies, level by level.
    """
    named = _named(pits)
    levels = np.linspace(0.0, 1.0, 201)
    with style():
        figure = new_figure(0.5 * TEXT_WIDTH, 0.48 * TEXT_WIDTH)
        ax = figure.subplots()
        smallest = min(len(values) for values in named.values())
        reach = NormalDist().inv_cdf(0.5 + 0.5 * confidence) * np.sqrt(levels * (1.0 - levels) / smallest)
        low, high = (levels - reach).clip(0.0, 1.0), (levels + reach).clip(0.0, 1.0)
        ax.fill_between(levels, low, high, color=FAINT, alpha=0.25, linewidth=0)
        ax.plot(levels, levels, color=INK, linewidth=0.8, dashes=(4, 2.5))
        for (name, values), colour in zip(named.items(), COLOURS, strict=False):
            central = np.abs(2.0 * values - 1.0)
            ax.plot(levels, (central[:, None] <= levels).mean(0), color=colour, label=name)
        ax.set(xlabel="level of the central interval", ylabel="share of targets inside", xlim=(0, 1), ylim=(0, 1))
        ax.set_aspect("equal")
        if set(named) != {""}:
            ax.legend(loc="upper left")
        return figure


def pit_histogram(pits: Tensor | Mapping[str, Tensor], *, bins: int = 20, confidence: float = 0.95) -> Figure:
    """Histograms of F(y), flat for a calibrated prediction; U-shaped where it is too narrow, humped where too wide.

    Args:
        pits: as in `coverage_curve`.
        confidence: of the grey band in which a bar of a calibrated prediction lies, bar by bar.
    """
    named = _named(pits)
    checks.positive_int("bins", bins)
    with style():
        columns = min(4, len(named))
        rows = math.ceil(len(named) / columns)
        figure = new_figure(TEXT_WIDTH * (0.5 if columns == 1 else 1.0), 1.6 * rows + 0.15)
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        for (name, values), ax in zip(named.items(), axes, strict=False):
            heights, edges = np.histogram(values, bins=bins, range=(0.0, 1.0))
            spread = math.sqrt((bins - 1) / len(values))  # binomial, as a share of the expected height
            reach = NormalDist().inv_cdf(0.5 + 0.5 * confidence) * spread
            density = heights * bins / len(values)
            ax.bar(edges[:-1], density, 1.0 / bins, align="edge", color=tint(PALETTE[0], 0.55), edgecolor="white")
            ax.axhspan(max(0.0, 1.0 - reach), 1.0 + reach, color=INK, alpha=0.12, linewidth=0, zorder=2)
            ax.axhline(1.0, color=INK, linewidth=0.8, dashes=(4, 2.5))
            ax.set(title=name, xlabel="$F(y)$", ylabel="density", xlim=(0, 1))
            ax.set_xticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
            ax.label_outer()
        for ax in axes[len(named) :]:
            ax.set_axis_off()
        return figure


def _named(pits: Tensor | Mapping[str, Tensor]) -> dict[str, Numbers]:
    named = pits if isinstance(pits, Mapping) else {"": pits}
    if not named:
        raise ValueError("pits: expected at least one tensor, got none.")
    arrays = {name: flat("pits", values) for name, values in named.items()}
    for name, values in arrays.items():
        if not ((values >= 0.0) & (values <= 1.0)).all():
            label = f" of {name}" if name else ""
            raise ValueError(f"pits{label}: expected numbers from 0 to 1, as of livi.metrics.pit, got others.")
    return arrays
