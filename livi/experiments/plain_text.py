"""The plain benchmark in words: means over seeds as Markdown, where livi is worse than plain, and what was said."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, Literal

from livi.experiments.rows import Row, spread

Rows = Sequence[Mapping[str, Any]]

PLAIN, OURS = "plain", ("livi", "livi-net")
LEVEL = 0.9


@dataclass(frozen=True)
class Column:
    """A score as a column, and what of it is better: more, less, or to be near 90 %."""

    name: str
    title: str
    better: Literal["higher", "lower", "near"]
    percent: bool = False

    def loss(self, value: float) -> float:
        """How bad a value is."""
        return {"higher": -value, "lower": value, "near": abs(value - LEVEL)}[self.better]

    def told(self, value: float) -> str:
        return f"{100.0 * value:.1f}" if self.percent else f"{value:.3f}"


COLUMNS: dict[str, tuple[Column, ...]] = {
    "classification": (
        Column("nll", "NLL", "lower"),
        Column("accuracy", "accuracy, %", "higher", percent=True),
        Column("ece", "ECE", "lower"),
    ),
    "regression": (
        Column("nll", "NLL", "lower"),
        Column("rmse", "RMSE", "lower"),
        Column("coverage", "in 90 % interval, %", "near", percent=True),
    ),
}
QUANTITIES = {task: (*(column.name for column in columns), "seconds") for task, columns in COLUMNS.items()}
LEGEND = """\
Mean ± standard error over seeds. "worse": livi is worse than plain by more than one standard error, that of the mean
difference over the seeds that both have; of one seed it counts as zero. NLL: mean negative log density of the targets
in their own units, all outputs of a row together, or mean negative log probability of the true class. Lower is better
for NLL, RMSE and ECE; coverage should be near 90 %. s: seconds of training on one thread, and how many times plain's;
those of livi-net do not include training the network that it starts from. –: no result."""


def text(document: Mapping[str, Any]) -> str:
    """All of a document: a table for each task, the verdicts, and the notes."""
    rows: Rows = document["rows"]
    parts = []
    for task, columns in COLUMNS.items():
        some = [row for row in rows if row["task"] == task]
        if some:
            parts += [f"## {task.capitalize()}", table(some, columns)]
            parts += [outputs_table(some)] if any(row["outputs"] for row in some) else []
    said = [*document["notes"], *messages(rows)]
    parts += ["## Verdict", _listed(verdicts(rows))] if verdicts(rows) else []
    return "\n\n".join([*parts, "## Notes", _listed(said), LEGEND])


def summary(rows: Rows) -> list[Row]:
    """For each problem and method: the number of seeds, and mean, sd, min and max over them of every quantity."""
    return [
        {"problem": problem, "method": method, "task": group[0]["task"], "seeds": len(_sound(group))}
        | {name: spread(list(_values(group, name).values())) for name in QUANTITIES[group[0]["task"]]}
        for problem, methods in _grouped(rows).items()
        for method, group in methods.items()
    ]


def table(rows: Rows, columns: Sequence[Column]) -> str:
    """The rows of one task as Markdown."""
    lines = _head(["problem", "method", "seeds", *(column.title for column in columns), "s", "s / plain's"])
    for problem, methods in _grouped(rows).items():
        for method, group in methods.items():
            cells = [_scored(methods, method, column) for column in columns]
            seconds = _values(group, "seconds")
            times = [_told(list(seconds.values()), lambda value: f"{value:.1f}"), _ratio(methods, method)]
            lines.append(_line([problem, method, _count(group), *cells, *times]))
    return "\n".join(lines)


def outputs_table(rows: Rows) -> str:
    """NLL and coverage of each output by itself, of problems with several."""
    lines = _head(["problem", "method", "output", "NLL", "in 90 % interval, %"])
    for problem, methods in _grouped([row for row in rows if row["outputs"]]).items():
        for place in range(len(next(iter(methods.values()))[0]["outputs"])):
            for method, group in methods.items():
                values = {
                    name: [row["outputs"][place][name] for row in group if row["outputs"][place][name] is not None]
                    for name in ("nll", "coverage")
                }
                cells = [
                    _told(values["nll"], lambda value: f"{value:.3f}"),
                    _told(values["coverage"], lambda value: f"{100.0 * value:.1f}"),
                ]
                lines.append(_line([problem, method, str(place + 1), *cells]))
    return "\n".join(lines)


def verdicts(rows: Rows) -> list[str]:
    """For each of livi's methods and each score: on how many problems it is no worse than plain, and where it is."""
    found = []
    for ours in OURS:
        both = {name: methods for name, methods in _grouped(rows).items() if ours in methods and PLAIN in methods}
        results = {name: methods for name, methods in both.items() if _sound(methods[ours]) and _sound(methods[PLAIN])}
        lacking = [name for name in both if name not in results]
        partly = [name for name in results if len(_sound(both[name][ours])) < len(both[name][ours])]
        failures = f"{_named('no result on', lacking)}{_named('some seeds failed on', partly)}"
        for place, what in enumerate(("NLL", "accuracy or RMSE", "ECE or coverage") if both else ()):
            behind = [name for name, methods in results.items() if worse(methods, ours, _column(methods, place))]
            found.append(
                f"{ours} is at least as good as plain in {what} on {len(results) - len(behind)} of {len(both)} "
                f"problems{_named('worse on', behind)}{failures}."
            )
    return found


