"""Runs of a benchmark: checks of what is asked for, an empty result file, and the jobs that fill it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from livi import checks
from livi.experiments.deadlines import NO_DEADLINE, Deadline, OutOfTime
from livi.experiments.machine import machine, versions
from livi.experiments.processes import threads
from livi.experiments.rows import Row, complete, load_or_new
from livi.experiments.spreading import run_all

Job = tuple[str, str, int]  # data, method, seed or split
Say = Callable[[str], None]


def all_jobs(places: Iterable[str], methods: Iterable[str], repeats: Iterable[int]) -> list[Job]:
    """Every method at every place, ordered by repeat, so that an interrupted run has every method equally often."""
    return [(place, method, repeat) for repeat, place, method in product(repeats, places, methods)]


def check_names(what: str, names: tuple[str, ...], allowed: Sequence[str]) -> None:
    """Raise for a name that is not allowed or given twice, or if there is none."""
    for name in names:
        if name not in allowed:
            raise ValueError(f"{what}: expected some of {', '.join(allowed)}, got {name!r}.")
    check_different(what, names)


def check_different(what: str, names: tuple[str, ...]) -> None:
    """Raise for a name that is given twice, whose runs would count twice, or if there is none."""
    if not names or len(set(names)) != len(names):
        raise ValueError(f"{what}: expected different names, got {','.join(names) or 'none'!r}.")


def check_seeds(seeds: tuple[int, ...]) -> None:
    """Raise for a seed that is negative or given twice, or if there is none."""
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
        given = ",".join(map(str, seeds)) or "none"
        raise ValueError(f"seeds: expected different numbers from 0 on, got {given}; give each once.")


def check_splits(count: int, first: int) -> None:
    """Raise for a number of splits below 1, or a first one below 0."""
    checks.positive_int("splits", count)
    if first < 0:
        raise ValueError(f"first_split: expected 0 or more, got {first}.")


def empty_document(
    experiment: str, config: Any, free: Collection[str] = (), packages: Iterable[str] = ()
) -> dict[str, Any]:
    """The content of a result file before its first row.

    Args:
        config: a dataclass.
        free: fields of it that only choose which jobs to run. They are left out, so that a later run can choose
            others and add to the same file.
        packages: further packages whose versions are recorded.
    """
    return {
        "experiment": experiment,
        "config": {name: value for name, value in asdict(config).items() if name not in free},
        "versions": versions(packages),
        "machine": machine(),
        "rows": [],
        "summary": [],
    }


def run_jobs(
    path: Path,
    document: dict[str, Any],
    wanted: Sequence[Job],
    fit: Callable[[Job], Row | None],
    *,
    key: Callable[[Row], Job],
    notes: list[str],
    jobs: int,
    summary: Callable[[Sequence[Row]], list[Row]],
    line: Callable[[Row], str],
    say: Say,
    deadline: Deadline = NO_DEADLINE,
    stops_itself: bool = False,
) -> dict[str, Any]:
    """Run the jobs that are not yet in the file, adding to it after every fit, and return its content.

    A wanted job whose row has an `error` is tried again, and so is one for which `fit` returned None or raised
    `OutOfTime`.

    Args:
        document: the content of an empty file, see `empty_document`.
        jobs: number of fits at a time, each in a process of its own; under torchrun its processes share the fits
            instead, and the first one writes.
        line: the text to print about a row.
        deadline: when to stop; the next run continues.
        stops_itself: a fit watches the deadline and ends by itself, so that one in a process is not terminated then.

    Raises:
        ValueError: the file there is one of another benchmark or configuration.
    """
    checks.positive_int("jobs", jobs)
    fit_in_time, until = partial(in_time, fit=fit, deadline=deadline), NO_DEADLINE if stops_itself else deadline
    path.parent.mkdir(parents=True, exist_ok=True)
    document = load_or_new(path, document) | {"notes": notes, "jobs": jobs}
    again = set(wanted)
    document["rows"] = [row for row in document["rows"] if row["error"] is None or key(row) not in again]
    complete(
        path,
        document,
        wanted,
        key=key,
        run=lambda left: run_all(fit_in_time, left, jobs, until),
        summary=summary,
        line=line,
        say=say,
    )
    if deadline.minutes is not None and not again.issubset(map(key, document["rows"])):
        say(f"{deadline.minutes:g} minutes are over; the same command goes on from here")
    return document


def in_time(job: Job, fit: Callable[[Job], Row | None], deadline: Deadline) -> Row | None:
    """The row of a job; None if the deadline passes before its fit begins, or before it ends."""
    if deadline.passed():
        return None
    try:
        return fit(job)
    except OutOfTime:
        return None


def recorded_fit(row: Row, scores: Iterable[str], fit: Callable[[], Row], num_threads: int | None = 1) -> Row:
    """The row of a fit, ready for JSON: what it found, its `whole_seconds`, its `warnings` and its `error`.

    A fit that fails, perhaps in another package, is a row as well, so that the others still run.

    Args:
        row: what was fitted to what.
        scores: what `fit` finds; None for all of it if it fails.
        num_threads: CPU threads of the fit; None for as many as there are.

    Raises:
        OutOfTime: the fit stopped at a deadline; the next run continues it.
    """
    found: Row = dict.fromkeys(scores)
    error: str | None = None
    begun = time.perf_counter()
    with nullcontext() if num_threads is None else threads(num_threads), recorded_warnings() as caught:
        try:
            found |= fit()
        except OutOfTime:
            raise
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
    seconds = time.perf_counter() - begun
    messages = list(dict.fromkeys(f"{warning.category.__name__}: {warning.message}" for warning in caught))
    return row | found | {"whole_seconds": seconds, "warnings": messages, "error": error}


@contextmanager
def recorded_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Record warnings inside instead of showing them, but not those meant for developers.

    These are deprecations, which come only once in a process, and torch's warning about operations that `vmap` runs
    row by row.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for old in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", old)
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        yield caught
