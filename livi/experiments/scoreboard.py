"""Tables of methods by data set: means with standard errors over repeats, the best in bold, and ranks.

Repeats are splits or seeds. Two methods are compared repeat by repeat, since a hard split is hard for both. Every
benchmark says once, as its `Kind`, what its rows are of and what is shown of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any, Literal

from livi.experiments.rows import Row, Rows, by_method, first_line, method_of, spread, succeeded

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

    def in_words(self, value: float) -> str:
        """The column's title with a single value.

        >>> Column("accuracy", "accuracy, %", "higher", 1, percent=True).in_words(0.97125)
        'accuracy 97.1 %'
        """
        name, _, unit = self.title.partition(", ")
        number = f"{(100.0 if self.percent else 1.0) * value:.{decimals([value], self)}f}"
        return " ".join(filter(None, (name, number, unit)))


@dataclass(frozen=True)
class Kind:
    """How the rows of an experiment are read and shown.

    Args:
        place: the entry that names a data set, target or problem.
        repeat: the entry that numbers its repeats.
        columns: of every table, by task where there are several; the first one is drawn too.
        further: columns of the benchmark's own table alone, by task.
        listed: the option of the command that lists the places; None where a command is for one place.
    """

    title: str
    place: str
    repeat: str
    columns: Mapping[str, tuple[Column, ...]]
    further: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)
    listed: str | None = None

    def of_task(self, row: Mapping[str, Any]) -> str:
        return str(row.get("task", "")) if "" not in self.columns else ""

    def shown(self, task: str = "") -> tuple[Column, ...]:
        """All columns of a task."""
        return (*self.columns[task], *self.further.get(task, ()))

    def quantities(self, task: str = "") -> tuple[str, ...]:
        return tuple(column.name for column in self.shown(task))

    def key(self, row: Mapping[str, Any]) -> tuple[str, str, int]:
        """Which run a row is of."""
        return row[self.place], method_of(row), row[self.repeat]

    def values(self, rows: Rows, name: str) -> Values:
        """The values of one quantity by repeat, of the rows of one method at one place."""
        return {row[self.repeat]: row[name] for row in rows if row.get(name) is not None}

    def board(self, rows: Rows, name: str) -> Board:
        """The values of one quantity by place, method and repeat, in the order in which these appear."""
        found: Board = {}
        for place, methods in by_method(rows, self.place).items():
            for method, group in methods.items():
                if values := self.values(group, name):
                    found.setdefault(place, {})[method] = values
        return found

    def summary(self, rows: Rows) -> list[Row]:
        """For each place and method the number of repeats, and mean, sd, min and max over them of every quantity."""
        return [
            {self.place: place, "variant" if "variant" in group[0] else "method": method}
            | ({} if "" in self.columns else {"task": group[0]["task"]})
            | {f"{self.repeat}s": len(succeeded(group))}
            | {name: spread(_values(group, name)) for name in self.quantities(self.of_task(group[0]))}
            for place, methods in by_method(rows, self.place).items()
            for method, group in methods.items()
        ]

    def line(self, row: Mapping[str, Any]) -> str:
        """One line about a row, for the progress of a run."""
        start = " ".join(filter(None, map(str, self.key(row)[:2]))) + f" {self.repeat} {row[self.repeat]}: "
        if row["error"] is not None:
            return start + first_line(row["error"])
        columns = [column for column in self.shown(self.of_task(row)) if row.get(column.name) is not None]
        return start + ", ".join(column.in_words(row[column.name]) for column in columns)

    def messages(self, rows: Rows) -> list[str]:
        """The warnings and errors of fits, each with its places and repeats."""
        found: dict[tuple[str, str], dict[str, list[str]]] = {}
        for row in rows:
            failed = [] if row["error"] is None else [f"failed: {row['error']}"]
            for message in (*row.get("warnings", ()), *failed):
                places = found.setdefault((method_of(row), first_line(message)), {})
                places.setdefault(row[self.place], []).append(str(row[self.repeat]))
        where = {
            told: [f"{place} ({', '.join(some)})" for place, some in places.items()] for told, places in found.items()
        }
        return [f"{method} on {', '.join(places)}: {message}" for (method, message), places in where.items()]

    def legend(self) -> str:
        return (
            f"Mean ± standard error over {self.repeat}s. Bold: the best mean, and every other within one standard\n"
            f"error of it, that of the difference over the {self.repeat}s. –: no result."
        )


def table(
    rows: Rows, kind: Kind, columns: Iterable[Column], named: Callable[[Rows], tuple[str, str]] | None = None
) -> str:
    """A line for each place and method: repeats, and mean ± standard error of every column that has values.

    Args:
        rows: of one task; those that failed are counted only.
        named: the words for place and method, from their rows; by default their own names.
    """
    sound = succeeded(rows)
    boards = {column: found for column in columns if (found := kind.board(sound, column.name))}
    lines = []
    for place, methods in by_method(rows, kind.place).items():
        shown = [cells(found.get(place, {}), column) for column, found in boards.items()]
        for method, group in methods.items():
            words = (place, method) if named is None else named(group)
            lines.append([*words, _count(group), *(one.get(method, "–") for one in shown)])
    head = [kind.place, "method", f"{kind.repeat}s", *(column.title for column in boards)]
    return markdown(head, lines) if lines else ""


def _count(rows: Rows) -> str:
    """The number of repeats, and of those that failed."""
    sound = len(succeeded(rows))
    return f"{sound}, {len(rows) - sound} failed" if sound < len(rows) else f"{sound}"


def _values(rows: Rows, name: str) -> list[float]:
    return [row[name] for row in succeeded(rows) if row.get(name) is not None]


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
