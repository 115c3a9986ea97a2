"""The report on a table model: one HTML file that can be opened anywhere and asks nothing of any network."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from pathlib import Path

from livi.posterior.storage import replace_file
from livi.report.elements import prose
from livi.report.interactive import Figure
from livi.report.table_figures import level_text
from livi.report.table_sections import LEVEL, SEVERITY, Section, sections
from livi.report.table_style import SCRIPT, STYLE
from livi.tables.content import Content
from livi.version import __version__

# Enforced by the browser: no script, picture, font or request from anywhere but this file.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


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
    library = _inside_script(get_plotlyjs())
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
nothing from any network. Nearly all of its size is plotly.js, the library that draws the figures
({len(library) / 1e6:.1f} MB).</p>
</footer>
</main>
<noscript><p class="missing">The figures need JavaScript; the numbers and tables do not.</p></noscript>
<script type="application/json" id="figures">{_as_json(figures)}</script>
<script>{library}</script>
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
    cards = "".join(
        f"<li><b>{escape(one.name)}</b><span>{prose(one.text)}</span><small>{prose(one.note)}</small></li>\n"
        for one in content.metrics
    )
    return (
        f'<header>\n<p class="kind">livi report · {escape(content.task)}</p>\n<h1>{title}</h1>\n'
        f'<p class="lede">{prose(content.headline)}</p>\n<p class="note">{source} {badge}</p>\n'
        f'<nav aria-label="sections"><ul>{links}</ul></nav>\n'
        + (f'<ul class="cards" aria-label="metrics">\n{cards}</ul>\n' if cards else "")
        + "</header>"
    )


def _section(part: Section) -> str:
    heading = f'<h2 id="{part.name}">{escape(part.title)}</h2>'
    return f'<section aria-labelledby="{part.name}">\n{heading}\n{part.body}</section>'


def _as_json(figures: Iterable[Figure]) -> str:
    """Data and layout of every figure by name. Within a script element no "<" may stand."""
    plain = {figure.name: {"data": figure.data, "layout": figure.layout} for figure in figures}
    text = json.dumps(plain, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _inside_script(code: str) -> str:
    """JavaScript that no HTML parser takes for the end of its element."""
    return code.replace("</script", "<\\/script").replace("<!--", "<\\!--")
