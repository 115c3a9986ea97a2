"""The page of all results: one HTML file that needs nothing else, from the Markdown that is written beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from livi.posterior.storage import replace_file
from livi.report.elements import prose, table
from livi.report.results import Result, joined
from livi.report.results_figure import further_figure, further_figures, results_figure
from livi.report.results_text import page
from livi.report.still_page import picture, still_page
from livi.report.style import png_of

STYLE = """
main { max-width: 1180px }
td { white-space: nowrap } table { font-size: 14px } h3 { margin: 30px 0 6px }
pre { background: #f5f5f7; padding: 8px 12px; overflow-x: auto; font-size: 13.5px; white-space: pre-wrap }
"""

DPI = 150


def write_report(folders: Sequence[str | Path], out: str | Path) -> list[Path]:
    """Write OUT.md, OUT.html and OUT-EXPERIMENT*.png from all results in these folders; what was written.

    Raises:
        FileNotFoundError: a folder is not there.
        ImportError: matplotlib is not installed.
        ValueError: there is no result in any.
    """
    base = Path(out).with_suffix("") if Path(out).suffix in (".html", ".md") else Path(out)
    base.parent.mkdir(parents=True, exist_ok=True)
    results = joined(folders)
    names, pictures = picture_names(results, base.name), dict[str, bytes]()
    for number, name in list(names.items()):
        drawn = results_figure(results[number])
        if drawn is None:
            del names[number]
        else:
            pictures[name] = png_of(drawn, DPI)
    further = further_names(results, names)
    for number, found in further.items():
        pictures |= {file: png_of(further_figure(results[number], what), DPI) for what, file in found.items()}
    markdown = page(results, names, further)
    contents = {
        f"{base.name}.md": markdown.encode(),
        f"{base.name}.html": html(markdown, pictures).encode(),
        **pictures,
    }
    for name, content in contents.items():
        replace_file(base.parent / name, [content])
    return [base.parent / name for name in contents]


def picture_names(results: Sequence[Result], base: str) -> dict[int, str]:
    """A file for the figure of each result, by its number; none where there is nothing to draw."""
    known = [result.experiment.replace(" ", "-") for result in results]
    return {
        number: f"{base}-{known[number]}{f'-{number}' if known[number] in known[:number] else ''}.png"
        for number, result in enumerate(results)
        if result.sound
    }


def further_names(results: Sequence[Result], names: Mapping[int, str]) -> dict[int, dict[str, str]]:
    """Further figures of each result, by its number: what they show, and their files."""
    return {
        number: {
            what: name.replace(".png", f"-{what.replace(' ', '-')}.png") for what in further_figures(results[number])
        }
        for number, name in names.items()
    }


def html(markdown: str, pictures: dict[str, bytes]) -> str:
    """The page in HTML: the headings, tables, lists, code, pictures and paragraphs that `results_text` writes."""
    body = "\n".join(_block(block, pictures) for block in re.split(r"\n\n+", markdown.strip()))
    return still_page("livi: results", body, STYLE)


def _block(block: str, pictures: dict[str, bytes]) -> str:
    if heading := re.match(r"(#+) (.*)", block):
        level = len(heading[1])
        return f"<h{level}>{_words(heading[2])}</h{level}>"
    if block.startswith("|"):
        head, _, *lines = [[_words(cell) for cell in _cells(line)] for line in block.splitlines()]
        return table("results", head, lines, words=(0, 1) if head[1:2] == ["method"] else (0,), captioned=False)
    if block.startswith("- "):
        return (
            "<ul>" + "".join(f"<li>{_words(line)}</li>" for line in re.split(r"^- ", block, flags=re.M)[1:]) + "</ul>"
        )
    if block.startswith("    "):
        return "<pre><code>" + "\n".join(escape(line.strip()) for line in block.splitlines()) + "</code></pre>"
    if named := re.fullmatch(r"!\[(.*)\]\((.*)\)", block):
        return picture(pictures[named[2]], named[1])
    return f'<p class="note">{_words(block)}</p>'


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def _words(text: str) -> str:
    bold = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", prose(text))
    return re.sub(r"\*([^*]+)\*", r"<i>\1</i>", bold)
