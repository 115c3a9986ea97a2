"""Options of a fit to a table, and checks of whether the table allows them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from livi.tables.content import Task
from livi.tables.estimators.target_models import look_counted
from livi.tables.reading import Table
from livi.tables.values import number, parsed
from livi.tables.wording import and_more

MIN_ROWS = 5
MIN_CALIBRATION_ROWS = 45  # rows: a fifth of them is the 9 that a conformal interval of 90 % needs
_NAMED_COLUMNS = 8  # in a message


@dataclass(frozen=True)
class FitOptions:
    """Options of a fit; None leaves the choice to the estimator or to detection.

    Args:
        task: overrules detection.
        drop, categorical: names of columns to leave out, and to read as categories even if they are numbers.
        use: columns to read even if they look like row numbers.
        missing: words to read as missing values, besides the usual ones.
        validation: share of the rows that is held out and only used to score the model; 0 fits to all.
        seed: of the split and of the fit.
        hidden, activation, steps, budget, components, target_scale, noise, interval: as in `livi.LIVIRegressor`.
        threads: the number of threads of torch.
        diagnose: also diagnose the posterior, which takes seconds.
        progress: show the progress of the fit on stderr.
        explain: also find out what predictions depend on, for a report.
        checkpoint: a file to write now and then, and when the fit is interrupted; if it exists, the fit continues from
            it, bit for bit on a CPU.
    """

    task: Task | None = None
    drop: Sequence[str] = ()
    categorical: Sequence[str] = ()
    use: Sequence[str] = ()
    missing: Sequence[str] = ()
    validation: float = 0.2
    seed: int = 0
    hidden: tuple[int, ...] | None = None
    activation: str | None = None
    steps: int | None = None
    budget: float | None = None
    components: int | None = None
    target_scale: Literal["plain", "log", "count", "auto"] | None = None
    noise: Literal["constant", "varying", "network", "poisson", "negative-binomial", "auto"] | None = None
    interval: Literal["posterior", "conformal"] | None = None
    threads: int | None = None
    diagnose: bool = True
    progress: bool = False
    explain: bool = False
    checkpoint: str | Path | None = None


def check_names(table: Table, target: str, options: FitOptions) -> None:
    for name in (target, *options.drop, *options.categorical, *options.use):
        if name not in table.columns:
            close = difflib.get_close_matches(name, table.columns, 1)
            hint = (
                f"; did you mean {close[0]!r}?"
                if close
                else f"; it has {and_more(list(table.columns)[:8], len(table.columns))}."
            )
            if len(table.columns) == 1:
                only = next(iter(table.columns))
                hint = f"; it has {only} alone; if another character separates the columns, pass --delimiter."
            raise table.error(f"expected a column {name!r}, got none of that name{hint}")
    for name in (*options.drop, *options.categorical):
        if name == target:
            raise table.error("expected a target to keep, got it among the columns to drop or convert.", column=name)
    for option, chosen in (("--categorical", options.categorical), ("--use", options.use)):
        both = [name for name in chosen if name in options.drop]
        if both:
            raise table.error(f"expected --drop or {option}, got both.", column=both[0])


def check_model(table: Table, target: str, options: FitOptions) -> None:
    """Raise TableError if the target cannot have the noise or the scale that were asked for."""
    values, _ = parsed(table.columns[target], number)
    counts = {"poisson", "negative-binomial"}
    if options.noise in counts and options.target_scale in (None, "auto") and not look_counted(values):
        raise table.error(
            f"expected small counts for --noise {options.noise}, got other numbers; pass --target-scale count too if "
            "they are counts, or leave --noise out.",
            column=target,
        )
    if options.target_scale == "log" and not (values > 0).all():
        raise table.error(
            f"expected positive targets for --target-scale log, got {values.min():g}; pass --target-scale plain.",
            row=int(values.argmin()),
            column=target,
        )


def check_size(table: Table, rows: int, options: FitOptions) -> None:
    least = MIN_CALIBRATION_ROWS if options.interval == "conformal" else MIN_ROWS
    if rows < least:
        remedy = "lower --validation or add rows" if rows < len(table) else "add rows"
        why = " for conformal intervals" if options.interval == "conformal" else ""
        raise table.error(f"expected at least {least} rows to fit to{why}, got {rows}; {remedy}.")
