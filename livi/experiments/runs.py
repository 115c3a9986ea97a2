"""Runs of a benchmark: what is checked of their names, where their file begins, and how they go on with it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from livi import checks
from livi.experiments.deadlines import Deadline
from livi.experiments.machine import machine, versions
from livi.experiments.rows import Row, complete, started
from livi.experiments.spreading import run_all

Job = tuple[str, str, int]  # data, method, seed or split
Say = Callable[[str], None]


def check_names(what: str, names: tuple[str, ...], known: Sequence[str]) -> None:
    """Raise for a name that is not known, or given twice, or if there is none."""
    for name in names:
        if name not in known:
            raise ValueError(f"{what}: expected some of {', '.join(known)}, got {name!r}.")
    if not names or len(set(names)) != len(names):
        raise ValueError(f"{what}: expected different names, got {','.join(names) or 'none'!r}.")


def empty_document(
    experiment: str, config: Any, free: Collection[str] = (), packages: Iterable[str] = ()
) -> dict[str, Any]:
    """What a run writes before its first row.

    Args:
        config: a dataclass.
        free: its fields that say which runs are wanted, not what a run is. They are left out, so that later runs may
            ask for others and add to the same file.
        packages: whose versions matter, besides livi's own.
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
    minutes: float | None = None,
) -> dict[str, Any]:
    """Run what is not yet in the file, adding to it after every fit, and return its content.

    A row with an `error` is tried again where it is wanted, and so is a job for which `fit` gives None.

    Args:
        jobs: fits at a time, each in a process of its own; under torchrun its processes share the fits instead, and
            the first one writes.
        minutes: to stop after, ready to go on.

    Raises:
        ValueError: the file belongs to something else than this empty document.
    """
    checks.positive_int("jobs", jobs)
    until = Deadline.after(minutes)
    path.parent.mkdir(parents=True, exist_ok=True)
    document = started(path, document) | {"notes": notes, "jobs": jobs}
    again = set(wanted)
    document["rows"] = [row for row in document["rows"] if row["error"] is None or key(row) not in again]
    complete(
        path,
        document,
        wanted,
        key=key,
        run=lambda left: run_all(fit, left, jobs, until),
        summary=summary,
        line=line,
        say=say,
    )
    if until.passed():
        say(f"{minutes:g} minutes are over; the same command goes on from here")
    return document


@contextmanager
def listening() -> Iterator[list[warnings.WarningMessage]]:
    """Warnings inside, kept instead of shown; not those of packages about themselves, which come once a process.

    So with torch's about what `vmap` runs row by row: it is for its own developers.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for old in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", old)
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        yield caught
