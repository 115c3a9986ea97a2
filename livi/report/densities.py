"""Draws of every method on every target of `livi bench densities`, over the target's own density."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from livi.experiments.density_targets import TARGETS
from livi.experiments.rows import rows_of
from livi.report.style import INK, PALETTE, TEXT_WIDTH, new_figure, save, style

SIDE = 120  # points of a grid
LEVELS = (0.01, 0.1, 0.3, 0.6, 0.9)  # of the peak
TITLES = {"livi": "livi", "sivi": "SIVI", "full_rank": "full rank", "mean_field": "mean field"}


def draw(results: Sequence[Path], figure: Path) -> list[Path]:
    """The draws that the files hold, those of the first seed, one row for each target in two dimensions.

    Returns:
        The figure's path; nothing where there are no such draws.
    """
    rows = [row for row in rows_of(results) if row["draws"] and row["dim"] == 2]
    if not rows:
        return []
    targets, methods = (list(dict.fromkeys(row[name] for row in rows)) for name in ("target", "method"))
    with style():
        made = new_figure(TEXT_WIDTH, TEXT_WIDTH * len(targets) / max(1, len(methods)))
        axes = made.subplots(len(targets), len(methods), squeeze=False, sharex="row", sharey="row")
        for row in rows:
            ax = axes[targets.index(row["target"])][methods.index(row["method"])]
            points, target = np.array(row["draws"]), TARGETS[row["target"]]
            truth = target.sample(2000, torch.Generator().manual_seed(0)).numpy()
            sides = [np.linspace(truth[:, i].min(), truth[:, i].max(), SIDE) for i in (0, 1)]
            grid = torch.tensor(np.stack(np.meshgrid(*sides), -1).reshape(-1, 2), dtype=torch.float32)
            density = target.log_prob(grid).exp().reshape(SIDE, SIDE).numpy()
            ax.contour(
                *sides,
                density,
                levels=[share * density.max() for share in LEVELS],
                colors=INK,
                linewidths=0.4,
                alpha=0.6,
            )
            ax.scatter(points[:, 0], points[:, 1], s=2.0, color=PALETTE[methods.index(row["method"])], linewidths=0)
            ax.set(xlim=(sides[0][0], sides[0][-1]), ylim=(sides[1][0], sides[1][-1]), xticks=[], yticks=[])
            ax.set_title(f"{TITLES.get(row['method'], row['method'])}, KL {row['kl']:.3f}")
        save(made, figure)
    return [figure]
