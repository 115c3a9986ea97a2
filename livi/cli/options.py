"""Conversions of option values from text, which argparse calls as `type`; a wrong value is wrong usage."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from livi.durations import seconds

INTERRUPTED = 130  # exit code after Ctrl-C, as in shells


def names(text: str) -> tuple[str, ...]:
    """The names between commas; a name that contains commas is put in double quotes.

    >>> names('id, "price, EUR"')
    ('id', 'price, EUR')
    """
    quoted = re.findall(r'\s*(?:"([^"]*)"|([^,]*))\s*(?:,|$)', text)
    return tuple(name for parts in quoted if (name := "".join(parts).strip()))


def share(text: str) -> float:
    """A number that is at least 0 and less than 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to below 1, got {text!r}")
    return value


def count(text: str) -> int:
    """A whole number, at least 1."""
    if not text.isdecimal() or not 1 <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, got {text!r}")
    return int(text)


def seed(text: str) -> int:
    """A whole number that numpy and torch take as a seed."""
    if not text.isdecimal() or not int(text) < 2**32:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 4294967295, got {text!r}")
    return int(text)


def seeds(text: str) -> tuple[int, ...]:
    """Seeds between commas."""
    return tuple(seed(part) for part in names(text))


def widths(text: str) -> tuple[int, ...]:
    """Numbers of units between commas, at least one."""
    found = tuple(count(part) for part in names(text))
    if not found:
        raise argparse.ArgumentTypeError(f"expected widths such as 50,50, got {text!r}")
    return found


def duration(text: str) -> float:
    """Seconds, from a number or from text with a unit."""
    try:
        return seconds("", text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a time such as 90, '1 min' or '2 h', got {text!r}") from None


def delimiter(text: str) -> str:
    """One character, or the word tab."""
    character = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(character) != 1 or character in '"\r\n ':
        raise argparse.ArgumentTypeError(f"expected one character such as ; or the word tab, got {text!r}")
    return character


def result(text: str) -> str:
    """The name of a CSV or Parquet file, or - for stdout."""
    if text != "-" and Path(text).suffix.lower() not in (".csv", ".parquet"):
        raise argparse.ArgumentTypeError(f"expected a name that ends in .csv or .parquet, or -, got {text!r}")
    return text


def page(text: str) -> str:
    """The name of an HTML file, or a name without an ending."""
    if Path(text).suffix.lower() not in (".html", ".htm", ""):
        remedy = "; a browser prints the page to a PDF" if text.lower().endswith(".pdf") else ""
        raise argparse.ArgumentTypeError(f"expected a name that ends in .html, got {text!r}{remedy}")
    return text
