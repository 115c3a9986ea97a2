"""The section on what predictions depend on: a bar for each column, and curves along the most important ones."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np

from livi.report.elements import figure_html, note, number, panels, percent
from livi.report.interactive import (
    GOOD,
    Figure,
    Trace,
    band,
    label,
    layout,
    line,
    marker,
    numbers,
    padded,
    points,
    segments,
    shortened,
)
from livi.report.style import tint
from livi.report.table_parts import Section
from livi.tables.content import Content, Effect

MOST_BARS = 12
SMALL = 0.02  # of the largest bar, below which a column does not matter
EPOCH = date(1970, 1, 1)


def drivers_section(content: Content) -> Section:
    """The section with bars and curves; a sentence where there were no held-out rows to measure them on."""
    title = "What the predictions depend on"
    if not content.drivers:
        return Section("drivers-section", title, "<p>This was not looked at.</p>")
    bars = importance(content)
    regression = content.task == "regression"
    what = "the typical error" if regression else "the probability given to wrong classes"
    caption = (
        f"How much {what} grows when the values of one column are shuffled among the rows, so that it says nothing: "
        "what the model takes from that column. Columns that say the same share the credit."
    )
    body = f"<p>{_summary(content)}</p>" + figure_html(bars, caption)
    curves = [curve(effect, content) for effect in content.effects]
    if curves:
        body += "<h3>How predictions change along a column</h3>" + note(
            "The average prediction if all rows had this value in the column and were else as they are. The grey area "
            "holds nine in ten of the networks that the data allow: it is wide where the model has seen little. All "
            "have the same vertical range. They describe the model, and need not be causes."
        )
        body += panels(curves, [""] * len(curves))
    return Section("drivers-section", title, body, [bars, *curves])


def importance(content: Content) -> Figure:
    """A horizontal bar for each of the most important columns."""
    shown = content.drivers[:MOST_BARS][::-1]
    gains = np.array([max(0.0, one.without - one.error) for one in shown])
    names = [label(one.name, 22) for one in shown]
    say = number if content.task == "regression" else _small_percent
    bar: Trace = {"type": "bar", "orientation": "h", "x": numbers(gains), "y": list(range(len(shown)))}
    bar |= {"marker": {"color": tint(GOOD, 0.75)}, "text": [f"+{say(float(gain))}" for gain in gains]}
    bar |= {"textposition": "outside", "cliponaxis": False, "hoverinfo": "skip"}
    made = layout("growth of the error without it", "", max(170, 90 + 30 * len(shown))) | {"showlegend": False}
    made["yaxis"] |= {"tickvals": bar["y"], "ticktext": names, "showgrid": False, "ticks": "", "showline": False}
    made["xaxis"] |= {"range": [0, 1.18 * (float(gains.max()) or 1.0)]}
    made["xaxis"] |= {} if content.task == "regression" else {"tickformat": "~%"}
    words = ", ".join(f"{one.name}: {say(max(0.0, one.without - one.error))}" for one in content.drivers[:MOST_BARS])
    return Figure("drivers", "", f"Growth of the error without each column. {words}.", [bar], made)


def curve(effect: Effect, content: Content) -> Figure:
    """The average prediction along one column with its band."""
    index = [one.name for one in content.effects].index(effect.name)
    up = f"chance of {label(effect.about, 18)}" if effect.about else f"predicted {label(content.target, 24)}"
    made = layout("", up, 260) | {"showlegend": False}
    made["margin"] |= {"t": 10, "b": 40}
    made["yaxis"] |= {"range": padded(*(part for one in content.effects for part in (one.low, one.high)))}
    made["yaxis"] |= {"tickformat": "~%"} if effect.about else {}
    if effect.kind == "categorical":
        across = np.arange(len(effect.values), dtype=np.float64)
        ticks = [label(str(name), 12) for name in effect.values]
        made["xaxis"] |= {"tickvals": across.tolist(), "ticktext": ticks, "showgrid": False}
        made["xaxis"] |= {"range": [-0.6, len(across) - 0.4], "tickangle": 0 if len(across) <= 4 else -40}
        hover = "%{customdata}: %{y:,.4~g}"
        data = [segments(across, effect.low, effect.high, "range", "#c4c4c9", width=9)]
        data.append(points(across, effect.mean, "average", marker(GOOD, size=9, opacity=1.0), hover, customdata=ticks))
    else:
        across = np.array(effect.values, dtype=np.float64)
        data = [band(across, effect.low, effect.high, "range"), line(across, effect.mean, "average", GOOD)]
        data[1] |= {"hovertemplate": "%{x}: %{y:,.4~g}<extra></extra>"}
        data[1] |= {"mode": "lines+markers"} if len(across) < 6 else {}
        made["xaxis"]["separatethousands"] = bool(np.abs(across).max() >= 10_000)  # 1950 may be a year
        if effect.kind == "date":
            _as_dates(data)
    words = f"Average prediction along {effect.name}: from {effect.mean.min():.4g} to {effect.mean.max():.4g}."
    return Figure(f"effect-{index}", shortened(effect.name, 40), words, data, made)


def _summary(content: Content) -> str:
    """The columns that matter, in words."""
    gains = {one.name: max(0.0, one.without - one.error) for one in content.drivers}
    largest = max(gains.values())
    if largest <= 0.0:
        return "No column by itself makes predictions better than without it."
    named = [label(name, 40) for name, gain in gains.items() if gain > 0.2 * largest][:4]
    idle = [name for name, gain in gains.items() if gain < SMALL * largest]
    first = (
        f"<b>{named[0]}</b>"
        if len(named) == 1
        else ", ".join(f"<b>{n}</b>" for n in named[:-1]) + f" and <b>{named[-1]}</b>"
    )
    words = f"Most is learned from {first}."
    if idle:
        words += f" {len(idle)} of {len(gains)} columns hardly matter." if len(idle) > 1 else " One hardly matters."
    return words


def _small_percent(share: float) -> str:
    """A share in per cent, with more decimals than `percent` has where it would be 0 with those.

    >>> _small_percent(0.143), _small_percent(0.00042), _small_percent(0.0)
    ('14.3%', '0.042%', '0.0%')
    """
    return percent(share) if share >= 0.005 or share == 0.0 else f"{100.0 * share:.2g}%"


def _as_dates(data: list[Trace]) -> None:
    for trace in data:
        trace["x"] = [_day(value) for value in trace["x"]]


def _day(value: Any) -> str | None:
    return None if value is None else (EPOCH + timedelta(days=round(value))).isoformat()
