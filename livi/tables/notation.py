"""Numbers as people write them: 1,977 and 1 977 and 1'977, $5 and 5 EUR, 5 %, 12 kg, and (40) for -40.

One cell is read by `written`; what the cells of a column have in common is its `Notation`, found once on the rows of
the fit and kept, so that other files are read the same way. Commas and points mean what `--decimal` says: with "point",
the default, a comma can only stand between thousands, and with "comma" a point can only do so (`values.with_point`).
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
COMMON_UNITS = frozenset(_UNITS.split())  # in small letters
_ALIKE = str.maketrans({"\u2212": "-", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "’": "'"})
_MONEY = "|".join(re.escape(sign) for sign in sorted((*_CODES, *CURRENCIES), key=len, reverse=True))
_CELL = re.compile(
    rf"(?P<open>\()?\s*(?P<sign>[+-]?)\s*(?P<before>{_MONEY})?\s*(?P<inner>[+-]?)"
    r"(?:(?P<grouped>[1-9][0-9]{0,2}(?P<by>[,' ])[0-9]{3}(?:(?P=by)[0-9]{3})*(?:\.[0-9]+)?)"
    r"|(?P<plain>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))"
    rf"(?P<gap>\s*)(?P<after>%|{_MONEY}|(?:[^\W\d_]|°)[^\W_]{{0,9}}(?:/[^\W\d_][^\W_]{{0,5}})?)?\s*(?P<close>\))?"
)


class Written(NamedTuple):
    """One number as it was written: its value, what stands between thousands, and its currency, percent or unit."""

    value: float
    thousands: str
    unit: str


def written(text: str) -> Written | None:
    """What a cell shows, if that is one number.

    >>> written("1,977"), written("(40)").value, written("-$1'200.50").value, written("12 kg").unit
    (Written(value=1977.0, thousands=',', unit=''), -40.0, -1200.5, 'kg')
    >>> written("1,5"), written("0,123"), written("A12")
    (None, None, None)
    """
    plain = number(text)
    if plain is not None:
        return Written(plain, "", "")
    found = _CELL.fullmatch(text.translate(_ALIKE).strip())
    if not found:
        return None
    parts = found.groupdict(default="")
    accounting = bool(parts["open"])
    signs, units = parts["sign"] + parts["inner"], [unit for unit in (parts["before"], parts["after"]) if unit]
    if accounting != bool(parts["close"]) or len(signs) + accounting > 1 or len(units) > 1:
        return None
    if parts["after"] and not parts["gap"] and not _known(parts["after"]):  # 4WD, 12a: more likely a name
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
        thousands: what stands between groups of three digits: a comma, a blank or an apostrophe; "" for nothing.
        unit: what stands before or behind each number, such as %, € or kg. A currency may be left out of some.
        example: a cell of the fit, for messages.
    """

    thousands: str = ""
    unit: str = ""
    example: str = ""

    def read(self, text: str) -> float | None:
        """The number of a cell; None where it is none, or is not written as in the fit.

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
    """What cells have in common: a notation, or a sentence on why there is none; neither where some are no numbers."""

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
    first: dict[str, str] = {}  # an example of each unit
    groups: dict[str, str] = {}  # and of each separator
    for text, one in zip(cells, found, strict=True):
        if one is not None:
            first.setdefault(one.unit, text)
            groups.setdefault(one.thousands, text)
    units = [unit for unit in first if unit]
    separators = [sign for sign in groups if sign]
    if len(separators) > 1:
        return Common(mixed=f"{groups[separators[0]]!r}, but {groups[separators[1]]!r}")
    bare = "" in first and any(unit not in CURRENCIES for unit in units)
    if len(units) > 1 or bare:
        known = all(map(_known, units))
        other = f"{first['']!r} without" if bare else f"{first[units[-1]]!r} with {units[-1]!r}"
        return Common(mixed=f"{first[units[0]]!r} with {units[0]!r}, but {other}" if known else "")
    separator, unit = "".join(separators), "".join(units)
    example = groups[separator] if separator else first[unit]
    if not separator and not unit:
        example = next((text for text in cells if number(text) is None), cells[0])
    return Common(Notation(separator, unit, example))


def could_be_decimals(texts: Sequence[str]) -> bool:
    """Whether commas between thousands could as well be decimal ones: each value has one, and no point.

    >>> could_be_decimals(["1,977", "2,400"]), could_be_decimals(["1,977", "850"]), could_be_decimals(["1,977.5"])
    (True, False, False)
    """
    return all(text.count(",") == 1 and "." not in text for text in texts if text)
