"""Tables of the benchmark on tables as Markdown: means over splits, and on which data sets livi is best or behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from livi.experiments.columns import ACCURACY, COVERAGE, CRPS, ECE, LOG_SCORE, RMSE, SECONDS
from livi.experiments.rows import Rows, by_method, listed
from livi.experiments.scoreboard import Column, Kind, best_of, table

RANGE = (0.85, 0.95)  # where the mean coverage of 90 % intervals should lie
OURS, OUR_VARIANTS = "livi", ("constant", "varying", "network", "conformal")

KIND = Kind(
    "Tables, beside other methods",
    "data",
    "split",
    {
        "regression": (LOG_SCORE, RMSE, CRPS, COVERAGE, SECONDS),
        "classification": (LOG_SCORE, ACCURACY, ECE, COVERAGE, SECONDS),
    },
    {
        "regression": (Column("cell_score", "by cell", "higher", 3), Column("width", "width of the interval")),
        "classification": (Column("set_size", "size of the set", None, 2),),
    },
    listed="data",
)
JUDGED = {"regression": (RMSE, LOG_SCORE), "classification": (ACCURACY, LOG_SCORE)}
LEGEND = """\
The sentences compare livi with all but constant, varying, network and conformal, which are livi too. Log score: mean
log density of the targets in their own units, or mean log probability of the true class. By cell: the same with each
density averaged over what was rounded to the target, which no method can raise by being sure that targets are rounded.
Higher is better for both. Lower is better for RMSE, CRPS and ECE. In 90 %: share of the targets in 90 % intervals or
sets. s: seconds of fit and predictions."""


def text(document: Mapping[str, Any]) -> str:
    """The whole report: notes, a table for each task, and the verdicts."""
    rows: Rows = document["rows"]
    parts = [listed(document["notes"])]
    for task in KIND.columns:
        some = [row for row in rows if row["task"] == task]
        if some:
            parts += [f"## {task.capitalize()}", table(some, KIND, KIND.shown(task), _named), listed(verdicts(some))]
    return "\n\n".join([*parts, KIND.legend(), LEGEND])


def _named(rows: Rows) -> tuple[str, str]:
    """A data set with its size, and a method with the number of rows that it takes if these are fewer."""
    row = rows[0]
    fewer = row["used_rows"] < row["train_rows"]
    method = f"{row['method']}, {row['used_rows']:,} rows" if fewer else row["method"]
    return f"{row['data']} ({row['train_rows']} × {row['features']})", method


def verdicts(rows: Rows) -> list[str]:
    """Sentences on one task: on how many data sets livi is best, where it is not, and where its coverage lies."""
    groups = {
        data: {method: group for method, group in methods.items() if method not in OUR_VARIANTS}
        for data, methods in by_method(rows, "data").items()
        if OURS in methods
    }
    found = [_standing(groups, column) for column in JUDGED[rows[0]["task"]] if _measured(groups, column)]
    covered = {data: _values(methods[OURS], "coverage") for data, methods in groups.items()}
    means = {data: mean(values.values()) for data, values in covered.items() if values}
    if means:
        low, high = RANGE
        outside = [f"{data} ({100 * value:.1f} %)" for data, value in means.items() if not low <= value <= high]
        what = "interval" if rows[0]["task"] == "regression" else "set"
        found.append(
            f"Coverage of livi's 90 % {what}s lies in {100 * low:.0f}–{100 * high:.0f} % on "
            f"{len(means) - len(outside)} of {len(means)} data sets{_with_names('outside', outside)}."
        )
    return found


def best_methods(methods: Mapping[str, Rows], column: Column) -> tuple[str | None, set[str]]:
    """The method with the best mean, and those within one standard error of it; see `scoreboard.best_of`."""
    values = {method: found for method, group in methods.items() if (found := _values(group, column.name))}
    return best_of(values, column.better)


# --- parts ----------------------------------------------------------------------------------------


def _standing(groups: Mapping[str, Mapping[str, Rows]], column: Column) -> str:
    """A sentence on the wins, draws and losses of livi by one quantity."""
    wins: list[str] = []
    draws: list[str] = []
    losses: list[str] = []
    firsts = 0
    for data, methods in groups.items():
        best, tied = best_methods(methods, column)
        if best is None:
            continue
        firsts += best == OURS
        if OURS not in {best, *tied}:
            losses.append(f"{data} ({best})")
        elif tied:
            draws.append(f"{data} ({', '.join(sorted({best, *tied} - {OURS}))})")
        else:
            wins.append(data)
    standing = {"alone": wins, "within one standard error": draws, "behind": losses}
    return (
        f"Best mean {column.title.removesuffix(', %')}: livi on {firsts} of {len(wins) + len(draws) + len(losses)} "
        f"data sets{''.join(_with_names(what, names) for what, names in standing.items())}."
    )


def _measured(groups: Mapping[str, Mapping[str, Rows]], column: Column) -> bool:
    return any(_values(methods[OURS], column.name) for methods in groups.values())


def _with_names(what: str, names: Sequence[str]) -> str:
    return f"; {what}: {', '.join(names)}" if names else ""


def _values(rows: Rows, name: str) -> dict[int, float]:
    """The values of one quantity by split."""
    return {row["split"]: row[name] for row in rows if row.get(name) is not None}
