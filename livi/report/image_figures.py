"""Figures of the benchmarks on images: every method on rotated, corrupted and out-of-distribution images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from livi.experiments.images.scores import ALL_CORRUPTIONS, shared_sets, shift_curve
from livi.posterior.diagnostics import CorrelationCheck
from livi.report.style import FAINT, PALETTE, TEXT_WIDTH, Numbers, new_figure, save, shared_legend, style
from livi.report.titles import SETS, titled
from livi.report.weights import correlation_matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]

# Dashes that can be told apart, in points of line and gap where matplotlib has no name for them.
DASHES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (3, 3)), (0, (1, 3)))
OURS, THEIRS = PALETTE[:1], PALETTE[1:]
WIDE = 3  # panels in a line
TITLES = {"nll": "negative log likelihood", "ece": "calibration error, %", "accuracy": "accuracy, %"}


def shift_curves(rows: Rows, shift: str) -> Figure:
    """NLL and calibration error by angle of rotation or severity of corruption: means over seeds, standard errors.

    Args:
        rows: of `livi bench`, without those that failed.
        shift: "rotation" (test M2), the name of a corruption (test C2), or "corruption" for the mean over them all.
    """
    chosen = _by_method([row for row in rows if shift_curve(row, shift, "levels") is not None])
    if not chosen:
        raise ValueError(f"rows: expected some of {shift}, got none.")
    with style():
        figure = new_figure(TEXT_WIDTH, 0.38 * TEXT_WIDTH + _legend_height(list(chosen)))
        axes = figure.subplots(1, 2)
        for ax, name in zip(axes, ("nll", "ece"), strict=True):
            for (method, group), look in zip(chosen.items(), _looks(chosen), strict=True):
                curves = np.array([shift_curve(row, shift, name) for row in group]) * (100.0 if name == "ece" else 1.0)
                _band(ax, np.array(shift_curve(group[0], shift, "levels")), curves, titled(method), look)
            _along(ax, shift)
            ax.set(ylabel=TITLES[name], ylim=(0, None))
        shared_legend(figure, axes[0], _columns(chosen))
        return figure


def entropy_curves(rows: Rows, classes: int) -> Figure:
    """Empirical distribution of predictive entropy on each OOD set (test M3): a curve that rises late is unsure.

    Of the sets that all methods have, or of all where there is none such.

    Args:
        classes: whose logarithm is the highest entropy.
    """
    chosen = _by_method(rows)
    known = list(dict.fromkeys(name for row in rows for name in row["entropy"] if name != "scored"))
    shared = [name for name in known if all(any(name in row["entropy"] for row in group) for group in chosen.values())]
    names = shared or known
    if not chosen or not names:
        raise ValueError("rows: expected some with OOD images, got none.")
    with style():
        lines, columns = math.ceil(len(names) / WIDE), min(WIDE, len(names))
        figure = new_figure(TEXT_WIDTH, 0.38 * lines * TEXT_WIDTH + _legend_height(list(chosen)))
        axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        top = math.log(classes)
        for ax, name in zip(axes.flat, names, strict=False):
            for (method, group), look in zip(chosen.items(), _looks(chosen), strict=True):
                curves = np.array([row["entropy"][name] for row in group if name in row["entropy"]])
                if not len(curves):
                    continue
                _band(ax, np.linspace(0.0, top, curves.shape[1]), curves, titled(method), look)
            ax.axvline(top, color=FAINT, linewidth=0.6, linestyle=":")
            ax.set(title=SETS.get(name, name), xlim=(0.0, 1.02 * top), ylim=(0.0, 1.0))
        for ax in axes.flat[len(names) :]:
            ax.set_axis_off()
        for ax in axes[-1]:
            ax.set_xlabel("entropy, nats")
        for ax in axes[:, 0]:
            ax.set_ylabel("share of images")
        shared_legend(figure, axes[0, 0], _columns(chosen))
        return figure


def overview(rows: Rows, classes: int) -> Figure:
    """Livi beside one network and an ensemble, small: NLL of rotated images, and entropy of OOD and scored images.

    Curves of entropy are means over the OOD sets that all have.
    """
    methods = _overviewed(rows)
    chosen = _by_method([row for row in rows if row["method"] in methods])
    ood = shared_sets([row for group in chosen.values() for row in group])
    with style():
        figure = new_figure(TEXT_WIDTH, 0.4 * TEXT_WIDTH)
        left, right = figure.subplots(1, 2)
        for method, look in zip(methods, _looks(methods), strict=True):
            group = chosen[method]
            curves = np.array([shift_curve(row, "rotation", "nll") for row in group])
            _band(left, np.array(shift_curve(group[0], "rotation", "levels")), curves, titled(method), look)
            shares = np.array([np.mean([row["entropy"][name] for name in ood], 0) for row in group])
            places = np.linspace(0.0, math.log(classes), shares.shape[1])
            _band(right, places, shares, titled(method), look)
            scored = np.array([row["entropy"]["scored"] for row in group])
            _band(right, places, scored, "", look | {"linestyle": (0, (1, 1.5)), "linewidth": 1.0})
        _along(left, "rotation")
        left.set(title="rotated test images", ylabel=TITLES["nll"], ylim=(0, None))
        right.set(title="images by the entropy of their predictions", xlabel="entropy, nats", ylabel="share of images")
        right.set(xlim=(0.0, 1.02 * math.log(classes)), ylim=(0.0, 1.02))
        for words, across, up in (("test images, dotted", 0.04, 0.84), ("out-of-distribution images", 0.47, 0.08)):
            right.annotate(words, (across, up), xycoords="axes fraction", color=FAINT, fontsize=7.5)
        shared_legend(figure, left, len(methods))
        return figure


def _overviewed(rows: Rows) -> list[str]:
    """One network, the smallest ensemble and livi, if all three were scored on rotated and OOD images."""
    known = {row["method"] for row in rows if "rotation" in (row.get("shifts") or {}) and row.get("others")}
    ensembles = sorted(
        (method for method in known if method.startswith("ensemble-")), key=lambda name: (len(name), name)
    )
    methods = ["map", *ensembles[:1], "livi"]
    return methods if ensembles and known.issuperset(methods) else []


def runtime_curves(rows: Rows) -> Figure:
    """NLL of validation images against seconds of fitting for the first seed; a mark is the length that was enough.

    Args:
        rows: of `livi bench runtime`, without those that failed.
    """
    chosen = _by_method(rows)
    if not chosen:
        raise ValueError("rows: expected some of livi bench runtime, got none.")
    with style():
        figure = new_figure(TEXT_WIDTH, 0.5 * TEXT_WIDTH + _legend_height(list(chosen)))
        ax = figure.subplots()
        for (method, group), look in zip(chosen.items(), _looks(chosen), strict=True):
            sound = [one for one in group[0]["lengths"] if one["error"] is None]
            places = [(one["seconds"], one["nll"]) for one in sound]
            ax.plot(*zip(*places, strict=True), **look, marker=".", markersize=3, label=titled(method))
            ax.plot(group[0]["seconds"], group[0]["nll"], "o", color=look["color"], markersize=5.5, fillstyle="none")
        ax.set(xscale="log", yscale="log", xlabel="seconds", ylabel="NLL of validation images")
        _plain_ticks(ax)
        shared_legend(figure, ax, _columns(chosen))
        return figure


def _plain_ticks(ax: Axes) -> None:
    """Numbers in place of powers of ten, on axes that often span less than one."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())


