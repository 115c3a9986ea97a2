"""The paper's Figure 1 from the results of `livi bench toy`: every method beside NUTS, a figure for each data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from livi.experiments.rows import rows_of
from livi.experiments.toy import as_tensors
from livi.experiments.toy_data import Reference, reference, true_function
from livi.report.bands import Band, predictive_bands
from livi.report.demo_figures import FunctionBand
from livi.report.style import save, style
from livi.report.titles import titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = (6, 7, 5)  # of the figure: the first that leaves the fewest empty panels
WIDTH, ROW = 9.0, 1.5  # inches
TITLES = {
    "livi-sampled": "LIVI, sampled",
    "livi-polished": "LIVI, then MCMC",
}


def draw(results: Sequence[Path], figure: Path) -> list[Path]:
    """Write FILE-a and FILE-b, as far as the results have these data sets; the paths written.

    Of several files together, one curve for each method: that of the first file which has it.
    """
    rows: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows_of(results):
        if row.get("curve"):
            rows.setdefault((row["data"], row["method"]), row)
    written = []
    for name in sorted({data for data, _ in rows}):
        path = figure.with_stem(f"{figure.stem}-{name.lower()}")
        save(bands(name, [row for (data, _), row in rows.items() if data == name]), path)
        written.append(path)
    return written


def bands(name: str, rows: list[Mapping[str, Any]]) -> Figure:
    """Mean, epistemic and total bands of every row, the farthest from NUTS first and NUTS last, each with its W2.

    The outline of NUTS's epistemic band is drawn into every panel.
    """
    rows = sorted(rows, key=lambda row: -row["w2_to_nuts"])
    truth = reference(name)
    nuts = FunctionBand.of(torch.as_tensor(truth.functions))
    drawn: dict[str, Band] = {title(row["method"]): _band(row) for row in rows} | {"NUTS": nuts}
    distances = [*(row["w2_to_nuts"] for row in rows), truth.w2_runs]
    columns = min(COLUMNS, key=lambda count: -len(drawn) % count)
    made = predictive_bands(
        drawn,
        torch.as_tensor(truth.plot_grid, dtype=torch.float32),
        data=as_tensors(truth.data),
        truth=torch.as_tensor(true_function(name, truth.plot_grid)),
        ylim=_limits(nuts, truth),
        columns=columns,
        outlined=("NUTS", nuts),
    )
    with style():
        for ax, distance in zip(made.axes, distances, strict=False):
            ax.text(0.04, 0.05, f"$W_2$ = {distance:.3f}", transform=ax.transAxes, zorder=6)
    made.set_size_inches(WIDTH, ROW * -(-len(drawn) // columns) + 0.3)
    return made


def title(method: str) -> str:
    """
    >>> title("livi-mixture-3"), title("avb")
    ('LIVI, 3 components', 'AVB')
    """
    return TITLES.get(method) or titled(method)


def _band(row: Mapping[str, Any]) -> Band:
    return FunctionBand(*(torch.tensor(row["curve"][part], dtype=torch.float64) for part in ("mean", "std")))


def _limits(nuts: FunctionBand, truth: Reference) -> tuple[float, float]:
    """Limits of the vertical axis that contain NUTS's bands and the data."""
    reach, y = 2.0 * nuts.total_std, torch.as_tensor(truth.data.y)
    low, high = (
        min(float((nuts.mean - reach).min()), float(y.min())),
        max(float((nuts.mean + reach).max()), float(y.max())),
    )
    margin = 0.04 * (high - low)
    return low - margin, high + margin
