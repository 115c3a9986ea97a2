"""Figures of the weights: correlations between layers, marginal densities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from livi import checks
from livi.network import Layout
from livi.posterior.diagnostics import (
    CorrelationCheck,
    Diagnosis,
    Skipped,
    cross_validated,
    kernel_density,
    weight_name,
)
from livi.report.style import COLOURS, FAINT, INK, TEXT_WIDTH, as_numpy, figure_of, new_figure, shared_legend, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def correlation_matrix(diagnosis: Diagnosis | CorrelationCheck) -> Figure:
    """Correlations between layers, root mean square over pairs of weights; of a small network also weight by weight.

    Numbers are corrected for the noise of finite samples; those below twice that noise are grey.
    """
    check = diagnosis.correlation if isinstance(diagnosis, Diagnosis) else diagnosis
    if isinstance(check, Skipped):
        raise ValueError(f"diagnosis: expected one with correlations, got none; {check.reason}.")
    with style():
        if check.matrix is None:
            figure = new_figure(0.6 * TEXT_WIDTH, 0.5 * TEXT_WIDTH)
            _blocks(figure.subplots(), check)
        else:
            figure = new_figure(TEXT_WIDTH, 0.46 * TEXT_WIDTH)
            left, right = figure.subplots(1, 2)
            _whole_matrix(left, check)
            _blocks(right, check)
        return figure


def weight_densities(
    samples_by_method: Mapping[str, Tensor],  # (S, m) each
    layout: Layout,
    indices: Sequence[int],
    *,
    columns: int = 3,
) -> Figure:
    """Marginal densities of some weights, one panel each, one curve a method, by kernels of cross-validated width.

    Args:
        indices: places in theta.
        columns: panels in a row.
    """
    if not samples_by_method or not indices:
        raise ValueError("expected samples of at least one method and at least one index, got none.")
    for name, samples in samples_by_method.items():
        checks.matrix(f"samples of {name}", samples, layout.num_params)
    for index in indices:
        if not 0 <= index < layout.num_params:
            raise ValueError(f"indices: expected places in theta, 0 to {layout.num_params - 1}, got {index}.")
    columns = min(checks.positive_int("columns", columns), len(indices))
    rows = math.ceil(len(indices) / columns)
    with style():
        figure = new_figure(TEXT_WIDTH, 1.25 * rows + 0.25)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for ax, index in zip(axes, indices, strict=False):
            for (name, samples), colour in zip(samples_by_method.items(), COLOURS, strict=False):
                grid, density, _ = kernel_density(samples[:, index], bandwidth=cross_validated(samples[:, index]))
                ax.plot(as_numpy(grid), as_numpy(density), color=colour, label=name)
                ax.fill_between(as_numpy(grid), as_numpy(density), color=colour, alpha=0.12, linewidth=0)
            ax.set(title=weight_name(layout, index), yticks=[], ylim=(0.0, None))
            ax.spines["left"].set_visible(False)
        for ax in axes[len(indices) :]:
            ax.set_axis_off()
        shared_legend(figure, axes[0], len(samples_by_method))
        return figure


def _whole_matrix(ax: Axes, check: CorrelationCheck) -> None:
    assert check.matrix is not None
    matrix = as_numpy(check.matrix).copy()
    off_diagonal = matrix[~np.eye(len(matrix), dtype=bool)]
    limit = max(0.1, float(np.quantile(np.abs(off_diagonal), 0.999))) if len(matrix) > 1 else 1.0
    limit = 1.0 if limit > 0.8 else limit
    np.fill_diagonal(matrix, np.nan)  # always 1, and would be all that is seen
    image = ax.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    edges = np.cumsum([0, *check.sizes])
    for edge in edges[1:-1]:
        ax.axhline(edge - 0.5, color=INK, linewidth=0.5)
        ax.axvline(edge - 0.5, color=INK, linewidth=0.5)
    _layer_ticks(ax, (edges[:-1] + edges[1:] - 1) / 2.0, check.layers)
    ax.set_title("pairs of weights")
    _colour_bar(ax, image, "both" if np.abs(off_diagonal).max(initial=0.0) > limit else "neither")


def _blocks(ax: Axes, check: CorrelationCheck) -> None:
    rms, noise = as_numpy(check.rms), as_numpy(check.noise)
    largest = float(np.nanmax(rms)) if np.isfinite(rms).any() else 1.0
    top, digits = max(0.1, largest), 2 if largest >= 0.1 else 3
    image = ax.imshow(rms, cmap="Blues", vmin=0.0, vmax=top)
    if len(rms) > 8:
        _colour_bar(ax, image)
    else:
        for (row, column), value in np.ndenumerate(rms):
            if math.isnan(value):
                continue
            clear = value**2 > 2.0 * noise[row, column]
            dark = value > 0.55 * top
            colour = ("white" if dark else INK) if clear else "#cccccc" if dark else FAINT
            ax.text(column, row, f"{value:.{digits}f}", ha="center", va="center", color=colour, fontsize=7.5)
    _layer_ticks(ax, np.arange(len(rms)), check.layers)
    ax.set_title("correlations by pair of layers, root mean square")


def _layer_ticks(ax: Axes, places: npt.NDArray[Any], names: Sequence[str]) -> None:
    every = math.ceil(len(names) / 20)
    long = max(map(len, names)) > 4
    ax.set_xticks(places[::every], names[::every], rotation=90 if long else 0)
    ax.set_yticks(places[::every], names[::every])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(True)


def _colour_bar(ax: Axes, image: Any, extend: str = "neither") -> None:
    bar = figure_of(ax).colorbar(image, ax=ax, shrink=0.8, pad=0.03, aspect=25, extend=extend)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=7)
