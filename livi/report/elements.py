"""Pieces of HTML: figures with captions, tables, and text that is safe whatever the user wrote."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from html import escape

from livi.report.interactive import Figure, shortened

SEVERITIES = ("warning", "notice", "ok")
LONGEST, MOST = 48, 1000  # letters of a cell, and of its title


def figure_html(figure: Figure, caption: str) -> str:
    """The place of a figure, its buttons and its caption."""
    buttons = "".join(
        f'<button type="button" data-figure="{figure.name}" data-visible="{escape(str(visible).lower())}" '
        f'aria-pressed="{str(text == figure.chosen).lower()}">{escape(text)}</button>'
        for text, visible in figure.choices.items()
    )
    choices = (
        f'<div class="choices" role="group" aria-label="level of the intervals">{buttons}</div>' if buttons else ""
    )
    words = f"<figcaption>{prose(caption)}</figcaption>" if caption else ""
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
    """A table that scrolls by itself where the screen is narrower; what it is about stands above what scrolls."""
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
    """For HTML: minus signs for hyphens before numbers, code between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", re.sub(r"(?<!\w)-(?=\d)", "−", escape(words)))


def clipped(text: str, longest: int = LONGEST) -> str:
    """The user's text for HTML, shortened, with all of it in the title; a dash where there is none."""
    short = shortened(text, longest)
    if not short:
        return '<span class="empty" title="missing">–</span>'
    return escape(short) if short == text else f'<span title="{escape(text[:MOST])}">{escape(short)}</span>'


def number(value: float) -> str:
    """Four digits, and thousands separated.

    >>> number(-12345.678), number(0.01234567), number(1.5e9), number(0.0)
    ('−12,346', '0.01235', '1.5e+09', '0')
    """
    size = abs(value)
    if size == 0.0 or not 1e-4 <= size < 1e8:
        return f"{value:.4g}".replace("-", "−") if size else "0"
    decimals = max(0, 3 - math.floor(math.log10(size)))
    return f"{value:,.{decimals}f}".replace("-", "−")


def percent(share: float) -> str:
    return f"{share:.1%}"


def note(words: str) -> str:
    return f'<p class="note">{prose(words)}</p>'
