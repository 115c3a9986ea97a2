"""Figures of one-dimensional regression: mean, epistemic and total bands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np
from torch import Tensor

from livi.report.style import INK, PALETTE, TEXT_WIDTH, Numbers, figure_of, flat, new_figure, shared_legend, style, tint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Pair = tuple[Tensor, Tensor]  # x and y of data points


class Band(Protocol):
    """A prediction with a mean and two standard deviations, such as livi.posterior.prediction.RegressionPrediction."""

    @property
    def mean(self) -> Tensor: ...  # (B,)
    @property
    def epistemic_std(self) -> Tensor: ...  # (B,)
    @property
    def total_std(self) -> Tensor: ...  # (B,)


def predictive_band(
    x: Tensor,  # (B,) or (B, 1)
    mean: Tensor,
    epistemic: Tensor,
    total: Tensor,
    *,
    data: Pair | None = None,
    truth: Tensor | None = None,
    title: str = "",
    deviations: float = 2.0,
    colour: str = PALETTE[0],
    ax: Axes | None = None,
) -> Figure:
    """Mean, epistemic band (dark) and total band (light) of a one-dimensional regression, as in the paper's Figure 1.

    Args:
        epistemic, total: standard deviations.
        data: x and y of the observations, black points.
        truth: the true function at x, dashed.
        deviations: half width of the bands in standard deviations.
        ax: where to draw; a new figure where not given.
    """
    place = flat("x", x)
    order = np.argsort(place)
    curves = {"mean": mean, "epistemic": epistemic, "total": total} | ({} if truth is None else {"truth": truth})
    values = {name: flat(name, value) for name, value in curves.items()}
    for name, value in values.items():
        if value.shape != place.shape:
            raise ValueError(f"{name}: expected {len(place)} numbers as in x, got {len(value)}.")
        values[name] = value[order]
    place, centre = place[order], values["mean"]
    if place[0] == place[-1]:
        raise ValueError(f"x: expected at least two different numbers, got {len(place)} of one.")
    with style():
        alone = ax is None
        if ax is None:
            ax = new_figure(0.62 * TEXT_WIDTH, 0.45 * TEXT_WIDTH).subplots()
        if data is not None:
            observed = flat("data x", data[0]), flat("data y", data[1])
            ax.plot(*observed, ".", color="black", markersize=2.4, label="data", zorder=4)
        if "truth" in values:
            ax.plot(place, values["truth"], color=INK, linewidth=0.9, dashes=(4, 2.5), label="truth", zorder=3)
        ax.plot(place, centre, color=colour, label="mean", zorder=3)
        for name, strength, label in (("epistemic", 0.5, "epistemic"), ("total", 0.2, "epistemic and aleatoric")):
            low, high = centre - deviations * values[name], centre + deviations * values[name]
            shade = tint(colour, strength)
            ax.fill_between(place, low, high, color=shade, linewidth=0, label=label, zorder=1 + strength)
        ax.set(title=title, xlabel="$x$", ylabel="$y$", xlim=(place[0], place[-1]))
        ax.locator_params(axis="both", nbins=6, steps=[1, 2, 5, 10])
        if alone:
            shared_legend(figure_of(ax), ax, 3)
        return figure_of(ax)


def predictive_bands(
    predictions: Mapping[str, Band],
    x: Tensor,  # (B,) or (B, 1)
    *,
    data: Pair | None = None,
    truth: Tensor | None = None,
    deviations: float = 2.0,
    ylim: tuple[float, float] | None = None,
    columns: int = 4,
    outlined: tuple[str, Band] | None = None,
) -> Figure:
    """`predictive_band` for several methods side by side on the same axes: the paper's Figure 1.

    Args:
        outlined: a name and a band, whose epistemic edges are drawn into every panel.
    """
    if not predictions:
        raise ValueError("predictions: expected at least one, got none.")
    with style():
        columns = min(columns, len(predictions))
        rows = math.ceil(len(predictions) / columns)
        figure = new_figure(TEXT_WIDTH, rows * min(1.9, 0.85 * TEXT_WIDTH / columns) + 0.3)
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        for ax, (name, band) in zip(axes, predictions.items(), strict=False):
            predictive_band(
                x,
                band.mean,
                band.epistemic_std,
                band.total_std,
                data=data,
                truth=truth,
                title=name,
                deviations=deviations,
                ax=ax,
            )
            if outlined is not None:
                _outline(ax, flat("x", x), *outlined, deviations)
            ax.label_outer()
            ax.locator_params(axis="x", nbins=4)
        for ax in axes[len(predictions) - columns : len(predictions)]:  # also those with nothing below them
            ax.set_xlabel("$x$")
            ax.tick_params(labelbottom=True)
        for ax in axes[len(predictions) :]:
            ax.set_axis_off()
        if ylim is not None:
            axes[0].set_ylim(*ylim)
        shared_legend(figure, axes[0], 5 if outlined is None else 6)
        return figure


def _outline(ax: Axes, x: Numbers, name: str, band: Band, deviations: float) -> None:
    order = np.argsort(x)
    for side, label in ((-deviations, f"{name}, epistemic"), (deviations, "")):
        edge = flat("mean", band.mean) + side * flat("epistemic", band.epistemic_std)
        ax.plot(x[order], edge[order], color=INK, linewidth=0.7, zorder=2.5, label=label or None)
