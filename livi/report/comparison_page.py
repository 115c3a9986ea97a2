"""The page of a comparison: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from livi.report.compared import Compared
from livi.report.comparison_figure import comparison_figure
from livi.report.elements import prose, table
from livi.report.still_page import picture, still_page
from livi.report.style import png_of
from livi.version import __version__

SHOWN = "scores with standard errors, calibration curves and seconds of every method"


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
{picture(png_of(comparison_figure(rows), 220), SHOWN)}
<h2>Every method</h2>
{listed}
{_remarks("Without a result", ((row.title, row.trouble) for row in rows if row.trouble))}
{_remarks("What the fits said", ((row.title, text) for row in rows for text in row.notes))}
<p class="note">Written by livi {escape(__version__)}. This file holds everything it shows.</p>
"""
    return still_page("livi: methods compared", body, "td { white-space: nowrap }")


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


def _remarks(title: str, remarks: Iterable[tuple[str, str]]) -> str:
    lines = "".join(f"<li><b>{escape(who)}</b>: {prose(text)}</li>\n" for who, text in remarks)
    return f"<h2>{escape(title)}</h2>\n<ul>{lines}</ul>" if lines else ""
