"""The figures of the report on a table model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from livi.report.course import robust_range, running_mean, warming_up
from livi.report.interactive import (
    BAD,
    BAND,
    GOOD,
    Figure,
    Mask,
    Trace,
    axis,
    band,
    bars,
    diagonal,
    label,
    layout,
    line,
    marker,
    numbers,
    padded,
    points,
    sample,
    segments,
)
from livi.report.style import FAINT, INK, Numbers, tint
from livi.tables.calibration import binomial_band
from livi.tables.content import ClassificationRows, RegressionRows

FEWEST = 10  # rows for an average of errors
TERMS = {"bound": "Bound", "log_likelihood": "Log likelihood", "log_prior": "Log prior", "entropy": "Entropy"}
SIGMAS = 1.96  # half width of a range that holds a normal variable 95 times in 100


# --- the fit --------------------------------------------------------------------------------------


def learning_curves(history: Sequence[Mapping[str, float]]) -> list[Figure]:
    """The bound and its terms over the steps, raw (light) and as a running mean (dark); grey while warming up.

    The vertical range is that of the second half, widened, since the start is often far below.
    """
    figures = []
    for name, title in TERMS.items():
        rows = [row for row in history if math.isfinite(row.get(name, math.nan))]
        if not rows:
            continue
        steps, values = (np.array([row[key] for row in rows], dtype=np.float64) for key in ("step", name))
        smooth = running_mean(values)
        kept = np.unique(np.linspace(0, len(rows) - 1, 1000).astype(int))
        shown = layout("step", "nats", 250) | {"showlegend": False}
        shown["yaxis"]["range"] = list(robust_range(values))
        warming = warming_up(rows)
        if len(warming):
            area = {"type": "rect", "yref": "paper", "x0": float(steps[0]), "x1": float(warming[-1]), "y0": 0, "y1": 1}
            shown["shapes"] = [area | {"fillcolor": BAND, "line": {"width": 0}, "layer": "below"}]
        look = {"hovertemplate": "step %{x:,}: %{y:,.5~g}<extra></extra>"}
        look |= {"mode": "lines" if len(rows) > 1 else "markers"}
        raw = line(steps[kept], values[kept], "as logged", tint(GOOD, 0.4), width=1, **look)
        mean = line(steps[kept], smooth[kept], "running mean", GOOD, **look)
        words = f"{title} in nats at {len(rows):,} logged steps: first {values[0]:.4g}, last {smooth[-1]:.4g}."
        figures.append(Figure(f"course-{name}", title, words, [raw, mean], shown))
    return figures


# --- regression -----------------------------------------------------------------------------------


def predictions(rows: RegressionRows, target: str, places: Sequence[int], first: int) -> Figure:
    """Predicted mean and interval against the truth, with a button for each level, given as a place in rows.levels."""
    chosen = sample(len(rows))
    truth, mean = rows.target[chosen], rows.mean[chosen]
    ends_of = np.quantile([rows.lower[first], rows.upper[first]], [0.01, 0.99])
    across, up = padded(rows.target), padded(rows.target, rows.mean, ends_of)
    data: list[Trace] = [diagonal(padded(np.array(across + up)), "prediction = truth")]
    for place in places:
        low, high = rows.lower[place][chosen], rows.upper[place][chosen]
        inside = (low <= truth) & (truth <= high)
        for mask, where, colour, symbol in ((inside, "inside", GOOD, "circle"), (~inside, "outside", BAD, "diamond")):
            same = {"legendgroup": where, "visible": place == first}
            hover = f"truth %{{x:,.4~g}}<br>mean %{{y:,.4~g}}<br>{level_text(rows.levels[place])} interval "
            hover += "%{customdata[0]:,.4~g} to %{customdata[1]:,.4~g}"
            ends = [list(pair) for pair in zip(numbers(low[mask]), numbers(high[mask]), strict=True)]
            data.append(
                segments(truth[mask], low[mask], high[mask], where, colour, width=1.2, opacity=0.32, showlegend=False)
                | same
            )
            look = marker(colour, symbol)
            data.append(points(truth[mask], mean[mask], f"truth {where} the interval", look, hover, customdata=ends))
            data[-1] |= same
    choices = {
        f"{level_text(rows.levels[place])} intervals": [True]
        + [4 * order <= trace < 4 * order + 4 for trace in range(4 * len(places))]
        for order, place in enumerate(places)
    }
    shown = layout(f"true {label(target)}", f"predicted {label(target)}", 470)
    shown["xaxis"]["range"], shown["yaxis"]["range"] = across, up
    words = f"Predicted {target} with its interval against the true {target}, for {len(chosen):,} rows."
    return Figure("predictions", "", words, data, shown, choices, f"{level_text(rows.levels[first])} intervals")


def coverage_curve(rows: RegressionRows) -> Figure:
    """Share of targets inside the interval of each level, which should be the level."""
    shares = rows.inside.mean(1)
    place = np.linspace(0.0, 1.0, 101)
    low, high = np.array([(0.0, 0.0), *(binomial_band(len(rows), level) for level in place[1:-1]), (1.0, 1.0)]).T
    data = [
        band(place, low, high, "range of a calibrated model"),
        diagonal([0.0, 1.0], "calibrated"),
        line(rows.levels, shares, "this model", GOOD, mode="lines+markers", marker={"size": 6})
        | {"hovertemplate": "%{x:.0%} intervals held %{y:.1%}<extra></extra>"},
    ]
    shown = layout("level of the interval", "share of targets inside", 370) | {"showlegend": False}
    for name in ("xaxis", "yaxis"):
        shown[name] |= {"range": [0, 1.005], "tickformat": ".0%"}
    words = ", ".join(f"{level:.0%}: {share:.0%}" for level, share in zip(rows.levels, shares, strict=True))
    return Figure(
        "coverage", "Coverage", f"Share of targets held by the intervals of each level. {words}.", data, shown
    )


def pit_histogram(rows: RegressionRows) -> Figure:
    """Histogram of P(Y <= y): flat for a calibrated model."""
    count = max(4, min(20, len(rows) // 10))
    heights, edges = np.histogram(rows.pit.clip(0.0, 1.0), bins=count, range=(0.0, 1.0))
    density = heights * count / len(rows)
    reach = SIGMAS * math.sqrt((count - 1) / len(rows))
    ends, one = np.array([0.0, 1.0]), np.ones(2)
    data = [
        bars(edges, density, "this model", tint(GOOD, 0.6), "%{customdata:,} rows near %{x:.2f}")
        | {"customdata": heights.tolist()},
        band(ends, (one - reach).clip(0.0), one + reach, "range of a calibrated model"),
        line(ends, one, "calibrated", INK, width=1, dash="5px,4px", hoverinfo="skip"),
    ]
    shown = layout("P(prediction ≤ truth)", "density", 370) | {"showlegend": False}
    shown["xaxis"] |= {"range": [0, 1]}
    shown["yaxis"] |= {"range": [0, 1.1 * max(1.0 + reach, float(density.max()))]}
    words = f"Histogram of probability integral transforms in {count} bins; rows: {', '.join(map(str, heights))}."
    return Figure("pit", "Probability integral transforms (PIT)", words, data, shown)


def deviations(rows: RegressionRows, target: str, inside: Mask, listed: Mapping[int, int]) -> Figure:
    """Epistemic against aleatoric standard deviation; against the prediction where the noise is the same for all.

    Args:
        inside: whether the truth was inside the interval of the level that the caption names.
        listed: lines in the file, by place among the rows, of the rows in the table; they get a ring.
    """
    noise, known = rows.aleatoric_std, rows.epistemic_std
    across = rows.mean if same_noise(rows) else noise
    words = f"predicted {label(target)}" if same_noise(rows) else "aleatoric standard deviation"
    shown = layout(words, "epistemic standard deviation", 420)
    shown["yaxis"]["range"] = upwards(known)
    shown["xaxis"]["range"] = padded(across)
    data: list[Trace] = []
    if not same_noise(rows):
        data.append(diagonal([0.0, float(max(noise.max(), known.max()))], "both equal", FAINT) | {"showlegend": False})
    names = ("truth inside the interval", "outside")
    data += cloud(across, known, inside, names, f"{words} %{{x:,.4~g}}<br>epistemic %{{y:,.4~g}}", listed)
    title = "Epistemic uncertainty" if same_noise(rows) else "Epistemic and aleatoric"
    described = f"Epistemic standard deviation against {words} for {len(rows):,} rows, at most {known.max():.4g}."
    return Figure("unsure", title, described, data, shown)


def same_noise(rows: RegressionRows) -> bool:
    """Whether the noise of the target is the same for every row."""
    return len(rows) > 1 and float(np.ptp(rows.aleatoric_std)) <= 1e-3 * float(rows.aleatoric_std.mean())


# --- classification -------------------------------------------------------------------------------


def right(rows: ClassificationRows) -> Mask:
    """Whether the most probable class was the true one."""
    mask: Mask = rows.probabilities.argmax(1) == rows.target
    return mask


def chances(rows: ClassificationRows) -> Figure:
    """Histogram of predicted probabilities by the truth: of the second of two classes, else of the true class."""
    if len(rows.classes) == 2:
        values, words = rows.probabilities[:, 1], f"predicted probability of {label(rows.classes[1])}"
        parts = [(rows.target == place, f"truly {label(rows.classes[place])}") for place in (1, 0)]
    else:
        values, words = rows.probabilities[np.arange(len(rows)), rows.target], "probability given to the true class"
        parts = [(right(rows), "predicted class right"), (~right(rows), "wrong")]
    data = []
    for (mask, name), colour, stripes in zip(parts, (GOOD, BAD), ("", "/"), strict=True):
        heights, edges = np.histogram(values[mask], bins=20, range=(0.0, 1.0))
        data.append(bars(edges, heights, name, colour, f"{name}: %{{y:,}} rows near %{{x:.0%}}", showlegend=True))
        pattern = {"shape": stripes, "size": 5, "solidity": 0.3, "fillmode": "overlay"}
        pattern |= {"fgcolor": "#ffffff"}
        data[-1]["marker"] = {"color": tint(colour, 0.8), "pattern": pattern}
    shown = layout(words, "rows", 430) | {"barmode": "stack"}
    shown["xaxis"] |= {"range": [0, 1], "tickformat": ".0%"}
    return Figure(
        "chances",
        "Probabilities and the truth",
        f"Histogram of the {words}, by the truth, for {len(rows):,} rows.",
        data,
        shown,
    )


def confusion(rows: ClassificationRows) -> Figure:
    """How many rows of each true class (one line each) were given each predicted class (one column each)."""
    k = len(rows.classes)
    counts = np.zeros((k, k), dtype=np.int64)
    np.add.at(counts, (rows.target, rows.probabilities.argmax(1)), 1)
    shares = counts / counts.sum(1, keepdims=True).clip(1)
    names = [label(name, 60) for name in rows.classes]
    texts = [
        [f"truly {one}<br>predicted {other}<br>{n:,} rows" for other, n in zip(names, numbers_of, strict=True)]
        for one, numbers_of in zip(names, counts.tolist(), strict=True)
    ]
    cells: Trace = {"type": "heatmap", "z": [numbers(part) for part in shares], "zmin": 0, "zmax": 1}
    cells |= {"xgap": int(k <= 40), "ygap": int(k <= 40), "showscale": False, "colorscale": [[0, "#f3f5f7"], [1, GOOD]]}
    cells |= {"hovertext": texts, "hovertemplate": "%{hovertext}, %{z:.0%} of this true class<extra></extra>"}
    if k <= 12:
        cells |= {"text": counts.tolist(), "texttemplate": "%{text:,}", "textfont": {"size": 12.5}}
    shown = layout("predicted class", "true class", 430)
    step = math.ceil(k / 20)
    ticks = {"tickvals": list(range(0, k, step)), "ticktext": [label(name, 14) for name in rows.classes[::step]]}
    shown["xaxis"] |= ticks | {"showgrid": False, "tickangle": 0 if k == 2 else -45}
    shown["yaxis"] |= ticks | {"showgrid": False, "autorange": "reversed"}
    words = f"Confusion of {k} classes: for {int(np.trace(counts)):,} of {len(rows):,} rows the prediction was right."
    return Figure("confusion", "Confusion", words, [cells], shown)


def reliability(rows: ClassificationRows) -> Figure:
    """Predicted probability against how often it came true, in bins, and below it the number of rows."""
    if len(rows.classes) == 2:
        chance, true = rows.probabilities[:, 1], rows.target == 1
        words = f"predicted probability of {label(rows.classes[1])}"
    else:
        chance, true, words = rows.probabilities.max(1), right(rows), "probability of the predicted class"
    count = max(4, min(10, len(rows) // 10))
    which = np.ceil(chance * count).astype(int).clip(1, count)
    groups = [which == place for place in np.unique(which)]
    centre, share = (np.array([values[group].mean() for group in groups]) for values in (chance, true))
    sizes = np.array([group.sum() for group in groups])
    reach = SIGMAS * np.sqrt([(chance[group] * (1.0 - chance[group])).mean() / group.sum() for group in groups])
    reach = np.maximum(reach, 1.0 / sizes)  # one row more or less is no evidence
    low, high = (centre - reach).clip(0.0), (centre + reach).clip(None, 1.0)
    fine = (share >= low - 1e-9) & (share <= high + 1e-9)
    data = [
        segments(centre, low, high, "range of a calibrated model", "#d4d4d8", width=9),
        diagonal([0.0, 1.0], "calibrated"),
    ]
    for mask, name, colour, symbol in ((fine, "in that range", GOOD, "circle"), (~fine, "outside", BAD, "diamond")):
        if mask.any():
            hover = "predicted %{x:.1%}, came true %{y:.1%}, %{customdata:,} rows"
            data.append(points(centre[mask], share[mask], name, marker(colour, symbol, 9, 1.0), hover))
            data[-1]["customdata"] = sizes[mask].tolist()
    heights, edges = np.histogram(chance, bins=20, range=(0.0, 1.0))
    data.append(bars(edges, heights, "rows", tint(GOOD, 0.6), "%{y:,} rows near %{x:.0%}", showlegend=False))
    data[-1]["yaxis"] = "y2"
    shown = layout(words, "how often it came true", 460)
    shown["xaxis"] |= {"range": [-0.01, 1.01], "tickformat": ".0%", "anchor": "y2"}
    shown["yaxis"] |= {"range": [-0.01, 1.03], "tickformat": ".0%", "domain": [0.3, 1]}
    shown["yaxis2"] = axis("rows") | {"domain": [0, 0.19], "nticks": 3, "rangemode": "tozero"}
    pairs = ", ".join(f"{said:.0%}: {found:.0%}" for said, found in zip(centre, share, strict=True))
    return Figure(
        "reliability", "Reliability", f"Predicted probability and how often it came true: {pairs}.", data, shown
    )


def entropies(rows: ClassificationRows, listed: Mapping[int, int]) -> Figure:
    """Mutual information (epistemic) against the rest of the entropy (aleatoric); `listed` as in `deviations`."""
    aleatoric = (rows.entropy - rows.mutual_information).clip(0.0)
    shown = layout("aleatoric entropy, nats", "mutual information, nats", 420)
    shown["yaxis"]["range"] = upwards(rows.mutual_information)
    shown["xaxis"]["range"] = upwards(aleatoric)
    hover = "aleatoric %{x:.3f} nats<br>epistemic %{y:.3f} nats"
    names = ("predicted class right", "wrong")
    data = cloud(aleatoric, rows.mutual_information, right(rows), names, hover, listed)
    largest = float(rows.mutual_information.max())
    words = f"Mutual information against aleatoric entropy for {len(rows):,} rows, at most {largest:.3g} nats."
    return Figure("unsure", "Epistemic and aleatoric", words, data, shown)


# --- both -----------------------------------------------------------------------------------------


def surest_first(unsure: Numbers, errors: Numbers, *, root: bool) -> tuple[Numbers, Numbers]:
    """Shares of rows, the surest first, and the mean of their errors, or its root for the root of the mean square.

    Rows that are equally uncertain go together. Shares of fewer than ten rows or a tenth of all are left out.
    """
    order, counts = np.argsort(unsure, kind="stable"), np.arange(1, len(unsure) + 1)
    size = float(np.abs(errors).max()) or 1.0
    scaled = errors[order] / size
    mean = np.cumsum(scaled**2 if root else scaled) / counts
    last = np.append(np.diff(unsure[order]) > 0, True)
    kept = np.flatnonzero(last & (counts >= max(FEWEST, 0.1 * len(unsure))))
    kept = kept[np.unique(np.linspace(0, len(kept) - 1, 200).astype(int))] if len(kept) else kept
    return counts[kept] / len(unsure), size * (np.sqrt(mean[kept]) if root else mean[kept])


def set_aside(shares: Numbers, values: Numbers, words: str, *, share: bool) -> Figure:
    """The curve of `surest_first`; `share` says that the values are shares, to be shown as percentages."""
    hover = "the surest %{x:.0%}: " + ("%{y:.1%}" if share else "%{y:,.4~g}") + "<extra></extra>"
    shown = layout("share of rows kept, the surest first", words, 420) | {"showlegend": False}
    shown["xaxis"] |= {"range": [0, 1.01], "tickformat": ".0%"}
    around = [max(0.0, float(values.min()) - 0.05), min(1.005, float(values.max()) + 0.05)]
    shown["yaxis"] |= {"tickformat": ".1~%", "range": around} if share else {"rangemode": "tozero"}
    described = f"{words}: {values[0]:.4g} of the surest {shares[0]:.0%} of the rows, {values[-1]:.4g} of all."
    data = [line(shares, values, words, GOOD, hovertemplate=hover)]
    return Figure("kept", "If the unsure rows are set aside", described, data, shown)


def cloud(
    x: Numbers, y: Numbers, good: Mask, names: tuple[str, str], hover: str, listed: Mapping[int, int]
) -> list[Trace]:
    """Rows as points of two kinds, and rings with line numbers around those that are listed in the table."""
    ringed = np.array(sorted(listed), dtype=np.int64)
    chosen = sample(len(x), ringed)
    traces = []
    for kind, name, colour, symbol in ((good, names[0], GOOD, "circle"), (~good, names[1], BAD, "diamond")):
        some = chosen[kind[chosen]]
        if len(some):
            traces.append(points(x[some], y[some], name, marker(colour, symbol), hover))
    if len(ringed):
        ring = {"color": INK, "symbol": "circle-open", "size": 12, "line": {"width": 1}}
        hover += "<br>line %{customdata:,} of the file"
        traces.append(points(x[ringed], y[ringed], "in the table", ring, hover))
        traces[-1] |= {"customdata": [listed[place] for place in ringed.tolist()], "showlegend": False}
    return traces


def upwards(values: Numbers) -> list[float]:
    """A range from zero."""
    top = float(values[np.isfinite(values)].max(initial=0.0))
    return [-0.02 * top, 1.08 * top] if top > 0 else [-0.02, 1.0]


def level_text(level: float) -> str:
    return f"{100 * level:.3g}%"
