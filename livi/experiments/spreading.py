"""Independent fits spread over what there is: ranks that torchrun started, processes of this machine, or one loop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import TypeVar

from livi.experiments.deadlines import FOR_EVER, Deadline
from livi.experiments.processes import side_by_side
from livi.experiments.rows import Row
from livi.inference.ranks import Group, apart, joined

Job = TypeVar("Job")

PAUSE = 0.2  # seconds between two looks for rows of other ranks


def run_all(
    fit: Callable[[Job], Row | None], jobs: Sequence[Job], count: int = 1, until: Deadline = FOR_EVER
) -> Iterator[Row]:
    """Rows as they come. Of several ranks, the first one gets them all, and the others none.

    Args:
        fit: gives a job's row, or None for none.
        count: processes to start for it, where there are no other ranks.
        until: when to begin no further fit; those of processes that were started for it are given up then.
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
    """Whether this process is the one to write and speak."""
    return joined().first


def _over_ranks(fit: Callable[[Job], Row | None], jobs: Sequence[Job], ranks: Group, until: Deadline) -> Iterator[Row]:
    """Every rank takes the next job whenever it is free; rows meet in the store that all ranks share.

    A job that ends in an error, which is that rank's, has no row, nor has one whose turn comes too late.
    """
    store = ranks.store(f"jobs {ranks.agreed(time.time())}")
    missing = set(range(len(jobs)))

    def arrived() -> Iterator[Row]:
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
            yield from arrived()
    while ranks.first and missing:
        yield from arrived()
        time.sleep(PAUSE)
