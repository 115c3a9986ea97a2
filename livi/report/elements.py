"""Pieces of HTML: figures with captions, tables, and text that is safe whatever the user wrote."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from html import escape

from livi.report.interactive import Figure, shortened

SEVERITIES = ("warning", "notice", "ok")
GLOSSARY = {  # no meaning holds another term
    "[Ee]pistemic": "about the model itself: more data would take this part of the uncertainty away",
    "[Aa]leatoric": "about the target: scatter that remains however many rows there are",
    "calibrated": "its ranges and probabilities hold as often as they say",
    "PIT": "probability integral transform: where in its predicted distribution the truth fell, from 0 to 1",
    "nats": "natural units of information; one is a factor of 2.7 in probability",
    "posterior": "all networks that fit the data, each with its plausibility",
    "RMSE": "root of the mean squared error, in units of the target",
    "log evidence": "log probability of the data under the model as a whole",
    "mutual information": "how much the networks disagree about the class",
}
LONGEST, MOST = 48, 1000  # letters of a cell, and of its title


def figure_html(figure: Figure, caption: str) -> str:
    """HTML of a figure's frame, its buttons and its caption."""
    buttons = "".join(
        f'<button type="button" data-figure="{figure.name}" data-visible="{escape(str(visible).lower())}" '
        f'aria-pressed="{str(text == figure.chosen).lower()}">{escape(text)}</button>'
        for text, visible in figure.choices.items()
    )
    choices = (
        f'<div class="choices" role="group" aria-label="level of the intervals">{buttons}</div>' if buttons else ""
    )
    words = f"<figcaption>{explained(prose(caption))}</figcaption>" if caption else ""
    title = f"<h3>{escape(figure.title)}</h3>" if figure.title else ""
    height = figure.layout["height"]
    return (
        f'<figure>{title}{choices}<div class="drawing" id="{figure.name}" role="img" '
        f'aria-label="{escape(figure.description)}" style="min-height:{height}px"></div>{words}</figure>\n'
    )


def panels(figures: Iterable[Figure], captions: Iterable[str]) -> str:
    """Figures side by side; one below the other on a narrow screen."""
    places = (figure_html(figure, caption) for figure, caption in zip(figures, captions, strict=True))
    return f'<div class="panels">{"".join(places)}</div>\n'


def table(
    about: str,  # what the table shows
    head: Sequence[str],  # HTML
    lines: Iterable[Sequence[str]],  # HTML
    *,
    words: Iterable[int],  # columns that are text, and stand left
    wide: bool = False,  # keep every row on one line
    given: int = -1,  # the column before which a rule is drawn
    captioned: bool = True,
) -> str:
    """A table that scrolls sideways on a narrow screen, below a heading that does not."""
    texts = set(words)

    def kind(column: int) -> str:
        names = [name for name, holds in (("words", column in texts), ("given", column == given)) if holds]
        return f' class="{" ".join(names)}"' if names else ""

    headings = "".join(f'<th scope="col"{kind(i)}>{text}</th>' for i, text in enumerate(head))
    body = "".join(
        "<tr>" + "".join(f"<td{kind(i)}>{cell}</td>" for i, cell in enumerate(line)) + "</tr>\n" for line in lines
    )
    return (
        (note(about) if captioned else "")
        + f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(about)}">'
        + f'<table class="{"wide" if wide else "plain"}"><thead><tr>{headings}</tr></thead>\n'
        + f"<tbody>{body}</tbody></table></div>\n"
    )


def findings_list(findings: Iterable[tuple[str, str, str]]) -> str:
    """Severities ("ok", "notice", "warning"), topics and sentences of a diagnosis, warnings first."""
    ordered = sorted(findings, key=lambda one: SEVERITIES.index(one[0]))
    lines = (
        f'<dt class="{severity}">{severity}</dt><dd><b>{prose(topic)}</b>: {prose(text)}</dd>\n'
        for severity, topic, text in ordered
    )
    return f"<dl>{''.join(lines)}</dl>"


def prose(words: str) -> str:
    """Text for HTML, with minus signs in place of hyphens before numbers, and backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", re.sub(r"(?<!\w)-(?=\d)", "−", escape(words)))


def explained(html: str) -> str:
    """Text for HTML, in which each technical term has an explanation to hover over at its first mention.

    >>> explained("5 nats, then 7 nats")
    '5 <abbr title="natural units of information; one is a factor of 2.7 in probability">nats</abbr>, then 7 nats'
    """
    for term, meaning in GLOSSARY.items():
        html = re.sub(rf"(?<![\w<=\"]){term}\b(?![^<]*>)", rf'<abbr title="{meaning}">\g<0></abbr>', html, count=1)
    return html


def clipped(text: str, longest: int = LONGEST) -> str:
    """The user's text for HTML, shortened, with the whole text as tooltip; a dash where it is empty."""
    short = shortened(text, longest)
    if not short:
        return '<span class="empty" title="missing">–</span>'
    return escape(short) if short == text else f'<span title="{escape(text[:MOST])}">{escape(short)}</span>'


def number(value: float) -> str:
    """A number with four digits and thousands separators.

    >>> number(-12345.678), number(0.01234567), number(1.5e9), number(0.0)
    ('−12,346', '0.01235', '1.5e+09', '0')
    """
    size = abs(value)
    if size == 0.0 or not 1e-4 <= size < 1e8:
        return f"{value:.4g}".replace("-", "−") if size else "0"
    decimals = max(0, 3 - math.floor(math.log10(size)))
    return f"{value:,.{decimals}f}".replace("-", "−")


def percent(share: float) -> str:
    """A share in per cent with one decimal, without a minus sign before 0.

    >>> percent(0.9123), percent(-0.0001)
    ('91.2%', '0.0%')
    """
    return f"{share:.1%}" if abs(share) >= 5e-4 else "0.0%"


def note(words: str) -> str:
    return f'<p class="note">{explained(prose(words))}</p>'
