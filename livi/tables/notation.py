"""Numbers as people write them: 1,977 and 1 977 and 1'977, $5 and 5 EUR, 5 %, 12 kg, and (40) for -40.

`written` reads one cell. The common form of a column's cells is its `Notation`, found on the rows of the fit and saved,
so that other files are read the same way. With `--decimal point`, the default, a comma can only separate thousands;
with `--decimal comma`, a point can only do so (`values.with_point`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from livi.tables.values import number

_CODES = {"USD": "$", "US$": "$", "EUR": "€", "GBP": "£", "JPY": "¥"}
_OTHER_CODES = ("CHF", "SEK", "NOK", "DKK", "PLN", "CZK", "CNY", "INR", "AUD", "CAD", "NZD", "₹", "kr")
CURRENCIES = frozenset({*_CODES.values(), *_OTHER_CODES})
_UNITS = """
% kg g mg t lb lbs oz mm cm m km in ft yd mi ml cl dl l s ms min h hr hrs days yr yrs years °c °f w kw mw kwh kb
mb gb tb m2 m² m3 m³ ha sqft km/h mph hp bhp ps cc px pt db hz khz mhz ghz v mv ma ah mah j kj cal kcal pa hpa kpa bar
ppm mol rpm nm
"""
COMMON_UNITS = frozenset(_UNITS.split())  # in lower case
_PLAIN_SIGNS = str.maketrans({"\u2212": "-", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "’": "'"})
_MONEY = "|".join(re.escape(sign) for sign in sorted((*_CODES, *CURRENCIES), key=len, reverse=True))
_CELL = re.compile(
    rf"(?P<open>\()?\s*(?P<sign>[+-]?)\s*(?P<before>{_MONEY})?\s*(?P<inner>[+-]?)"
    r"(?:(?P<grouped>[1-9][0-9]{0,2}(?P<by>[,' ])[0-9]{3}(?:(?P=by)[0-9]{3})*(?:\.[0-9]+)?)"
    r"|(?P<plain>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))"
    rf"(?P<gap>\s*)(?P<after>%|{_MONEY}|(?:[^\W\d_]|°)[^\W_]{{0,9}}(?:/[^\W\d_][^\W_]{{0,5}})?)?\s*(?P<close>\))?"
)


class Written(NamedTuple):
    """A number as it was written: its value, the thousands separator, and its currency, percent sign or unit."""

    value: float
    thousands: str
    unit: str


def written(text: str) -> Written | None:
    """The number in a cell; None if the cell is not one number.

    >>> written("1,977"), written("(40)").value, written("-$1'200.50").value, written("12 kg").unit
    (Written(value=1977.0, thousands=',', unit=''), -40.0, -1200.5, 'kg')
    >>> written("1,5"), written("0,123"), written("A12")
    (None, None, None)
    """
    plain = number(text)
    if plain is not None:
        return Written(plain, "", "")
    found = _CELL.fullmatch(text.translate(_PLAIN_SIGNS).strip())
    if not found:
        return None
    parts = found.groupdict(default="")
    accounting = bool(parts["open"])
    signs, units = parts["sign"] + parts["inner"], [unit for unit in (parts["before"], parts["after"]) if unit]
    if accounting != bool(parts["close"]) or len(signs) + accounting > 1 or len(units) > 1:
        return None
    if parts["after"] and not parts["gap"] and not _known(parts["after"]):  # 4WD and 12a are more likely names
        return None
    digits = parts["grouped"].replace(parts["by"], "") if parts["grouped"] else parts["plain"]
    value = float(digits) * (-1.0 if accounting or signs == "-" else 1.0)
    unit = "".join(units)
    return Written(value, parts["by"], _CODES.get(unit, unit))


def _known(unit: str) -> bool:
    return _CODES.get(unit, unit) in CURRENCIES or unit.lower() in COMMON_UNITS


@dataclass(frozen=True)
class Notation:
    """How the numbers of one column are written.

    Args:
        thousands: the separator of thousands, a comma, a blank or an apostrophe; "" for none.
        unit: what is before or after each number, such as %, € or kg. Some numbers may lack a currency.
        example: a cell of the fit, for messages.
    """

    thousands: str = ""
    unit: str = ""
    example: str = ""

    def read(self, text: str) -> float | None:
        """The number in a cell; None if there is none, or it is not written as in the fit.

        >>> Notation(",", "kg").read("1,200 kg"), Notation("", "%").read("0.05")
        (1200.0, None)
        """
        found = written(text)
        if found is None or found.thousands not in ("", self.thousands):
            return None
        same = found.unit == self.unit or (not found.unit and self.unit in CURRENCIES)
        return found.value if same else None

    @classmethod
    def from_json(cls, stored: Any) -> Notation | None:
        if stored is None:
            return None
        parts = [stored[name] for name in ("thousands", "unit", "example")]
        if not all(isinstance(part, str) for part in parts) or parts[0] not in ("", ",", "'", " "):
            raise ValueError(f"a notation {stored!r}")
        return cls(*parts)


class Common(NamedTuple):
    """The notation of cells, or the reason why numbers have none in common; neither if some cells are not numbers."""

    notation: Notation | None = None
    mixed: str = ""


def in_common(texts: Iterable[str]) -> Common:
    """The notation of the cells that are not missing.

    >>> in_common(["1,977", "850"]).notation.thousands, in_common(["5%", "7"]).mixed
    (',', "'5%' with '%', but '7' without")
    """
    cells = [text for text in texts if text]
    found = [written(text) for text in cells]
    if not cells or None in found:
        return Common()
    by_unit: dict[str, str] = {}  # an example of each unit
    by_separator: dict[str, str] = {}
    for text, one in zip(cells, found, strict=True):
        if one is not None:
            by_unit.setdefault(one.unit, text)
            by_separator.setdefault(one.thousands, text)
    units = [unit for unit in by_unit if unit]
    separators = [sign for sign in by_separator if sign]
    if len(separators) > 1:
        return Common(mixed=f"{by_separator[separators[0]]!r}, but {by_separator[separators[1]]!r}")
    bare = "" in by_unit and any(unit not in CURRENCIES for unit in units)
    if len(units) > 1 or bare:
        known = all(map(_known, units))
        other = f"{by_unit['']!r} without" if bare else f"{by_unit[units[-1]]!r} with {units[-1]!r}"
        return Common(mixed=f"{by_unit[units[0]]!r} with {units[0]!r}, but {other}" if known else "")
    separator, unit = "".join(separators), "".join(units)
    example = by_separator[separator] if separator else by_unit[unit]
    if not separator and not unit:
        example = next((text for text in cells if number(text) is None), cells[0])
    return Common(Notation(separator, unit, example))


def could_be_decimals(texts: Sequence[str]) -> bool:
    """Whether commas read as thousands separators could be decimal ones: each value has exactly one, and no point.

    >>> could_be_decimals(["1,977", "2,400"]), could_be_decimals(["1,977", "850"]), could_be_decimals(["1,977.5"])
    (True, False, False)
    """
    return all(text.count(",") == 1 and "." not in text for text in texts if text)
