"""The rules for single cells: missing, a number, a date, or text.

- Missing: an empty cell, and NA, N/A, #N/A, NaN, <NA>, NULL and ? in any case. (Not "none", which is often a category.)
- A number: digits with an optional sign, decimal point and exponent. Decimal commas and hexadecimals are not guessed:
  `with_point` reads decimal commas if the user says so, and `livi.tables.notation` reads thousands separators,
  currencies and units of whole columns. `inf` and what overflows to it, such as 1e400, are numbers that a later check
  refuses.
- A date: ISO 8601 with at least year, month and day, as 2024-02-29 or 2024-02-29T12:30; its value is days since
  1970-01-01, in UTC if it has a time zone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

Texts = NDArray[np.object_]  # of str, "" where missing
Numbers = NDArray[np.float64]  # NaN where missing
Cells = Texts | Numbers

DATE_ADVICE = "write dates as 2024-02-29"
MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "<na>", "null", "?"})
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.ASCII | re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?", re.ASCII)
_WHOLE = re.compile(r"(-?\d+)\.0+", re.ASCII)
_WITH_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)?(,\d+)?(?<=\d)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_WITH_UNIT = re.compile(  # a sign and a currency, digits, a currency or a unit
    r"(\(?\s*[+\u2212-]?\s*(?:[$€£¥₹]|[A-Z]{3})?\s*[+\u2212-]?)"
    r"([0-9]{1,3}(?:([.'’ \u00a0\u202f])[0-9]{3}(?:\3[0-9]{3})*)?(?:,[0-9]+)?|[0-9]+(?:,[0-9]+)?)"
    r"(\s*[^\W\d_]*[^\w\s]?[^\W\d_]*\s*)"
)
_DECIMAL_COMMA = re.compile(r"[+-]?(\d[\d.' ]*,[\d.,' ]*|\d{1,3}(\.\d{3}){2,})", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([,' ])\d{3}(\1\d{3})*(\.\d+)?", re.ASCII)
_OTHER_DATE = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}( .*)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1)


def clean(text: str) -> str:
    """A cell without surrounding blanks; "" if it stands for a missing value."""
    text = text.strip()
    return "" if text.lower() in MISSING else text


def number(text: str) -> float | None:
    """The number in a cell; None if the text is not a number.

    >>> number("-1.5e3"), number("1,5"), number("1e400")
    (-1500.0, None, inf)
    """
    return float(text) if _NUMBER.fullmatch(text) else None


def day(text: str) -> float | None:
    """Days since 1970-01-01 of an ISO date; None if the text is not such a date.

    >>> day("1970-01-02T12:00"), day("2024-02-30"), day("1970-01-01T02:00+02:00")
    (1.5, None, 0.0)
    """
    if not _DATE.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    return (moment - _EPOCH).total_seconds() / 86400.0


def with_point(text: str) -> str | None:
    """Turn a decimal comma into a point, and remove points between thousands; text that is no number is unchanged.

    None for a number with a decimal point, which is a mistake where commas are decimal.

    >>> with_point("1.234,5"), with_point("1.234"), with_point("a,b"), with_point("1.5")
    ('1234.5', '1234', 'a,b', None)
    >>> with_point("1.234,50 EUR"), with_point("1 234,5")
    ('1234.50 EUR', '1 234.5')
    """
    if _WITH_COMMA.fullmatch(text):
        return text.replace(".", "").replace(",", ".")
    parts = _WITH_UNIT.fullmatch(text)
    if parts:
        return parts[1] + parts[2].replace(".", "").replace(",", ".") + parts[4]
    return None if "." in text and number(text) is not None else text


def how_to_write(text: str) -> str:
    """Advice on how to write a number or a date that was not recognised; "" for other text.

    >>> how_to_write("12,5"), how_to_write("29/2/2024"), how_to_write("red")
    ('write numbers as 1234.5, or pass --decimal comma', 'write dates as 2024-02-29', '')
    >>> how_to_write("1.234,50 €"), how_to_write("4,5 %")
    ('write numbers as 1234.5, or pass --decimal comma', 'write numbers as 1234.5, or pass --decimal comma')
    """
    parts = _WITH_UNIT.fullmatch(text)
    text = parts[2] if parts else text
    if _THOUSANDS.fullmatch(text):
        return "write numbers without separators (if commas are decimal ones, pass --decimal comma)"
    if _DECIMAL_COMMA.fullmatch(text):
        return "write numbers as 1234.5, or pass --decimal comma"
    return DATE_ADVICE if _OTHER_DATE.fullmatch(text) else ""


def label(value: str | float) -> str:
    """The name of a category: whole numbers without a decimal point, so that 3, 3.0 and "3.0" are the same.

    >>> label(3.0), label("3.0"), label("03"), label(float("nan"))
    ('3', '3', '03', '')
    """
    if isinstance(value, str):
        whole = _WHOLE.fullmatch(value)
        return whole.group(1) if whole else value
    if math.isnan(value):
        return ""
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(float(value))


def labels(cells: Cells) -> list[str]:
    """The name of the category in every cell, "" where missing."""
    return [label(value) for value in cells.tolist()]


def is_missing(cells: Cells) -> NDArray[np.bool_]:
    if cells.dtype == object:
        return np.fromiter((not text for text in cells), np.bool_, len(cells))
    return np.isnan(cells.astype(np.float64))


def parsed(cells: Cells, parse: Callable[[str], float | None]) -> tuple[Numbers, NDArray[np.bool_]]:
    """The cells as numbers, with NaN where missing or not parsed, and a mask of those that are parsed or missing.

    Cells that are numbers already count as parsed, whatever `parse` is.
    """
    if cells.dtype != object:
        return cells.astype(np.float64), np.ones(len(cells), np.bool_)
    found = [math.nan if not text else parse(text) for text in cells]
    fine = np.fromiter((value is not None for value in found), np.bool_, len(found))
    return np.array([math.nan if value is None else value for value in found], np.float64), fine


def texts(values: Sequence[str]) -> Texts:
    cells = np.empty(len(values), object)
    cells[:] = values
    return cells