def draw_runtime(rows: Rows, path: Path) -> None:
    """The figure of `livi bench runtime`."""
    save(runtime_curves(rows), path)


def figure_names(rows: Rows) -> list[str]:
    """Names of the figures that these rows allow: rotation or all corruptions together, entropy on OOD images."""
    shifts = list(dict.fromkeys(name for row in rows for name in row.get("shifts") or {}))
    ood = any(name != "scored" for row in rows for name in row.get("entropy") or {})
    names = [*(shifts if len(shifts) == 1 else [ALL_CORRUPTIONS] * bool(shifts)), *(["entropy"] if ood else [])]
    return [*(["overview"] if _overviewed(rows) else []), *names]


def figure_named(rows: Rows, name: str, classes: int) -> Figure:
    """The figure of this name, from `figure_names` or the name of a single corruption."""
    if name == "overview":
        return overview(rows, classes)
    return entropy_curves(rows, classes) if name == "entropy" else shift_curves(rows, name)


def draw(rows: Rows, classes: int, stem: Path) -> list[Path]:
    """All figures of these rows as files that begin with `stem`, each corruption among them."""
    names = dict.fromkeys([*(name for row in rows for name in row["shifts"]), *figure_names(rows)])
    paths = {name: stem.with_name(f"{stem.name}-{name.replace(' ', '-')}.png") for name in names}
    for name, path in paths.items():
        save(figure_named(rows, name, classes), path)
    return list(paths.values())


