"""Independent fits, spread over the ranks that torchrun started, over processes of this machine, or run in a loop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import TypeVar

from livi.experiments.deadlines import NO_DEADLINE, Deadline
from livi.experiments.processes import side_by_side
from livi.experiments.rows import Row
from livi.inference.ranks import Group, apart, joined

Job = TypeVar("Job")

PAUSE = 0.2  # seconds between checks for rows of other ranks


def run_all(
    fit: Callable[[Job], Row | None], jobs: Sequence[Job], count: int = 1, until: Deadline = NO_DEADLINE
) -> Iterator[Row]:
    """Yield rows as they come; under torchrun the first rank yields all of them, and the others none.

    Args:
        fit: returns a job's row, or None for no row.
        count: processes to start, if there are no other ranks.
        until: when to stop: no further fit begins, and fits in processes that were started here are terminated.
    """
    ranks = joined()
    if isinstance(ranks, Group):
        yield from _over_ranks(fit, ranks.agreed(list(jobs)), ranks, until)
    elif count > 1:
        yield from side_by_side(fit, jobs, count, until)
    else:
        begun = takewhile(lambda _: not until.passed(), jobs)
        yield from (row for job in begun if (row := fit(job)) is not None)


def first_rank() -> bool:
    """Whether this process is the one that writes files and prints."""
    return joined().first


def _over_ranks(fit: Callable[[Job], Row | None], jobs: Sequence[Job], ranks: Group, until: Deadline) -> Iterator[Row]:
    """Each rank takes the next job when it is free; rows are collected through the store that all ranks share.

    A job has no row if its fit raises, which ends that rank, or if its turn comes after the deadline.
    """
    store = ranks.store(f"jobs {ranks.agreed(time.time())}")
    missing = set(range(len(jobs)))

    def new_rows() -> Iterator[Row]:
        for index in sorted(missing):
            if store.check([f"row {index}"]):
                missing.remove(index)
                row = json.loads(store.get(f"row {index}"))
                if row is not None:
                    yield row

    while (index := store.add("taken", 1) - 1) < len(jobs):
        row: Row | None = None
        try:
            if not until.passed():
                with apart():
                    row = fit(jobs[index])
        finally:
            store.set(f"row {index}", json.dumps(row))
        if ranks.first:
            yield from new_rows()
    while ranks.first and missing:
        yield from new_rows()
        time.sleep(PAUSE)