def worse(methods: Mapping[str, Rows], ours: str, column: Column) -> bool:
    """Whether a method is worse than plain by more than one standard error of the difference over common seeds.

    A score that is not finite is worse than any that is.
    """
    if PLAIN not in methods:
        return False
    one, other = _values(methods[ours], column.name), _values(methods[PLAIN], column.name)
    seeds = {row["seed"] for row in _sound(methods[ours])} & other.keys()
    if seeds - one.keys():
        return True
    differences = [column.loss(one[seed]) - column.loss(other[seed]) for seed in sorted(seeds)]
    return bool(differences) and mean(differences) > _error(differences)


def messages(rows: Rows) -> list[str]:
    """What fits said, warnings and errors, each with the problems and seeds that it concerns."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows:
        for message in _said(row):
            places = found.setdefault((row["method"], message), {})
            places.setdefault(row["problem"], []).append(str(row["seed"]))
    return [f"{method} on {_listed_places(places)}: {message}" for (method, message), places in found.items()]


def line(row: Mapping[str, Any]) -> str:
    """One row in a few words, as it comes."""
    told = f"{row['problem']} {row['method']} seed {row['seed']}: "
    if row["error"] is not None:
        return f"{told}failed: {_first_line(row['error'])}"
    shown = [
        f"{column.title.removesuffix(', %')} {column.told(row[column.name])}{' %' if column.percent else ''}"
        for column in COLUMNS[row["task"]]
        if row[column.name] is not None
    ]
    return told + ", ".join([*shown, f"{row['seconds']:.1f} s"])


# --- parts ----------------------------------------------------------------------------------------


def _said(row: Mapping[str, Any]) -> list[str]:
    """Warnings, an error, and scores that are not finite."""
    if row["error"] is not None:
        return [*map(_first_line, row["warnings"]), f"failed: {_first_line(row['error'])}"]
    names = [column.title.removesuffix(", %") for column in COLUMNS[row["task"]] if row[column.name] is None]
    return [*map(_first_line, row["warnings"]), *([f"not finite: {', '.join(names)}"] if names else [])]


def _scored(methods: Mapping[str, Rows], method: str, column: Column) -> str:
    cell = _told(list(_values(methods[method], column.name).values()), column.told)
    return f"{cell} worse" if method in OURS and worse(methods, method, column) else cell


def _ratio(methods: Mapping[str, Rows], method: str) -> str:
    """Of the seconds of a method and of plain, over the seeds that both have."""
    one, other = _values(methods[method], "seconds"), _values(methods.get(PLAIN, ()), "seconds")
    both = one.keys() & other.keys()
    if not both:
        return "–"
    return f"{sum(one[seed] for seed in both) / max(1e-9, sum(other[seed] for seed in both)):.1f}"


def _told(values: Sequence[float], told: Callable[[float], str]) -> str:
    if not values:
        return "–"
    return told(mean(values)) + (f" ± {told(_error(values))}" if len(values) > 1 else "")


def _error(values: Sequence[float]) -> float:
    """The standard error of a mean; 0 of one value."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _column(methods: Mapping[str, Rows], place: int) -> Column:
    return COLUMNS[methods[PLAIN][0]["task"]][place]


def _grouped(rows: Rows) -> dict[str, dict[str, list[Mapping[str, Any]]]]:
    """Rows by problem and method, in the order in which these appear."""
    groups: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        groups.setdefault(row["problem"], {}).setdefault(row["method"], []).append(row)
    return groups


def _sound(rows: Rows) -> Rows:
    return [row for row in rows if row["error"] is None]


def _values(rows: Rows, name: str) -> dict[int, float]:
    """By seed."""
    return {row["seed"]: row[name] for row in rows if row.get(name) is not None}


def _count(rows: Rows) -> str:
    failed = len(rows) - len(_sound(rows))
    return f"{len(_sound(rows))}" + (f", {failed} failed" if failed else "")


def _listed_places(places: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{problem} ({', '.join(seeds)})" for problem, seeds in places.items())


def _named(what: str, names: Sequence[str]) -> str:
    return f"; {what} {', '.join(names)}" if names else ""


def _first_line(message: str) -> str:
    return message.strip().splitlines()[0]


def _listed(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _head(titles: Sequence[str]) -> list[str]:
    return [_line(titles), f"|{'---|' * len(titles)}"]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