def draw_correlations(found: Mapping[str, Any], path: Path) -> None:
    """Correlations between layers from a row of `livi bench --ablations`."""
    save(correlation_figure(found), path)


def correlation_figure(found: Mapping[str, Any]) -> Figure:
    """Correlations between layers from a row of `livi bench --ablations`, as a figure."""
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
    return correlation_matrix(check)


def _matrix(rows: Sequence[Sequence[float | None]]) -> Tensor:
    return torch.tensor([[math.nan if value is None else value for value in row] for row in rows], dtype=torch.float64)


def _columns(methods: Iterable[str]) -> int:
    """Columns of a legend: five, or fewer for long names with settings."""
    names = [titled(method) for method in methods]
    longest = max(map(len, names))
    return min(len(names), 5 if longest <= 18 else 4 if longest <= 20 else 3 if longest <= 42 else 2)


def _legend_height(methods: Sequence[str]) -> float:
    """Height of a legend in inches."""
    return 0.17 * math.ceil(len(methods) / _columns(methods))


def _looks(methods: Iterable[str]) -> list[dict[str, Any]]:
    """Line styles: livi's lines thick and blue; others thin, in other colours, solid, dashed or dotted."""
    ours, others = (cycle([(colour, dashes) for dashes in DASHES for colour in some]) for some in (OURS, THEIRS))
    looks = []
    for method in methods:
        own = method.startswith("livi")
        colour, dashes = next(ours if own else others)
        looks.append({"color": colour, "linestyle": dashes, "linewidth": 1.7 if own else 1.0})
    return looks


def _along(ax: Axes, shift: str) -> None:
    """The axis of a rotation or corruption."""
    if shift == "rotation":
        ax.set(xlabel="rotation, degrees", xticks=range(0, 181, 45))
    else:
        what = "corruption" if shift == ALL_CORRUPTIONS else shift
        ax.set(xlabel=f"severity of {what}", xticks=range(6))


def _band(
    ax: Axes,
    places: Numbers,  # (n,)
    curves: Numbers,  # (seeds, n)
    label: str,
    look: dict[str, Any],
) -> None:
    middle = curves.mean(0)
    ax.plot(places, middle, **look, label=label)
    if len(curves) > 1:
        error = curves.std(0, ddof=1) / math.sqrt(len(curves))
        ax.fill_between(places, middle - error, middle + error, color=look["color"], alpha=0.15, linewidth=0)


def _by_method(rows: Rows) -> dict[str, list[Mapping[str, Any]]]:
    """Rows of each method: livi's own first, then one network and ensembles, which have the same colours everywhere."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: _place(row["method"])):
        groups.setdefault(row["method"], []).append(row)
    return groups


def _place(method: str) -> tuple[int, ...]:
    """A sort key: earlier methods first, small ensembles before large ones."""
    kinds = ("livi", "map", "ensemble")
    size = len(method) if method.startswith("ensemble") else 0
    return (method != "livi", *(not method.startswith(kind) for kind in kinds), size)
