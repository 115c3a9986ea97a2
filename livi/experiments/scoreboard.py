"""Tables of methods and where they were tried: means with standard errors over repeats, the best in bold, ranks.

What is compared was repeated, over splits or seeds. Differences between two methods are taken repeat by repeat, since
what is common to a split is common to both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, Literal

Rows = Sequence[Mapping[str, Any]]
Values = dict[Any, float]  # by repeat
Board = dict[str, dict[str, Values]]  # by place and method


@dataclass(frozen=True)
class Column:
    """A quantity as a column: its direction, and its decimals, or None for three significant digits."""

    name: str
    title: str
    better: Literal["higher", "lower"] | None = None
    digits: int | None = None
    percent: bool = False


def board(rows: Rows, name: str, *, place: str, repeat: str) -> Board:
    """The values of one quantity by place, method and repeat, in the order in which these appear."""
    found: Board = {}
    for row in rows:
        if row.get(name) is not None:
            found.setdefault(row[place], {}).setdefault(row["method"], {})[row[repeat]] = row[name]
    return found


def standard_error(values: Iterable[float]) -> float | None:
    """Of their mean; None of fewer than two."""
    some = list(values)
    return stdev(some) / math.sqrt(len(some)) if len(some) > 1 else None


def differences(one: Values, other: Values) -> list[float]:
    """Repeat by repeat, where both have it."""
    return [one[repeat] - other[repeat] for repeat in sorted(one.keys() & other.keys())]


def often_enough(methods: Mapping[str, Values]) -> dict[str, Values]:
    """Those with at least half as many repeats as there are: others had easier or harder ones, and are not compared.

    >>> list(often_enough({"a": {0: 1.0, 1: 2.0, 2: 1.0}, "b": {0: 1.1, 1: 1.8}, "c": {0: 5.0}}))
    ['a', 'b']
    """
    most = max(map(len, methods.values()), default=0)
    return {method: values for method, values in methods.items() if 2 * len(values) >= most}


def best_of(methods: Mapping[str, Values], better: str | None) -> tuple[str | None, set[str]]:
    """The method with the best mean, and those whose mean difference to it is within its standard error.

    Of methods that were repeated often enough.

    >>> best_of({"a": {0: 1.0, 1: 2.0}, "b": {0: 1.1, 1: 1.8}, "c": {0: 0.0, 1: 0.1}}, "higher")
    ('a', {'b'})
    """
    if better is None or not methods:
        return None, set()
    sign, compared = 1.0 if better == "higher" else -1.0, often_enough(methods)
    best = max(compared, key=lambda method: sign * mean(compared[method].values()))
    return best, {method for method in compared if method != best and _tied(compared[method], compared[best])}


def mean_ranks(boards: Board, better: str) -> dict[str, float]:
    """The mean over places of the rank of each method that is at all of them, 1 for the best mean; ties share.

    >>> mean_ranks({"x": {"a": {0: 2.0}, "b": {0: 1.0}}, "y": {"a": {0: 1.0}, "b": {0: 1.0}}}, "higher")
    {'a': 1.25, 'b': 1.75}
    """
    boards = {place: often_enough(methods) for place, methods in boards.items()}
    everywhere = [method for method in _methods(boards) if all(method in methods for methods in boards.values())]
    sign = -1.0 if better == "higher" else 1.0
    ranks: dict[str, list[float]] = {method: [] for method in everywhere}
    for methods in boards.values():
        scores = {method: sign * mean(methods[method].values()) for method in everywhere}
        for method, score in scores.items():
            before = sum(other < score for other in scores.values())
            ranks[method].append(before + 0.5 * (sum(other == score for other in scores.values()) + 1))
    return {method: mean(found) for method, found in ranks.items() if found}


def cells(methods: Mapping[str, Values], column: Column) -> dict[str, str]:
    """A cell for each method at one place, with as many decimals for all: mean ± standard error, the best in bold."""
    digits = decimals((mean(values.values()) for values in methods.values()), column)
    best, tied = best_of(methods, column.better)
    return {
        method: told(list(values.values()), column, digits, bold=method == best or method in tied)
        for method, values in methods.items()
    }


def told(values: Sequence[float], column: Column, digits: int, *, bold: bool = False) -> str:
    """Mean ± standard error."""
    factor = 100.0 if column.percent else 1.0
    middle, error = f"{factor * mean(values):.{digits}f}", standard_error(values)
    middle = f"**{middle}**" if bold else middle
    return middle if error is None else f"{middle} ± {factor * error:.{digits}f}"


def decimals(means: Iterable[float], column: Column) -> int:
    """Those that show three digits of the smallest, if the column does not say."""
    if column.digits is not None:
        return column.digits
    sizes = [abs(value) for value in means if value != 0.0]
    return max(0, 2 - math.floor(math.log10(min(sizes)))) if sizes else 2


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table; bars inside of a cell are no borders."""
    rows = ([cell.replace("|", r"\|") for cell in line] for line in (head, ["---"] * len(head), *lines))
    return "\n".join(f"| {' | '.join(line)} |" for line in rows)


def across(boards: Board, column: Column, titles: Mapping[str, str]) -> list[list[str]]:
    """A line for each method: its title, and a cell for each place, with the number of repeats where these are few."""
    columns = []
    for methods in boards.values():
        compared = often_enough(methods)
        columns.append(
            {
                method: cell if method in compared else f"{cell} ({len(methods[method])})"
                for method, cell in cells(methods, column).items()
            }
        )
    return [[titles.get(method, method), *(found.get(method, "–") for found in columns)] for method in _methods(boards)]


def _methods(boards: Board) -> list[str]:
    return list(dict.fromkeys(method for methods in boards.values() for method in methods))


def _tied(one: Values, best: Values) -> bool:
    found = differences(one, best)
    return bool(found) and abs(mean(found)) <= (standard_error(found) or 0.0)
