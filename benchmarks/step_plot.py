"""The step benchmark drawn: where a step's time goes, other ways beside it, cost and memory against the weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.step_tables import over_plain, plain_of, split, works

COLOURS = {"network": "#4477aa", "generator": "#ee6677", "entropy": "#228833", "rest": "#bbbbbb"}
MARKS = {"plain": ("o", "black", "plain"), "livi": ("s", "#ee6677", "livi, S = 1")}
WAYS = {
    "ensemble member": ("o", "#bbbbbb"),
    "livi": ("s", "#ee6677"),
    "mean field": ("D", "#4477aa"),
    "bayesian-torch": ("^", "#66ccee"),
    "L'' by LOBPCG": ("v", "#228833"),
    "laplace-torch fit": ("P", "#aa3377"),
}


def draw(document: Mapping[str, Any], stem: Path) -> list[Path]:
    """All figures, as far as there are rows for them."""
    import matplotlib

    matplotlib.use("Agg")
    rows = [row for row in document["rows"] if works(row)]
    named = [row for row in rows if row["way"] == "livi" and not row["network"].startswith("dense")]
    order = list(dict.fromkeys(row["network"] for row in named))
    named.sort(key=lambda row: (order.index(row["network"]), row["samples"]))
    scaled = [row for row in rows if row["network"].startswith("dense")]
    stem.parent.mkdir(parents=True, exist_ok=True)
    drawn = []
    if any(plain_of(rows, row["network"]) for row in named):
        drawn.append(_parts(rows, named, stem.with_suffix(".png")))
    beside = [row for row in rows if row["way"] in WAYS and row["samples"] == 1 and plain_of(rows, row["network"])]
    if len({row["way"] for row in beside}) > 1:
        drawn.append(_ways(rows, beside, order, stem.with_name(f"{stem.name}-ways.png")))
    if scaled:
        drawn.append(_scale(scaled, stem.with_name(f"{stem.name}-scale.png")))
    return drawn


def _parts(rows: list[Any], named: list[Any], path: Path) -> Path:
    """A bar for each number of samples, in plain steps, and one for the memory."""
    from matplotlib import pyplot as plt

    counted = any(over_plain(row, plain_of(rows, row["network"]), "memory") for row in named)
    figure, axes = plt.subplots(1, 2 if counted else 1, figsize=(11 if counted else 6, 3.6), squeeze=False)
    time, labels = axes[0, 0], []
    shown = [row for row in named if plain_of(rows, row["network"]) is not None]
    for place, row in enumerate(shown):
        plain, bottom = plain_of(rows, row["network"]), 0.0
        assert plain is not None
        for part, seconds in split(row).items():
            height = seconds / plain["seconds"]
            time.bar(place, height, 0.8, bottom=bottom, color=COLOURS[part], label=part if place == 0 else None)
            bottom += height
        labels.append(
            f"{row['network'].split(',')[0]}\nS = {row['samples']}" if row["samples"] == 1 else f"\n{row['samples']}"
        )
        if counted:
            axes[0, 1].bar(place, over_plain(row, plain, "memory") or 0.0, 0.8, color="#ccbb44")
    for axis, title in zip(axes[0], ("time of a step / plain step", "memory of a fit / plain training"), strict=False):
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.set_xticks(range(len(labels)), labels, fontsize=7)
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    time.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _ways(rows: list[Any], beside: list[Any], order: list[str], path: Path) -> Path:
    """A line for each network, a mark for each way with one weight vector a step."""
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 0.5 * len(order) + 1.4))
    for way, (mark, colour) in WAYS.items():
        points = [
            (over_plain(row, plain_of(rows, row["network"]), "seconds"), order.index(row["network"]))
            for row in beside
            if row["way"] == way and row["network"] in order
        ]
        look = {"marker": mark, "color": colour, "s": 42, "label": way, "zorder": 3 if way == "livi" else 2}
        axis.scatter(*zip(*points, strict=True), **look) if points else None
    axis.axvline(1.0, color="black", linewidth=0.8)
    axis.set_xscale("log")
    axis.set_yticks(range(len(order)), order)
    axis.set_ylim(len(order) - 0.5, -0.5)
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200) if tick <= axis.get_xlim()[1]]
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()
    axis.grid(axis="x", color="#eeeeee")
    axis.set_axisbelow(True)
    axis.set_title("time of a step / plain step, one weight vector a step", fontsize=10)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _scale(rows: list[Any], path: Path) -> Path:
    """Seconds of a step and bytes of a fit, plain and livi's, against m."""
    from matplotlib import pyplot as plt

    counted = any(row.get("memory") for row in rows)
    figure, axes = plt.subplots(1, 2 if counted else 1, figsize=(9 if counted else 4.6, 3.6), squeeze=False)
    kinds = [("seconds", "ms of a step", 1e3), ("memory", "GB of a fit", 1e-9)]
    for axis, (what, title, unit) in zip(axes[0], kinds, strict=False):
        for way, (mark, colour, label) in MARKS.items():
            points = sorted((row["weights"], unit * row[what]) for row in rows if row["way"] == way and row.get(what))
            axis.plot(*zip(*points, strict=True), marker=mark, color=colour, label=label) if points else None
        planned = sorted(
            (row["weights"], unit * row[f"planned_{what}"]) for row in rows if row["way"] == "livi" and row.get(what)
        )
        axis.plot(*zip(*planned, strict=True), "x", color="#4477aa", label="as planned") if planned else None
        axis.set(xscale="log", yscale="log", xlabel="weights of a dense network")
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
