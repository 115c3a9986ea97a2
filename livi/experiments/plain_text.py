"""Tables of the plain benchmark as Markdown: means over seeds, where livi is worse than plain, and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

from livi.experiments.columns import ACCURACY, COVERAGE, ECE, NLL, RMSE, SECONDS
from livi.experiments.rows import Rows, by_method, listed, succeeded, with_names
from livi.experiments.scoreboard import Column, Kind, standard_error, table

PLAIN, OURS = "plain", ("livi", "livi-net")
LEVEL = 0.9


KIND = Kind(
    "livi beside the plain network that it starts from",
    "problem",
    "seed",
    {"regression": (NLL, RMSE, COVERAGE, SECONDS), "classification": (NLL, ACCURACY, ECE, SECONDS)},
    listed="only",
)
JUDGED = 3  # the first columns of each task, in which livi is compared with plain
TIMES_PLAIN = Column("times_plain", "s / plain's", None, 1)
LEGEND = """\
Worse: livi is worse than plain by more than one standard error, that of the mean difference over the seeds that both
have; of one seed it counts as zero. NLL: mean negative log density of the targets in their own units, all outputs of a
row together, or mean negative log probability of the true class. Lower is better for NLL, RMSE and ECE; coverage should
be near 90 %. s: seconds of training on one thread, and how many times plain's; those of livi-net do not include
training the network that it starts from."""


def text(document: Mapping[str, Any]) -> str:
    """The whole report: a table for each task, the verdicts, and the notes."""
    rows: Rows = document["rows"]
    parts = []
    for task in KIND.columns:
        some = [row for row in rows if row["task"] == task]
        if some:
            parts += [f"## {task.capitalize()}", task_table(some, task)]
            parts += [outputs_table(some)] if any(row["outputs"] for row in some) else []
    notes = [*document["notes"], *messages(rows)]
    parts += ["## Verdict", listed(verdicts(rows))] if verdicts(rows) else []
    return "\n\n".join([*parts, "## Notes", listed(notes), KIND.legend(), LEGEND])


def task_table(rows: Rows, task: str) -> str:
    """The rows of one task, with seconds in those of plain under the same seed."""
    plain = {(row["problem"], row["seed"]): row["seconds"] for row in succeeded(rows) if row["method"] == PLAIN}
    timed = [row | {"times_plain": _times(row, plain.get((row["problem"], row["seed"])))} for row in map(dict, rows)]
    return table(timed, KIND, (*KIND.shown(task), TIMES_PLAIN))


def outputs_table(rows: Rows) -> str:
    """NLL and coverage of each output, for problems with several."""
    apart = [
        dict(row) | output | {"problem": f"{row['problem']}, output {number}"}
        for row in succeeded(rows)
        for number, output in enumerate(row["outputs"] or (), 1)
    ]
    return table(apart, KIND, (NLL, COVERAGE))


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
        failures = f"{with_names('no result on', lacking)}{with_names('some seeds failed on', partly)}"
        for index, what in enumerate(("NLL", "accuracy or RMSE", "ECE or coverage") if both else ()):
            behind = [
                name
                for name, methods in results.items()
                if worse(methods, ours, KIND.columns[methods[PLAIN][0]["task"]][index])
            ]
            found.append(
                f"{ours} is at least as good as plain in {what} on {len(results) - len(behind)} of {len(both)} "
                f"problems{with_names('worse on', behind)}{failures}."
            )
    return found


def worse(methods: Mapping[str, Rows], ours: str, column: Column) -> bool:
    """Whether a method is worse than plain by more than one standard error of the difference over common seeds.

    A score that is not finite counts as worse than any other.
    """
    if PLAIN not in methods:
        return False
    our_values, plain_values = KIND.values(methods[ours], column.name), KIND.values(methods[PLAIN], column.name)
    seeds = {row["seed"] for row in succeeded(methods[ours])} & plain_values.keys()
    if seeds - our_values.keys():
        return True
    differences = [_loss(column, our_values[seed]) - _loss(column, plain_values[seed]) for seed in sorted(seeds)]
    return bool(differences) and mean(differences) > (standard_error(differences) or 0.0)


def messages(rows: Rows) -> list[str]:
    """The warnings and errors of fits, and scores that are not finite, each with its problems and seeds."""
    return KIND.messages([dict(row) | {"warnings": [*row["warnings"], *_not_finite(row)]} for row in rows])


# --- parts ----------------------------------------------------------------------------------------


def _not_finite(row: Mapping[str, Any]) -> list[str]:
    columns = KIND.columns[row["task"]][:JUDGED] if row["error"] is None else ()
    names = [column.title.removesuffix(", %") for column in columns if row[column.name] is None]
    return [f"not finite: {', '.join(names)}"] if names else []


def _loss(column: Column, value: float) -> float:
    """How bad a value is: lower is better. Coverage is worse the further it is from 90 %."""
    return {"higher": -value, "lower": value}.get(column.better or "", abs(value - LEVEL))


def _times(row: Mapping[str, Any], plain: float | None) -> float | None:
    return row["seconds"] / max(1e-9, plain) if row["seconds"] is not None and plain is not None else None
