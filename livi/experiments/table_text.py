"""Tables of the benchmark on tables as Markdown: means over splits, and on which data sets livi is best or behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from livi.experiments.rows import Row, Rows, by_method, spread, succeeded
from livi.experiments.scoreboard import Column, best_of, decimals

COVERAGE = (0.85, 0.95)  # where the mean coverage of 90 % intervals should lie
OURS, OUR_VARIANTS = "livi", ("constant", "varying", "network", "conformal")

COLUMNS: dict[str, tuple[Column, ...]] = {
    "regression": (
        Column("rmse", "RMSE", "lower"),
        Column("log_score", "log score", "higher", 3),
        Column("cell_score", "by cell", "higher", 3),
        Column("crps", "CRPS", "lower"),
        Column("coverage", "in 90 % interval, %", None, 1, percent=True),
        Column("width", "its width"),
        Column("seconds", "s", None, 1),
    ),
    "classification": (
        Column("accuracy", "accuracy, %", "higher", 1, percent=True),
        Column("log_score", "log score", "higher", 3),
        Column("ece", "ECE", "lower", 3),
        Column("coverage", "in 90 % set, %", None, 1, percent=True),
        Column("set_size", "its size", None, 2),
        Column("seconds", "s", None, 1),
    ),
}
QUANTITIES = {task: tuple(column.name for column in columns) for task, columns in COLUMNS.items()}
LEGEND = """\
Mean ± standard deviation over splits. Bold: the best mean of a data set, and every other within one standard error of
it, that of the difference over the splits. The sentences compare livi with all but constant, varying, network and
conformal, which are livi too. Log score: mean log density of the targets in their own units, or mean log probability of
the true class. By cell: the same with each density averaged over what was rounded to the target, which no method can
raise by being sure that targets are rounded. Higher is better for both. Lower is better for RMSE, CRPS and ECE. s:
seconds of fit and predictions. –: there is none, or no finite one."""


def text(document: Mapping[str, Any]) -> str:
    """The whole report: notes, a table for each task, and the verdicts."""
    rows: Rows = document["rows"]
    parts = ["\n".join(f"- {note}" for note in document["notes"])]
    for task in COLUMNS:
        some = [row for row in rows if row["task"] == task]
        if some:
            parts += [f"## {task.capitalize()}", table(some), "\n".join(f"- {verdict}" for verdict in verdicts(some))]
    return "\n\n".join([*parts, LEGEND])


def summary(rows: Rows) -> list[Row]:
    """For each data set and method: the number of splits, and mean, sd, min and max over them of every quantity."""
    return [
        {"data": data, "method": method, "task": group[0]["task"], "splits": len(succeeded(group))}
        | {name: spread(list(_values(group, name).values())) for name in QUANTITIES[group[0]["task"]]}
        for data, methods in by_method(rows, "data").items()
        for method, group in methods.items()
    ]


def table(rows: Rows) -> str:
    """The rows of one task as Markdown."""
    columns = COLUMNS[rows[0]["task"]]
    titles = ["data", "method", "splits", *(column.title for column in columns)]
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for data, methods in by_method(rows, "data").items():
        cells = [_cells(methods, column) for column in columns]
        for method, group in methods.items():
            first = group[0]
            name = f"{data} ({first['train_rows']} × {first['features']})"
            fewer = first["used_rows"] < first["train_rows"]
            label = f"{method}, {first['used_rows']:,} rows" if fewer else method
            failed = len(group) - len(succeeded(group))
            count = f"{len(succeeded(group))}" + (f", {failed} failed" if failed else "")
            lines.append(f"| {' | '.join([name, label, count, *(column[method] for column in cells)])} |")
    return "\n".join(lines)


def verdicts(rows: Rows) -> list[str]:
    """Sentences on one task: on how many data sets livi is best, where it is not, and where its coverage lies."""
    columns = COLUMNS[rows[0]["task"]]
    groups = {
        data: {method: group for method, group in methods.items() if method not in OUR_VARIANTS}
        for data, methods in by_method(rows, "data").items()
        if OURS in methods
    }
    found = [_standing(groups, column) for column in columns[:2] if _measured(groups, column)]
    covered = {data: _values(methods[OURS], "coverage") for data, methods in groups.items()}
    means = {data: mean(values.values()) for data, values in covered.items() if values}
    if means:
        low, high = COVERAGE
        outside = [f"{data} ({100 * value:.1f} %)" for data, value in means.items() if not low <= value <= high]
        what = "interval" if rows[0]["task"] == "regression" else "set"
        found.append(
            f"Coverage of livi's 90 % {what}s lies in {100 * low:.0f}–{100 * high:.0f} % on "
            f"{len(means) - len(outside)} of {len(means)} data sets{_listed('outside', outside)}."
        )
    return found


def best_methods(methods: Mapping[str, Rows], column: Column) -> tuple[str | None, set[str]]:
    """The method with the best mean, and those within one standard error of it; see `scoreboard.best_of`."""
    values = {method: found for method, group in methods.items() if (found := _values(group, column.name))}
    return best_of(values, column.better)


def line(row: Mapping[str, Any]) -> str:
    """One line about a row, for the progress of a run."""
    start = f"{row['data']} {row['method']} split {row['split']}: "
    if row["error"] is not None:
        return f"{start}{row['error'].splitlines()[0]}"
    shown = [column for column in COLUMNS[row["task"]] if row[column.name] is not None]
    return start + ", ".join(
        f"{column.title.removesuffix(', %')} {_shown(row[column.name], column)}" for column in shown
    )


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
    return (
        f"Best mean {column.title.removesuffix(', %')}: livi on {firsts} of {len(wins) + len(draws) + len(losses)} "
        f"data sets{_listed('alone', wins)}{_listed('within one standard error', draws)}{_listed('behind', losses)}."
    )


def _measured(groups: Mapping[str, Mapping[str, Rows]], column: Column) -> bool:
    return any(_values(methods[OURS], column.name) for methods in groups.values())


def _listed(what: str, names: Sequence[str]) -> str:
    return f"; {what}: {', '.join(names)}" if names else ""


def _values(rows: Rows, name: str) -> dict[int, float]:
    """The values of one quantity by split."""
    return {row["split"]: row[name] for row in rows if row.get(name) is not None}


def _cells(methods: Mapping[str, Rows], column: Column) -> dict[str, str]:
    """A cell for each method, all with equally many decimals."""
    spreads = {method: spread(list(_values(group, column.name).values())) for method, group in methods.items()}
    digits = decimals((found["mean"] for found in spreads.values() if found and found["mean"] is not None), column)
    best, tied = best_methods(methods, column)
    return {
        method: _cell(found, column, digits, bold=method == best or method in tied) for method, found in spreads.items()
    }


def _cell(found: Mapping[str, float | None] | None, column: Column, digits: int, *, bold: bool) -> str:
    if found is None or found["mean"] is None:
        return "–"
    factor = 100.0 if column.percent else 1.0
    middle = f"{factor * found['mean']:.{digits}f}"
    middle = f"**{middle}**" if bold else middle
    return middle if found["sd"] is None else f"{middle} ± {factor * found['sd']:.{digits}f}"


def _shown(value: float, column: Column) -> str:
    digits = decimals([value], column)
    return f"{100 * value:.{digits}f} %" if column.percent else f"{value:.{digits}f}"
