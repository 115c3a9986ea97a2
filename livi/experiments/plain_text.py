"""Tables of the plain benchmark as Markdown: means over seeds, where livi is worse than plain, and warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, Literal

from livi.experiments.rows import Row, Rows, by_method, first_line, spread, succeeded
from livi.experiments.scoreboard import mean_and_error, standard_error

PLAIN, OURS = "plain", ("livi", "livi-net")
LEVEL = 0.9


@dataclass(frozen=True)
class Column:
    """A score shown as a column, and which values are better: higher, lower, or nearer to 90 %."""

    name: str
    title: str
    better: Literal["higher", "lower", "near"]
    percent: bool = False

    def loss(self, value: float) -> float:
        """How bad a value is: lower is better."""
        return {"higher": -value, "lower": value, "near": abs(value - LEVEL)}[self.better]

    def formatted(self, value: float) -> str:
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
    """The whole report: a table for each task, the verdicts, and the notes."""
    rows: Rows = document["rows"]
    parts = []
    for task, columns in COLUMNS.items():
        some = [row for row in rows if row["task"] == task]
        if some:
            parts += [f"## {task.capitalize()}", table(some, columns)]
            parts += [outputs_table(some)] if any(row["outputs"] for row in some) else []
    notes = [*document["notes"], *messages(rows)]
    parts += ["## Verdict", _listed(verdicts(rows))] if verdicts(rows) else []
    return "\n\n".join([*parts, "## Notes", _listed(notes), LEGEND])


def summary(rows: Rows) -> list[Row]:
    """For each problem and method: the number of seeds, and mean, sd, min and max over them of every quantity."""
    return [
        {"problem": problem, "method": method, "task": group[0]["task"], "seeds": len(succeeded(group))}
        | {name: spread(list(_values(group, name).values())) for name in QUANTITIES[group[0]["task"]]}
        for problem, methods in by_method(rows, "problem").items()
        for method, group in methods.items()
    ]


def table(rows: Rows, columns: Sequence[Column]) -> str:
    """The rows of one task as Markdown."""
    lines = _head(["problem", "method", "seeds", *(column.title for column in columns), "s", "s / plain's"])
    for problem, methods in by_method(rows, "problem").items():
        for method, group in methods.items():
            cells = [_scored(methods, method, column) for column in columns]
            seconds = _values(group, "seconds")
            times = [mean_and_error(list(seconds.values()), lambda value: f"{value:.1f}"), _ratio(methods, method)]
            lines.append(_line([problem, method, _count(group), *cells, *times]))
    return "\n".join(lines)


def outputs_table(rows: Rows) -> str:
    """NLL and coverage of each output, for problems with several."""
    lines = _head(["problem", "method", "output", "NLL", "in 90 % interval, %"])
    for problem, methods in by_method([row for row in rows if row["outputs"]], "problem").items():
        for output in range(len(next(iter(methods.values()))[0]["outputs"])):
            for method, group in methods.items():
                values = {
                    name: [row["outputs"][output][name] for row in group if row["outputs"][output][name] is not None]
                    for name in ("nll", "coverage")
                }
                cells = [
                    mean_and_error(values["nll"], lambda value: f"{value:.3f}"),
                    mean_and_error(values["coverage"], lambda value: f"{100.0 * value:.1f}"),
                ]
                lines.append(_line([problem, method, str(output + 1), *cells]))
    return "\n".join(lines)


def verdicts(rows: Rows) -> list[str]:
    """For each of livi's methods and scores: on how many problems it is no worse than plain, and where it is worse."""
    found = []
    for ours in OURS:
        both = {
            name: methods
            for name, methods in by_method(rows, "problem").items()
            if ours in methods and PLAIN in methods
        }
        results = {
            name: methods for name, methods in both.items() if succeeded(methods[ours]) and succeeded(methods[PLAIN])
        }
        lacking = [name for name in both if name not in results]
        partly = [name for name in results if len(succeeded(both[name][ours])) < len(both[name][ours])]
        failures = f"{_named('no result on', lacking)}{_named('some seeds failed on', partly)}"
        for index, what in enumerate(("NLL", "accuracy or RMSE", "ECE or coverage") if both else ()):
            behind = [name for name, methods in results.items() if worse(methods, ours, _column(methods, index))]
            found.append(
                f"{ours} is at least as good as plain in {what} on {len(results) - len(behind)} of {len(both)} "
                f"problems{_named('worse on', behind)}{failures}."
            )
    return found


