"""Protection of CSV files against formulas: a quote before text that a spreadsheet would run as a formula.

A spreadsheet takes a cell of a CSV file that begins with =, +, -, @, a tab or a line break for a formula, which may
call programs or send the sheet away. A single quote in front keeps it text, as OWASP recommends. Numbers such as -1.5
are harmless and stay. Adding and removing quotes is exact: text that begins with such quotes already gets one more.
"""

from __future__ import annotations

import math
import re
from typing import Any

from livi.tables.values import number

_FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")  # the last four are wide = + - @


def protected(text: str) -> str:
    """The text, with a quote in front if a spreadsheet would run it as a formula.

    >>> protected("=1+1"), protected("-1.5"), protected("-1.5-x"), protected("a=b"), protected("'=1+1")
    ("'=1+1", '-1.5', "'-1.5-x", 'a=b', "''=1+1")
    """
    return f"'{text}" if _is_formula(text) else text


def unprotected(text: str) -> str:
    """The text that `protected` was given.

    >>> unprotected("'=1+1"), unprotected("'tis"), unprotected("'-1.5"), unprotected("=1+1")
    ('=1+1', "'tis", "'-1.5", '=1+1')
    """
    return text[1:] if text.startswith("'") and _is_formula(text) else text


def protected_frame(frame: Any) -> Any:
    """A data frame with `protected` column names and texts; numbers, dates and missing values are unchanged."""
    found = frame.rename(columns=lambda name: protected(str(name)))
    texts = [name for name in found if found[name].dtype.kind not in "iufbmM"]
    for name in texts:
        found[name] = found[name].map(_protected_cell)
    return found


def _protected_cell(value: Any) -> Any:
    return protected(value) if isinstance(value, str) else value


def _is_formula(text: str) -> bool:
    if _FORMULA.match(text) is None:
        return False
    value = number(text.lstrip("'"))
    return value is None or not math.isfinite(value)
