"""Pages of words, tables and pictures: one HTML file that needs nothing else, and runs no script."""

from __future__ import annotations

import base64
from html import escape

from livi.report import page_style
from livi.report.elements import prose

# Enforced by the browser: nothing runs, and nothing comes from anywhere but this file.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
STYLE = (
    page_style.STYLE
    + """
figure img { width: 100%; height: auto; display: block }
figure .scroll { background: none; margin: 0 }
@media (max-width: 680px) { figure img { width: 720px } /* to be read by scrolling */ }
@media print { figure img { width: 100% } }
"""
)


def still_page(title: str, body: str, style: str) -> str:
    """The whole page.

    Args:
        body: HTML.
        style: rules of this page beside those of all.
    """
    return (
        '<!doctype html>\n<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n<main>{body}</main>\n"
        "</body>\n</html>\n"
    )


def picture(png: bytes, about: str, caption: str = "") -> str:
    """HTML of a picture that scrolls sideways on a narrow screen; `about` is for readers who cannot see it."""
    code = base64.b64encode(png).decode()
    words = f"<figcaption>{prose(caption)}</figcaption>" if caption else ""
    return (
        '<figure><div class="scroll" tabindex="0" role="region" aria-label="figure">'
        f'<img alt="{escape(about)}" src="data:image/png;base64,{code}"></div>{words}</figure>'
    )