def worse(methods: Mapping[str, Rows], ours: str, column: Column) -> bool:
    """Whether a method is worse than plain by more than one standard error of the difference over common seeds.

    A score that is not finite counts as worse than any other.
    """
    if PLAIN not in methods:
        return False
    our_values, plain_values = _values(methods[ours], column.name), _values(methods[PLAIN], column.name)
    seeds = {row["seed"] for row in succeeded(methods[ours])} & plain_values.keys()
    if seeds - our_values.keys():
        return True
    differences = [column.loss(our_values[seed]) - column.loss(plain_values[seed]) for seed in sorted(seeds)]
    return bool(differences) and mean(differences) > (standard_error(differences) or 0.0)


def messages(rows: Rows) -> list[str]:
    """The warnings and errors of fits, each with its problems and seeds."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows:
        for message in _messages(row):
            seeds = found.setdefault((row["method"], message), {})
            seeds.setdefault(row["problem"], []).append(str(row["seed"]))
    return [f"{method} on {_by_problem(seeds)}: {message}" for (method, message), seeds in found.items()]


def line(row: Mapping[str, Any]) -> str:
    """One line about a row, for the progress of a run."""
    start = f"{row['problem']} {row['method']} seed {row['seed']}: "
    if row["error"] is not None:
        return f"{start}failed: {first_line(row['error'])}"
    shown = [
        f"{column.title.removesuffix(', %')} {column.formatted(row[column.name])}{' %' if column.percent else ''}"
        for column in COLUMNS[row["task"]]
        if row[column.name] is not None
    ]
    return start + ", ".join([*shown, f"{row['seconds']:.1f} s"])


# --- parts ----------------------------------------------------------------------------------------


def _messages(row: Mapping[str, Any]) -> list[str]:
    """The warnings and the error of a fit, and its scores that are not finite."""
    if row["error"] is not None:
        return [*map(first_line, row["warnings"]), f"failed: {first_line(row['error'])}"]
    names = [column.title.removesuffix(", %") for column in COLUMNS[row["task"]] if row[column.name] is None]
    return [*map(first_line, row["warnings"]), *([f"not finite: {', '.join(names)}"] if names else [])]


def _scored(methods: Mapping[str, Rows], method: str, column: Column) -> str:
    cell = mean_and_error(list(_values(methods[method], column.name).values()), column.formatted)
    return f"{cell} worse" if method in OURS and worse(methods, method, column) else cell


def _ratio(methods: Mapping[str, Rows], method: str) -> str:
    """Seconds of a method divided by those of plain, over the seeds that both have."""
    seconds, plain = _values(methods[method], "seconds"), _values(methods.get(PLAIN, ()), "seconds")
    both = seconds.keys() & plain.keys()
    if not both:
        return "–"
    return f"{sum(seconds[seed] for seed in both) / max(1e-9, sum(plain[seed] for seed in both)):.1f}"


def _column(methods: Mapping[str, Rows], index: int) -> Column:
    return COLUMNS[methods[PLAIN][0]["task"]][index]


def _values(rows: Rows, name: str) -> dict[int, float]:
    """The values of one quantity by seed."""
    return {row["seed"]: row[name] for row in rows if row.get(name) is not None}


def _count(rows: Rows) -> str:
    failed = len(rows) - len(succeeded(rows))
    return f"{len(succeeded(rows))}" + (f", {failed} failed" if failed else "")


def _by_problem(seeds: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{problem} ({', '.join(some)})" for problem, some in seeds.items())


def _named(what: str, names: Sequence[str]) -> str:
    return f"; {what} {', '.join(names)}" if names else ""


def _listed(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _head(titles: Sequence[str]) -> list[str]:
    return [_line(titles), f"|{'---|' * len(titles)}"]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
