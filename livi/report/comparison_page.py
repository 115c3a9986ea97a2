"""The page of a comparison: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape

from livi.report import page_style
from livi.report.compared import Compared
from livi.report.comparison_figure import comparison_figure
from livi.report.elements import prose, table
from livi.version import __version__

STYLE = (
    page_style.STYLE
    + """
figure img { width: 100%; min-width: 720px; height: auto; display: block }
td { white-space: nowrap }
"""
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def comparison_page(rows: Sequence[Compared], cells: Sequence[Sequence[str]], words: Sequence[str]) -> str:
    """The whole page.

    Args:
        cells: of the table, with a heading.
        words: how it was made.

    Raises:
        ImportError: matplotlib is not installed.
    """
    head, *lines = [[prose(cell) for cell in row] for row in cells]
    listed = table("every method, best first", head, lines, words=(0,), wide=True, captioned=False)
    body = f"""
<h1>{escape(headline(rows))}</h1>
{"".join(f'<p class="note">{prose(text)}</p>' for text in words)}
{_figure(rows)}
<h2>Every method</h2>
{listed}
{_remarks("Without a result", ((row.title, row.trouble) for row in rows if row.trouble))}
{_remarks("What the fits said", ((row.title, text) for row in rows for text in row.notes))}
<p class="note">Written by livi {escape(__version__)}. This file holds everything it shows.</p>
"""
    return (
        '<!doctype html>\n<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>livi: methods compared</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>{body}</main>\n"
        "</body>\n</html>\n"
    )


def headline(rows: Sequence[Compared]) -> str:
    """A sentence on which method to choose."""
    best, *others = [row for row in rows if not row.trouble]
    if not others:
        return f"{best.title}, alone"
    equal = [row.title for row in others if row.as_good_as(best)]
    if len(equal) == len(others):
        return f"{best.title} has the best score, and none is clearly behind"
    if equal:
        return f"{best.title} has the best score; not clearly behind: {', '.join(equal)}"
    return f"{best.title} has the best score, by more than two standard errors"


def _figure(rows: Sequence[Compared]) -> str:
    file = io.BytesIO()
    comparison_figure(rows).savefig(file, format="png", dpi=220)
    code = base64.b64encode(file.getvalue()).decode()
    about = "scores with standard errors, calibration curves and seconds of every method"
    return f'<figure class="scroll"><img src="data:image/png;base64,{code}" alt="{about}"></figure>'


def _remarks(title: str, remarks: Iterable[tuple[str, str]]) -> str:
    lines = "".join(f"<li><b>{escape(who)}</b>: {prose(text)}</li>\n" for who, text in remarks)
    return f"<h2>{escape(title)}</h2>\n<ul>{lines}</ul>" if lines else ""
