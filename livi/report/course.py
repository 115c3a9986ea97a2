"""The learning curve of a fit: the bound and its terms over the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from livi.report.style import FAINT, PALETTE, TEXT_WIDTH, Numbers, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def learning_curve(history: Sequence[Mapping[str, float]]) -> Figure:
    """The bound and its three terms over the steps of a fit, raw (light) and as a running mean (dark).

    The steps on which the KL term was still being warmed up are grey. The vertical range is that of the second half,
    widened, since the start is often far below.

    Args:
        history: rows with step, bound, log_likelihood, log_prior and entropy, such as `Posterior.history`.
    """
    names = {"bound": "bound", "log_likelihood": "log likelihood", "log_prior": "log prior", "entropy": "entropy"}
    logged = {name: [row for row in history if "step" in row and np.isfinite(row.get(name, np.nan))] for name in names}
    missing = [name for name, rows in logged.items() if len(rows) < 2]
    if missing:
        wanted = f"a step and a finite {', '.join(missing)}"
        raise ValueError(f"history: expected at least two rows with {wanted}, got {len(history)} rows.")
    steps = np.array([row["step"] for row in history if "step" in row])
    warming = warming_up([row for row in history if "step" in row])
    with style():
        figure = new_figure(TEXT_WIDTH, 0.52 * TEXT_WIDTH)
        axes = figure.subplots(2, 2, sharex=True).ravel()
        for ax, (name, title) in zip(axes, names.items(), strict=True):
            places, values = (np.array([row[part] for row in logged[name]]) for part in ("step", name))
            if len(warming):
                ax.axvspan(steps[0], warming[-1], color=FAINT, alpha=0.15, linewidth=0)
            ax.plot(places, values, color=PALETTE[0], alpha=0.35, linewidth=0.6)
            ax.plot(places, running_mean(values), color=PALETTE[0])
            ax.set(title=title, ylim=robust_range(values), xlim=(steps[0], steps[-1]))
        figure.supxlabel("step", fontsize=8.5)
        figure.supylabel("nats", fontsize=8.5)
        return figure


def warming_up(rows: Sequence[Mapping[str, float]]) -> Numbers:
    """The steps at which the KL term had less than its final weight."""
    weights = [row.get("kl_weight", 1.0) for row in rows]
    return np.array([row["step"] for row, weight in zip(rows, weights, strict=True) if weight < max(weights)])


def running_mean(values: Numbers) -> Numbers:
    """Over a window of about a fiftieth of the values, shrinking at the ends."""
    half = max(1, len(values) // 100)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    reach = np.minimum(half, np.minimum(places, places[::-1]))
    result: Numbers = (sums[places + reach + 1] - sums[places - reach]) / (2 * reach + 1)
    return result


def robust_range(values: Numbers) -> tuple[float, float]:
    settled = values[len(values) // 2 :]
    low, high = float(settled.min()), float(settled.max())
    margin = max(high - low, 1e-3 * max(1.0, abs(high)))
    return max(low - 2.0 * margin, float(values.min()) - 0.1 * margin), min(
        high + 2.0 * margin, float(values.max()) + 0.1 * margin
    )
