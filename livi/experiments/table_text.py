"""Tables of the benchmark on tables as Markdown: means over splits, and on which data sets livi is best or behind."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

from livi.experiments.columns import ACCURACY, COVERAGE, CRPS, ECE, LOG_SCORE, RMSE, SECONDS
from livi.experiments.rows import Rows, listed, with_names
from livi.experiments.scoreboard import Board, Column, Kind, best_of, table

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
    task = rows[0]["task"]
    ours = {row["data"] for row in rows if row["method"] == OURS}
    compared = [row for row in rows if row["data"] in ours and row["method"] not in OUR_VARIANTS]
    found = []
    for column in JUDGED[task]:
        board = KIND.board(compared, column.name)
        found += [_standing(board, column)] if any(OURS in methods for methods in board.values()) else []
    covered = KIND.board(compared, COVERAGE.name)
    means = {data: mean(methods[OURS].values()) for data, methods in covered.items() if OURS in methods}
    if means:
        low, high = RANGE
        outside = [f"{data} ({100 * value:.1f} %)" for data, value in means.items() if not low <= value <= high]
        found.append(
            f"Coverage of livi's 90 % {'interval' if task == 'regression' else 'set'}s lies in "
            f"{100 * low:.0f}–{100 * high:.0f} % on {len(means) - len(outside)} of {len(means)} data sets"
            f"{with_names('outside:', outside)}."
        )
    return found


def _standing(board: Board, column: Column) -> str:
    """A sentence on the wins, draws and losses of livi by one quantity."""
    wins: list[str] = []
    draws: list[str] = []
    losses: list[str] = []
    firsts = 0
    for data, methods in board.items():
        best, tied = best_of(methods, column.better)
        firsts += best == OURS
        if OURS not in {best, *tied}:
            losses.append(f"{data} ({best})")
        elif tied:
            draws.append(f"{data} ({', '.join(sorted({str(best), *tied} - {OURS}))})")
        else:
            wins.append(data)
    standing = {"alone:": wins, "within one standard error:": draws, "behind:": losses}
    return (
        f"Best mean {column.title.removesuffix(', %')}: livi on {firsts} of {len(board)} "
        f"data sets{''.join(with_names(what, names) for what, names in standing.items())}."
    )
