"""Results of many fits in one file: a row a fit, written as they come, and gone on with after an interruption."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, TypeVar

from livi.durations import in_words
from livi.posterior.storage import replace_file

Row = dict[str, Any]
Job = TypeVar("Job", bound=Hashable)


def started(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    """This empty document, or the one that an earlier run with the same `config` and `versions` left.

    Raises:
        ValueError: the file there belongs to something else.
    """
    document = json.loads(json.dumps(document))
    if not path.exists():
        return document
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        same = all(found[part] == document[part] for part in ("config", "versions"))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: expected a file of this benchmark, got something else; move it away.") from error
    if not same:
        raise ValueError(
            f"{path}: expected results of the same configuration and versions to go on with, got others; "
            "choose another folder, or move the file away."
        )
    return found


def complete(
    path: Path,
    document: dict[str, Any],
    jobs: Sequence[Job],
    *,
    key: Callable[[Row], Job],
    run: Callable[[Sequence[Job]], Iterable[Row]],
    summary: Callable[[Sequence[Row]], list[Row]],
    line: Callable[[Row], str],
    say: Callable[[str], None],
) -> None:
    """Run the jobs that are not yet in document["rows"], writing the whole to the path after every one.

    Rows stand in the order of the jobs, in whatever order `run` gives them, and those of other jobs behind them.
    """
    rows: list[Row] = document["rows"]
    places = {job: place for place, job in enumerate(jobs)}
    done = {key(row) for row in rows}
    left = [job for job in jobs if job not in done]
    if done:
        say(f"{path}: going on after {len(jobs) - len(left)} of {len(jobs)} fits")
    begun = time.monotonic()
    for count, found in enumerate(run(left), 1):
        row = _sound(found)
        rows.append(row)
        rows.sort(key=lambda one: places.get(key(one), len(places)))
        document["summary"] = summary(rows)
        write(path, document)
        rest = (len(left) - count) * (time.monotonic() - begun) / count
        further = f"; about {in_words(rest)} left" if count < len(left) else ""
        say(f"{len(jobs) - len(left) + count} of {len(jobs)}: {line(row)}{further}")


def _sound(row: Row) -> Row:
    """The row, or where it has numbers that are none, which no table could show, one that says so."""
    places = dict.fromkeys(_not_finite(row))
    if row.get("error") is not None or not places:
        return row
    error = f"ArithmeticError: expected finite numbers, got none for {', '.join(places)}."
    return row | dict.fromkeys(places) | {"error": error}


def _not_finite(value: Any, name: str = "") -> Iterator[str]:
    """Names of the row's entries in which there is such a number."""
    if isinstance(value, float) and not math.isfinite(value):
        yield name
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _not_finite(part, name or str(key))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _not_finite(part, name)


def write(path: Path, document: Mapping[str, Any]) -> None:
    """As a whole or not at all: an interrupted run leaves a valid file."""
    replace_file(path, [json.dumps(document, indent=1, allow_nan=False).encode(), b"\n"])


def spread(values: Sequence[float]) -> dict[str, float | None] | None:
    """Mean, standard deviation (None of one value), smallest and largest; None of none."""
    if not values:
        return None
    sd = stdev(values) if len(values) > 1 else None
    return {"mean": mean(values), "sd": sd, "min": min(values), "max": max(values)}
