"""The paper's entropy figure from the results of `livi bench entropy`: estimates along the training of a VAE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from livi.experiments.entropy_bench import METHODS, TRUTH
from livi.experiments.rows import rows_of, succeeded
from livi.report.style import FAINT, INK, PALETTE, new_figure, save, shared_legend, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {"weights": "weights of the toy network", "digits": "digits", "mnist": "MNIST"}
LABELS = {
    TRUTH: "importance sampling",
    "exact-terms": "equation 14",
    "exact": "$\\mathcal{L}'$",
    "lanczos": "$\\mathcal{L}'$, Lanczos",
    "smallest": "$\\mathcal{L}''$",
    "encoder": "by the encoder",
}
DASHES = {"exact": (None, None), "lanczos": (1.0, 1.5), "exact-terms": (4.0, 1.5)}
WIDTH, HEIGHT = 2.6, 3.6  # inches, of a column


def draw(results: Sequence[Path], figure: Path) -> list[Path]:
    """For each data set the entropies of the first seed whose training did not fail, and below them their errors.

    Returns:
        The figure's path; nothing where all trainings failed.
    """
    rows: dict[str, Mapping[str, Any]] = {}
    for row in succeeded(rows_of(results)):
        rows.setdefault(row["data"], row)
    if not rows:
        return []
    with style():
        made = new_figure(0.4 + WIDTH * len(rows), HEIGHT)
        axes = made.subplots(2, len(rows), squeeze=False, sharex="col", height_ratios=(1.6, 1.0))
        for (above, below), row in zip(axes.T, rows.values(), strict=True):
            _entropies(above, row["curve"])
            _errors(below, row["curve"])
            above.set_title(f"{TITLES.get(row['data'], row['data'])} ({row['size']} numbers)")
            below.set_xlabel("epoch")
        axes[0][0].set_ylabel("entropy, nats")
        axes[1][0].set_ylabel("minus truth, nats")
        shared_legend(made, axes[0][0], 2 * len(rows))
        save(made, figure)
    return [figure]


def _entropies(ax: Axes, curve: Sequence[Mapping[str, Any]]) -> None:
    for place, name in enumerate((TRUTH, *(method for method in METHODS if method in curve[0]))):
        ax.plot(_epochs(curve), [point[name]["nats"] for point in curve], label=LABELS[name], **_look(name, place))
    ax.set_xscale("symlog", linthresh=1.0)
    shown = [point[name]["nats"] for point in curve for name in point if name in LABELS and name != "encoder"]
    margin = 0.15 * (max(shown) - min(shown))
    ax.set_ylim(min(shown) - margin, max(shown) + margin)  # where the encoder's are far above, they are below alone


def _errors(ax: Axes, curve: Sequence[Mapping[str, Any]]) -> None:
    ax.axhline(0.0, color=INK, linewidth=1.8)
    for place, name in enumerate(METHODS, start=1):
        if name in curve[0]:
            errors = np.array([point[name]["error_nats"] for point in curve])
            width = 2.0 * np.array([point[name]["error_standard_error"] for point in curve])
            look = _look(name, place)
            ax.fill_between(_epochs(curve), errors - width, errors + width, color=look["color"], alpha=0.2, linewidth=0)
            ax.plot(_epochs(curve), errors, **look)
    ax.set_yscale("symlog", linthresh=1.0)


def _epochs(curve: Sequence[Mapping[str, Any]]) -> list[int]:
    return [point["epoch"] for point in curve]


def _look(name: str, place: int) -> dict[str, Any]:
    if name == TRUTH:
        return {"color": INK, "linewidth": 1.8}
    if name == "encoder":
        return {"color": FAINT, "dashes": (3.0, 2.0)}
    return {"color": PALETTE[place - 1], "dashes": DASHES.get(name, (None, None))}
