"""Tables of methods by data set: means with standard errors over repeats, the best in bold, and ranks.

Repeats are splits or seeds. Two methods are compared repeat by repeat, since a hard split is hard for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, Literal

from livi.experiments.rows import Rows

Values = dict[Any, float]  # by repeat
Board = dict[str, dict[str, Values]]  # by place, such as a data set, and method


@dataclass(frozen=True)
class Column:
    """A quantity shown as a column: whether higher is better, and its decimals, None for three significant digits."""

    name: str
    title: str
    better: Literal["higher", "lower"] | None = None
    digits: int | None = None
    percent: bool = False


def board(rows: Rows, name: str, *, place: str, repeat: str) -> Board:
    """The values of one quantity by place, method and repeat, in the order in which these appear.

    Args:
        place, repeat: the entries of a row that say where it was measured, and which repeat it is.
    """
    found: Board = {}
    for row in rows:
        if row.get(name) is not None:
            found.setdefault(row[place], {}).setdefault(row["method"], {})[row[repeat]] = row[name]
    return found


def standard_error(values: Iterable[float]) -> float | None:
    """The standard error of the mean; None for fewer than two values."""
    values = list(values)
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def differences(first: Values, second: Values) -> list[float]:
    """first - second, for each repeat that both have."""
    return [first[repeat] - second[repeat] for repeat in sorted(first.keys() & second.keys())]


def often_enough(methods: Mapping[str, Values]) -> dict[str, Values]:
    """The methods to compare: those with at least half as many repeats as the method with most.

    The others may have had easier or harder repeats.

    >>> list(often_enough({"a": {0: 1.0, 1: 2.0, 2: 1.0}, "b": {0: 1.1, 1: 1.8}, "c": {0: 5.0}}))
    ['a', 'b']
    """
    most = max(map(len, methods.values()), default=0)
    return {method: values for method, values in methods.items() if 2 * len(values) >= most}


def best_of(methods: Mapping[str, Values], better: str | None) -> tuple[str | None, set[str]]:
    """The method with the best mean, and those whose mean difference from it is within its standard error.

    Methods that were not repeated often enough are left out.

    >>> best_of({"a": {0: 1.0, 1: 2.0}, "b": {0: 1.1, 1: 1.8}, "c": {0: 0.0, 1: 0.1}}, "higher")
    ('a', {'b'})
    """
    if better is None or not methods:
        return None, set()
    sign, compared = 1.0 if better == "higher" else -1.0, often_enough(methods)
    best = max(compared, key=lambda method: sign * mean(compared[method].values()))
    return best, {method for method in compared if method != best and _tied(compared[method], compared[best])}


def mean_ranks(boards: Board, better: str) -> dict[str, float]:
    """Mean rank over places, 1 for the best mean, of each method that all places have; ties share their ranks.

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
    """A cell for each method at one place: mean ± standard error, with equally many decimals, the best in bold."""
    digits = decimals((mean(values.values()) for values in methods.values()), column)
    best, tied = best_of(methods, column.better)
    return {
        method: _cell(list(values.values()), column, digits, bold=method == best or method in tied)
        for method, values in methods.items()
    }


def _cell(values: Sequence[float], column: Column, digits: int, *, bold: bool = False) -> str:
    """A cell: mean ± standard error."""
    factor = 100.0 if column.percent else 1.0
    middle, error = f"{factor * mean(values):.{digits}f}", standard_error(values)
    middle = f"**{middle}**" if bold else middle
    return middle if error is None else f"{middle} ± {factor * error:.{digits}f}"


def mean_and_error(values: Sequence[float], formatted: Callable[[float], str]) -> str:
    """A cell: mean ± standard error, or the mean alone of a single value."""
    if not values:
        return "–"
    error = standard_error(values)
    return formatted(mean(values)) + ("" if error is None else f" ± {formatted(error)}")


def decimals(means: Iterable[float], column: Column) -> int:
    """The column's decimals; if it has none, those that show three digits of the smallest mean."""
    if column.digits is not None:
        return column.digits
    sizes = [abs(value) for value in means if value != 0.0]
    return max(0, 2 - math.floor(math.log10(min(sizes)))) if sizes else 2


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars inside cells are escaped."""
    rows = ([cell.replace("|", r"\|") for cell in line] for line in (head, ["---"] * len(head), *lines))
    return "\n".join(f"| {' | '.join(line)} |" for line in rows)


def across(boards: Board, column: Column, titles: Mapping[str, str]) -> list[list[str]]:
    """A line for each method: its title, and a cell for each place, with the number of repeats if these are too few."""
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


def _tied(values: Values, best: Values) -> bool:
    found = differences(values, best)
    return bool(found) and abs(mean(found)) <= (standard_error(found) or 0.0)
