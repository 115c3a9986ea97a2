"""The figures of `livi demo`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from livi.experiments.toy import as_tensors
from livi.experiments.toy_data import OBS_STD, reference, true_function
from livi.posterior.diagnostics import Diagnosis, ShapeCheck
from livi.posterior.posterior import Posterior
from livi.report.bands import Band, predictive_bands
from livi.report.course import learning_curve
from livi.report.style import COLOURS, save, shared_legend, style
from livi.report.weights import correlation_matrix, weight_densities

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 7.2  # inches; a page has more room than a column of a paper
HEIGHTS = {"bands": 2.6, "densities": 3.1, "correlation": 3.0, "course": 3.4}
FIGURES = tuple(HEIGHTS)
TITLES = {"livi": "LIVI", "mean_field": "mean field", "ensemble-5": "ensemble of 5", "nuts": "NUTS"}
NUM_SAMPLES = 1000


@dataclass(frozen=True)
class FunctionBand:
    """Mean and bands of a function with observation noise OBS_STD."""

    mean: Tensor  # (places,)
    epistemic_std: Tensor

    @classmethod
    def of(cls, functions: Tensor) -> FunctionBand:  # (draws, places)
        return cls(functions.mean(0), functions.std(0, correction=0))

    @property
    def total_std(self) -> Tensor:
        return (self.epistemic_std.square() + OBS_STD**2).sqrt()


def draw_all(name: str, seed: int, posteriors: Mapping[str, Posterior], diagnosis: Diagnosis, folder: Path) -> None:
    """Write every figure of FIGURES to folder as a PNG, each as a whole or not at all."""
    figures = {
        "bands": bands(name, seed, posteriors),
        "densities": densities(posteriors, diagnosis, seed),
        "correlation": correlation_matrix(diagnosis),
        "course": learning_curve(posteriors["livi"].history),
    }
    for title in FIGURES:
        figures[title].set_size_inches(WIDTH, HEIGHTS[title])
        temporary = folder / f".{title}.part.png"
        save(figures[title], temporary)
        os.replace(temporary, folder / f"{title}.png")


def bands(name: str, seed: int, posteriors: Mapping[str, Posterior]) -> Figure:
    """The paper's Figure 1: the methods and NUTS side by side."""
    truth = reference(name)
    places = torch.as_tensor(truth.plot_grid, dtype=torch.float32)
    drawn: dict[str, Band] = {}
    for method, posterior in posteriors.items():
        functions = posterior.functions(NUM_SAMPLES, torch.Generator().manual_seed(seed))(places[:, None])
        drawn[TITLES[method]] = FunctionBand.of(functions.squeeze(-1).double())
    nuts = FunctionBand.of(torch.as_tensor(truth.functions))
    drawn[TITLES["nuts"]] = nuts
    reach = 2.0 * nuts.total_std
    low, high = float((nuts.mean - reach).min()), float((nuts.mean + reach).max())
    margin = 0.04 * (high - low)
    return predictive_bands(
        drawn,
        places,
        data=as_tensors(truth.data),
        truth=torch.as_tensor(true_function(name, truth.plot_grid)),
        ylim=(low - margin, high + margin),
    )


def densities(posteriors: Mapping[str, Posterior], diagnosis: Diagnosis, seed: int) -> Figure:
    """Densities of the weights that look least like a Gaussian under LIVI; an ensemble's members as ticks."""
    assert isinstance(diagnosis.shape, ShapeCheck)
    indices = [density.index for density in diagnosis.shape.densities if density.index is not None]
    rng = torch.Generator().manual_seed(seed)
    smooth = {TITLES[method]: posteriors[method].sample(20 * NUM_SAMPLES, rng) for method in ("livi", "mean_field")}
    figure = weight_densities(smooth, posteriors["livi"].layout, indices)
    members = posteriors["ensemble-5"].sample(5, rng)
    with style():
        axes = figure.axes[: len(indices)]
        for ax, index in zip(axes, indices, strict=True):
            values = members[:, index].tolist()
            height = 0.09 * ax.get_ylim()[1]
            ax.vlines(values, 0.0, height, color=COLOURS[2], linewidth=1.4, label=TITLES["ensemble-5"], zorder=5)
        for legend in list(figure.legends):
            legend.remove()
        shared_legend(figure, axes[0], len(smooth) + 1)
    return figure
