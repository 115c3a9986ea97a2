"""Parts of interactive figures in plotly's JSON format, as plain lists, dicts and numbers; plotly is not needed.

Text from the user is escaped, because plotly reads a little HTML in labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livi.report.style import INK, PALETTE, Numbers

FONT = '"Source Serif 4", Charter, "Bitstream Charter", Cambria, Georgia, serif'
GRID, BAND = "#ececee", "rgba(90, 90, 98, 0.15)"
GOOD, BAD = PALETTE[0], PALETTE[1]  # told apart by their shape too
MOST_POINTS = 1000  # of a cloud; more are slow to draw and cannot be told apart

Trace = dict[str, Any]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Figure:
    """One figure: what plotly draws, and a description for readers who cannot see it.

    Args:
        choices: texts of buttons above the figure, with the traces that each of them shows.
        chosen: the button that is pressed at first.
    """

    name: str
    title: str
    description: str
    data: list[Trace]
    layout: dict[str, Any]
    choices: Mapping[str, list[bool]] = field(default_factory=dict)
    chosen: str = ""


def layout(across: str, up: str, height: int) -> dict[str, Any]:
    """Axes, fonts and colours of a figure with these axis titles; as wide as its place on the page."""
    return {
        "height": height,
        "autosize": True,
        "font": {"family": FONT, "size": 13.5, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 56, "r": 22, "t": 34, "b": 48},
        "xaxis": axis(across),
        "yaxis": axis(up),
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": "#b9b9be", "font": {"family": FONT, "color": INK}},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        "modebar": {"bgcolor": "rgba(255,255,255,0.85)", "color": "#9a9aa0", "activecolor": INK},
    }


def axis(title: str) -> dict[str, Any]:
    return {
        "title": {"text": title, "standoff": 10},
        "gridcolor": GRID,
        "zeroline": False,
        "showline": True,
        "linecolor": INK,
        "linewidth": 1,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": INK,
        "automargin": True,
        "separatethousands": True,
    }


def marker(colour: str, symbol: str = "circle", size: float = 6.5, opacity: float = 0.75) -> dict[str, Any]:
    return {"color": colour, "symbol": symbol, "size": size, "opacity": opacity, "line": {"width": 0}}


def line(x: Numbers, y: Numbers, name: str, colour: str, **more: Any) -> Trace:
    """A curve. NaN in y leaves a gap."""
    stroke = {"color": colour, "width": more.pop("width", 2)} | ({"dash": more.pop("dash")} if "dash" in more else {})
    return {"type": "scatter", "mode": "lines", "x": numbers(x), "y": numbers(y), "name": name, "line": stroke} | more


def segments(x: Numbers, low: Numbers, high: Numbers, name: str, colour: str, **more: Any) -> Trace:
    """Vertical lines from low to high at every x, as one curve with gaps."""
    ends = np.stack([low, high, np.full(len(x), np.nan)], 1).ravel()
    return line(np.repeat(x, 3), ends, name, colour, hoverinfo="skip", **more)


def points(x: Numbers, y: Numbers, name: str, style: Mapping[str, Any], hover: str, **more: Any) -> Trace:
    """A cloud; `hover` is plotly's template of the text shown at a point."""
    seen = {"marker": dict(style), "hovertemplate": hover + "<extra></extra>", "showlegend": True}
    return {"type": "scatter", "mode": "markers", "x": numbers(x), "y": numbers(y), "name": name} | seen | more


def bars(edges: Numbers, heights: NDArray[Any], name: str, colour: str, hover: str, **more: Any) -> Trace:
    """A histogram with small gaps between the bars."""
    width = 0.94 * float(edges[1] - edges[0])
    trace = {"type": "bar", "x": numbers(0.5 * (edges[1:] + edges[:-1])), "y": numbers(heights), "name": name}
    return trace | {"width": width, "marker": {"color": colour}, "hovertemplate": hover + "<extra></extra>"} | more


def diagonal(ends: Sequence[float], name: str, colour: str = INK) -> Trace:
    """The line on which both axes are equal."""
    both = np.array(ends)
    return line(both, both, name, colour, width=1, dash="5px,4px", hoverinfo="skip")


def band(x: Numbers, low: Numbers, high: Numbers, name: str) -> Trace:
    """The grey area between two curves."""
    around, edge = np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]])
    return line(around, edge, name, "rgba(0,0,0,0)", width=0, fill="toself", fillcolor=BAND, hoverinfo="skip")


def numbers(values: NDArray[Any]) -> list[float | int | None]:
    """Numbers for JSON, with five digits; None where a number is not finite."""
    if values.dtype.kind in "iub":
        return [int(value) for value in values]
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values.tolist()]


def label(text: str, longest: int = 32) -> str:
    """The user's text for plotly: shortened, on one line, and escaped, since plotly reads HTML."""
    return escape(shortened(text, longest), quote=False)


def shortened(text: str, longest: int) -> str:
    """Text on one line, with an ellipsis in its middle if it is too long, since names often differ at their ends.

    >>> shortened("class number 17", 10)
    'class…r 17'
    """
    plain = " ".join(text.split())
    if len(plain) <= longest:
        return plain
    tail = (longest - 1) // 2
    return plain[: longest - 1 - tail] + "…" + plain[len(plain) - tail :]


def sample(count: int, keep: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Numbers of at most MOST_POINTS random rows, in order and always the same, among them those of `keep`."""
    if count <= MOST_POINTS:
        return np.arange(count)
    drawn = np.random.default_rng(0).choice(count, MOST_POINTS, replace=False)
    return np.unique(drawn if keep is None else np.concatenate([drawn, keep]))


def padded(*values: Numbers) -> list[float]:
    """The range of all finite numbers with a margin, which is positive even if they are all equal."""
    every = np.concatenate([np.ravel(part) for part in values])
    every = every[np.isfinite(every)]
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    margin = 0.05 * high - 0.05 * low or 0.05 * abs(high) or 1.0
    return [low - margin, high + margin]
