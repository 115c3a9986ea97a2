"""The report on a table model: one HTML file that needs no other file and no network."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path

from livi.posterior.storage import replace_file
from livi.report.elements import explained, prose
from livi.report.interactive import Figure
from livi.report.table_figures import level_text
from livi.report.table_parts import Section
from livi.report.table_plain import LEVEL, cards, first_words
from livi.report.table_sections import SEVERITY, sections
from livi.report.table_style import SCRIPT, STYLE
from livi.tables.content import Content
from livi.version import __version__

# Enforced by the browser: no script, picture, font or request from anywhere but this file.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
_SAFE = str.maketrans("<&", ",.")  # base 85 letters that mean something in HTML, and unused ones in their place


def write_report(path: str | Path, content: Content) -> None:
    """Write the page to a file, as a whole or not at all. An existing file is replaced.

    Raises:
        ImportError: plotly is not installed.
        StorageError: the folder is missing or cannot be written to.
    """
    replace_file(path, [page(content).encode("utf-8", "replace")])


def page(content: Content) -> str:
    """The whole page as text.

    Raises:
        ImportError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError('reports need plotly: pip install "livi[tables]"') from error
    library = _packed_once(get_plotlyjs())
    parts = sections(content)
    figures = [figure for part in parts for figure in part.figures]
    title = escape(" ".join(content.title.split()))
    body = "\n".join(map(_section, parts))
    return f"""<!doctype html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="livi {escape(__version__)}">
<title>{title} – livi report</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{_head(content, title, parts)}
{body}
<footer><p class="note">Written by livi {escape(__version__)}. This file holds everything it shows and loads
nothing from any network. Nearly all of its size is plotly.js, the library that draws the figures, packed
({len(library) / 1e6:.1f} MB).</p>
</footer>
</main>
<noscript><p class="missing">The figures need JavaScript; the numbers and tables do not.</p></noscript>
<script type="text/plain" id="figures">{packed(_as_json(figures))}</script>
<script type="text/plain" id="library">{library}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _head(content: Content, title: str, parts: Iterable[Section]) -> str:
    links = "".join(f'<li><a href="#{part.name}">{escape(part.title)}</a></li>' for part in parts)
    nearest = min(content.coverage, key=lambda one: abs(one.level - LEVEL), default=None)
    what = "sets" if content.task == "classification" else "intervals"
    badge = (
        ""
        if nearest is None
        else f'<span class="badge {SEVERITY[nearest.judgement]}">{level_text(nearest.level)} {what}: '
        f"{escape(nearest.judgement)}</span>"
    )
    source = "" if content.source in content.headline else prose(content.source)
    plain = first_words(content)
    lede = " ".join(map(prose, plain)) or prose(content.headline)
    worse = next((words for words in content.verdict[:1] if words.startswith("Worse than")), "")
    warning = f'<p class="missing"><b>Not to be used as it is.</b> {prose(worse)}</p>\n' if worse else ""
    summary = f"{explained(prose(content.headline))} " if plain else ""
    return (
        f'<header>\n<p class="kind">livi report · {escape(content.task)}</p>\n<h1>{title}</h1>\n{warning}'
        f'<p class="lede">{lede}</p>\n{cards(content)}<p class="note">{summary}{source} {badge}</p>\n'
        f'<nav aria-label="sections"><ul>{links}</ul></nav>\n</header>'
    )


def _section(part: Section) -> str:
    heading = f'<h2 id="{part.name}">{escape(part.title)}</h2>'
    heading = f'<p class="kind part">{escape(part.kicker)}</p>\n{heading}' if part.kicker else heading
    return f'<section aria-labelledby="{part.name}">\n{heading}\n{part.body}</section>'


def _as_json(figures: Iterable[Figure]) -> str:
    """Data and layout of every figure by name."""
    plain = {figure.name: {"data": figure.data, "layout": figure.layout} for figure in figures}
    return json.dumps(plain, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def packed(text: str) -> str:
    """Text, deflated and in base 85 without characters that mean something to an HTML parser: a third of its size.

    The page's own script unpacks it, with functions that browsers have had since 2023.
    """
    shrink = zlib.compressobj(9, zlib.DEFLATED, -15, 9)
    content = shrink.compress(text.encode("utf-8", "replace")) + shrink.flush()
    return base64.b85encode(content).decode().translate(_SAFE)


_packed_once = cache(packed)


def unpacked(text: str) -> str:
    """The text that was packed."""
    return zlib.decompress(base64.b85decode(text.translate({new: old for old, new in _SAFE.items()})), -15).decode()
