"""The first screen of the report on a table model: how good it is, in plain words, compared with simple models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import NamedTuple

import numpy as np

from livi.report.elements import number, percent, prose
from livi.report.interactive import shortened
from livi.tables.content import BASELINE_NAMES, ClassificationRows, Content, Coverage, Metric, RegressionRows

LEVEL = 0.9  # of the intervals that the text mentions


class Plain(NamedTuple):
    """A score explained to people who do not know it."""

    name: str
    explained: str
    say: Callable[[float], str] = number
    bars: bool = True  # that compare it with baselines: of scores that start at 0
    first: bool = False  # on the first screen


SCORES = {
    "rmse": Plain("Typical error", "The root of the mean squared error, in which large misses count more.", first=True),
    "mae": Plain("Average miss", "The mean distance between prediction and truth.", first=True),
    "r2": Plain(
        "Explained",
        "Share of the target's variation that predictions explain; at 0 % the average does as well.",
        percent,
        first=True,
    ),
    "accuracy": Plain("Right answers", "Share of rows whose most probable class is the true one.", percent, first=True),
    "auroc": Plain(
        "Tells them apart",
        "How often, of two rows of different classes, it gives the right one more probability; a "
        "coin does so in half of the cases.",
        percent,
        first=True,
    ),
    "log_score": Plain("Log score", "Mean log density of the true values under the predictions, in nats.", bars=False),
    "crps": Plain("CRPS", "Continuous ranked probability score: an average miss of the whole predicted distribution."),
    "pit_distance": Plain("PIT distance", "How far the truths' places in their predictions are from evenly spread."),
    "nll": Plain("NLL", "Negative log probability of the true classes, in nats: surprise, on average."),
    "brier": Plain("Brier score", "Squared error of the probabilities, summed over classes."),
    "ece": Plain("ECE", "Expected calibration error: how far probabilities are from how often they come true."),
}
SHARES = {"nll", "brier", "auroc"}  # scores whose baseline predicts the shares of the classes
PROMISE = {
    "calibrated": "as many as promised, so these ranges can be relied on",
    "overconfident": "fewer than promised: these ranges are too narrow",
    "underconfident": "more than promised: these ranges are wider than they need be",
    "too few rows": "too few rows to judge by",
}


def first_words(content: Content) -> list[str]:
    """Two or three sentences that a customer should know; none without held-out rows."""
    if content.rows is None:
        return []
    by_key = {metric.key: metric for metric in content.metrics}
    if isinstance(content.rows, RegressionRows):
        return list(_on_numbers(content, content.rows, by_key))
    return list(_on_classes(content, content.rows, by_key))


def cards(content: Content) -> str:
    """Scores with their baselines: the self-explanatory ones shown, the others folded."""
    first = [metric for metric in content.metrics if _plain(metric).first]
    others = [metric for metric in content.metrics if not _plain(metric).first]
    shown = "".join(_card(metric, content) for metric in first)
    hidden = "".join(_card(metric, content) for metric in others)
    html = f'<ul class="cards" aria-label="scores">\n{shown}</ul>\n' if shown else ""
    if hidden:
        opened = "" if shown else " open"
        html += f'<details class="more"{opened}><summary>More scores, for experts</summary>\n'
        html += f'<ul class="cards" aria-label="more scores">\n{hidden}</ul></details>\n'
    return html


def _on_numbers(content: Content, rows: RegressionRows, by_key: dict[str, Metric]) -> Iterator[str]:
    misses = np.abs(rows.mean - rows.target)
    target = shortened(content.target, 40)
    yield (
        f"For {_rows(len(rows))} whose {target} the model had not seen, its predictions were off by "
        f"{number(misses.mean())} on average, and half of them by less than {number(float(np.median(misses)))}."
    )
    yield from _compared(by_key.get("mae"), content, "would be off by")
    yield from _promise(content, "ranges", "the true value")


def _on_classes(content: Content, rows: ClassificationRows, by_key: dict[str, Metric]) -> Iterator[str]:
    right = float((rows.probabilities.argmax(1) == rows.target).mean())
    sure = float(rows.probabilities.max(1).mean())
    yield (
        f"For {_rows(len(rows))} that the model had not seen, its answer was right in {percent(right)}; it was "
        f"{percent(sure)} sure on average."
    )
    yield from _compared(by_key.get("accuracy"), content, "would be right in")


def _compared(metric: Metric | None, content: Content, verb: str) -> Iterator[str]:
    if metric is None or not metric.baselines:
        return
    say, names = _plain(metric).say, BASELINE_NAMES[content.task]
    parts = [(names[one.kind], say(one.value)) for one in metric.baselines]
    words = f"{parts[0][0][0].upper()}{parts[0][0][1:]} {verb} {parts[0][1]}"
    yield words + (f", {parts[1][0]} by {parts[1][1]}." if "off" in verb else f", {parts[1][0]} in {parts[1][1]}.")


def _promise(content: Content, what: str, held: str) -> Iterator[str]:
    line: Coverage | None = min(content.coverage, key=lambda one: abs(one.level - LEVEL), default=None)
    if line is not None:
        words = f"The model's {line.level:.0%} {what} held {held} in {percent(line.share)} of them"
        yield f"{words}: {PROMISE[line.judgement]}."


def _plain(metric: Metric) -> Plain:
    return SCORES.get(metric.key, Plain(metric.name, metric.note, lambda _: metric.text, bars=False))


def _card(metric: Metric, content: Content) -> str:
    plain = _plain(metric)
    technical = (
        "" if plain.name == metric.name else f' <abbr title="{escape(plain.explained)}">{escape(metric.name)}</abbr>'
    )
    named = escape(plain.name) if technical else f'<abbr title="{escape(plain.explained)}">{escape(plain.name)}</abbr>'
    beside = _beside(metric, content, plain)
    # Where there is nothing to compare with, how to read it.
    foot = beside or f"<small>{prose(metric.note)}</small>"
    value = plain.say(metric.value) if metric.key in SCORES else metric.text
    return f"<li><b>{named}{technical}</b><span>{prose(value)}</span>{foot}</li>\n"


def _beside(metric: Metric, content: Content, plain: Plain) -> str:
    if not metric.baselines:
        return ""
    names = BASELINE_NAMES[content.task] | ({"constant": "the classes' shares"} if metric.key in SHARES else {})
    lines = [("this model", metric.value), *((names[one.kind], one.value) for one in metric.baselines)]
    largest = max(abs(value) for _, value in lines) or 1.0
    html = ""
    for place, (name, value) in enumerate(lines):
        own = ' class="own"' if place == 0 else ""
        html += f'<tr{own}><th scope="row">{escape(name)}</th><td>{prose(plain.say(value))}</td></tr>'
        if plain.bars:
            width = 100.0 * max(0.0, value) / largest
            html += f'<tr class="bar"><td colspan="2"><i style="width:{width:.1f}%"></i></td></tr>'
    return f'<table class="beside">{html}</table>'


def _rows(count: int) -> str:
    return "one row" if count == 1 else f"{count:,} rows"
