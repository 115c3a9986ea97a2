"""The entropy benchmark as a figure: `python -m benchmarks.entropy_plot entropy.json entropy.png`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, object]


class Style(NamedTuple):
    short: str
    colour: str
    dashes: str
    marker: str


STYLES = {
    "Exact": Style("Exact", "#000000", "-", "s"),
    "L'' default": Style("L″, default", "#E69F00", "-", "v"),
    "L'' converged": Style("L″, converged", "#B23A00", "--", "v"),
    "Lanczos 1 probe, 1e-1": Style("Lanczos, 1 probe, 1e−1", "#56B4E9", "--", "o"),
    "Lanczos 1 probe, 1e-2": Style("Lanczos, 1 probe, 1e−2", "#56B4E9", "-", "o"),
    "Lanczos 4 probes, 1e-1": Style("Lanczos, 4 probes, 1e−1", "#004D80", "--", "o"),
    "Lanczos 4 probes, 1e-2": Style("Lanczos, 4 probes, 1e−2", "#004D80", "-", "o"),
}
ONE_A_KIND = ("Exact", "L'' default", "Lanczos 1 probe, 1e-2", "Lanczos 4 probes, 1e-2")  # same memory for the others


def draw(result: dict[str, object], path: Path) -> None:
    """Time and error for each noise, then memory and gradients; says so and returns where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        print("no figure: matplotlib is not installed; draw it elsewhere with python -m benchmarks.entropy_plot")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [row for row in result["rows"] if "skipped" not in row]
    noises = sorted({row["noise"] for row in rows})
    style = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "axes.titleweight": "bold"}
    with plt.rc_context(style):
        figure, axes = plt.subplots(2, 3, figsize=(13.5, 7.2), layout="constrained", sharex=True)
        for line, noise in zip(axes, noises, strict=True):
            mine = [row for row in rows if row["noise"] == noise]
            _lines(line[0], mine, "seconds", list(STYLES))
            passes = sorted({(row["m"], row["pass_seconds"]) for row in mine})
            line[0].plot(*zip(*passes, strict=True), color="#999999", lw=1, ls=":")
            _label(line[0], [(*passes[-1], "one pass of the generator", "#777777")])
            line[0].set_title(f"Seconds for value and gradient, noise {noise}", loc="left")
            _lines(line[1], mine, "error_percent", list(STYLES))
            line[1].set_title(f"Error, % of the log-determinant, noise {noise}", loc="left")
        _lines(axes[0, 2], [row for row in rows if row["noise"] == noises[0]], "bytes_per_entry", list(ONE_A_KIND))
        axes[0, 2].set_title("Peak memory, bytes per latent and weight (d + m)", loc="left")
        _lines(axes[1, 2], [row for row in rows if row["noise"] == noises[0]], "gradient_cosine", list(STYLES))
        axes[1, 2].set_title(f"Cosine with the exact gradient, noise {noises[0]}", loc="left")
        axes[1, 2].set_yscale("linear")
        axes[1, 2].set_ylim(-0.05, 1.05)
        _finish(axes.flat, rows)
        for column in (0, 1):
            _share_limits(axes[0, column], axes[1, column])
        figure.canvas.draw()  # fixes the layout, and with it where labels fall
        for ax in axes.flat:
            _part(ax)
        figure.savefig(path, dpi=160)
        plt.close(figure)
    print(f"figure: {path}")


def _lines(ax: Axes, rows: list[Row], field: str, labels: list[str]) -> None:
    ends = []
    ax.set_yscale("log")
    for label in labels:
        mine = [row for row in rows if row["estimator"] == label and not row.get("same_as_default")]
        points = sorted((row["m"], row[field]) for row in mine if row.get(field))
        if points:
            short, colour, dashes, marker = STYLES[label]
            ax.plot(*zip(*points, strict=True), color=colour, ls=dashes, marker=marker, ms=4, lw=1.4)
            ends.append((*points[-1], short, colour))
    _label(ax, ends)


def _label(ax: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Names at the ends of lines; `_part` moves apart those that would overlap."""
    for m, value, text, colour in ends:
        ax.annotate(
            text, (m, value), xytext=(6, 0), textcoords="offset points", va="center", color=colour, fontsize=7.5
        )


def _part(ax: Axes, gap: float = 9.5) -> None:
    """Shift labels on the right until `gap` points lie between neighbours; a line that ends earlier is named above."""
    points, last = 72.0 / ax.figure.dpi, max((note.xy[0] for note in ax.texts), default=0.0)
    for note in ax.texts:
        if note.xy[0] < last:
            note.set(ha="center")
            note.xyann = (0, 8)
    notes = sorted((note for note in ax.texts if note.xy[0] == last), key=lambda note: note.xy[1])
    wanted = [points * ax.transData.transform(note.xy)[1] for note in notes]
    placed = list(wanted)
    for _ in range(200):
        for i in range(1, len(placed)):
            short = gap - (placed[i] - placed[i - 1])
            if short > 0:
                placed[i - 1], placed[i] = placed[i - 1] - short / 2, placed[i] + short / 2
    for note, before, after in zip(notes, wanted, placed, strict=True):
        note.xyann = (6, after - before)


def _finish(axes: object, rows: list[Row]) -> None:
    problems = sorted({(row["m"], row["problem"]) for row in rows})
    low, high = problems[0][0], problems[-1][0]
    for ax in axes:
        ax.set_xscale("log")
        ax.minorticks_off()
        names = [f"{_count(m)}\n{name}".replace(" ", "\n") for m, name in problems]
        ax.set_xticks([m for m, _ in problems], names, fontsize=6.5)
        ax.set_xlim(low / 1.6, high * (high / low) ** 0.36)  # room for the names of lines
        ax.grid(axis="y", color="#E5E5E5", lw=0.6)
        ax.set_axisbelow(True)
        ax.tick_params(labelbottom=True)
    for ax in list(axes)[3:]:
        ax.set_xlabel("number of weights m")


def _count(m: int) -> str:
    return f"{m / 1e6:.1f}M" if m >= 1e6 else f"{m / 1e3:.0f}k" if m >= 1e3 else str(m)


def _share_limits(first: Axes, second: Axes) -> None:
    limits = [*first.get_ylim(), *second.get_ylim()]
    for ax in (first, second):
        ax.set_ylim(min(limits), max(limits))


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
