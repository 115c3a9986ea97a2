"""Result files: one row for each fit, written as they come, and continued after an interruption."""

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
Rows = Sequence[Mapping[str, Any]]
Job = TypeVar("Job", bound=Hashable)


def load_or_new(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    """The document that an earlier run with the same `config` and `versions` left at this path, else this empty one.

    Raises:
        ValueError: the file there is something else.
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


def rows_of(paths: Iterable[Path]) -> Iterator[Row]:
    """The rows of these result files, one file after another."""
    for path in paths:
        yield from json.loads(path.read_text(encoding="utf-8"))["rows"]


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
    """Run the jobs that are not yet in document["rows"], writing the whole document after every one.

    Rows are kept in the order of the jobs, whatever the order in which `run` yields them; those of other jobs are last.
    """
    rows: list[Row] = document["rows"]
    order = {job: position for position, job in enumerate(jobs)}
    done = {key(row) for row in rows}
    left = [job for job in jobs if job not in done]
    if done:
        say(f"{path}: going on after {len(jobs) - len(left)} of {len(jobs)} fits")
    begun = time.monotonic()
    for count, found in enumerate(run(left), 1):
        row = _checked(found)
        rows.append(row)
        rows.sort(key=lambda each: order.get(key(each), len(order)))
        document["summary"] = summary(rows)
        write(path, document)
        seconds_left = (len(left) - count) * (time.monotonic() - begun) / count
        estimate = f"; about {in_words(seconds_left)} left" if count < len(left) else ""
        say(f"{len(jobs) - len(left) + count} of {len(jobs)}: {line(row)}{estimate}")


def _checked(row: Row) -> Row:
    """The row; entries with numbers that are not finite become None, and its `error` names them."""
    names = dict.fromkeys(_not_finite(row))
    if row.get("error") is not None or not names:
        return row
    error = f"ArithmeticError: expected finite numbers, got none for {', '.join(names)}."
    return row | dict.fromkeys(names) | {"error": error}


def _not_finite(value: Any, name: str = "") -> Iterator[str]:
    """Names of the row's entries that contain a number that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        yield name
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _not_finite(part, name or str(key))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _not_finite(part, name)


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Write the file as a whole or not at all, so that an interrupted run leaves a valid one."""
    replace_file(path, [json.dumps(document, indent=1, allow_nan=False).encode(), b"\n"])


def succeeded(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """The rows without an error."""
    return [row for row in rows if row.get("error") is None]


def method_of(row: Mapping[str, Any]) -> str:
    """The method of a row, or its variant of one; none where a row is of all methods."""
    return str(row.get("variant", row.get("method", "")))


def by_method(rows: Rows, place: str) -> dict[str, dict[str, list[Mapping[str, Any]]]]:
    """The rows by this entry, such as the data set, and by method, in the order in which these appear."""
    groups: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        groups.setdefault(row[place], {}).setdefault(method_of(row), []).append(row)
    return groups


def listed(sentences: Iterable[str]) -> str:
    """The sentences as a list in Markdown."""
    return "\n".join(f"- {sentence}" for sentence in sentences)


def with_names(what: str, names: Sequence[str]) -> str:
    """The end of a sentence that names some; empty without any.

    >>> with_names("worse on", ["moons", "boston"])
    '; worse on moons, boston'
    """
    return f"; {what} {', '.join(names)}" if names else ""


def first_line(message: str) -> str:
    """The first line of a warning or an error."""
    return (message.strip().splitlines() or ["no words"])[0]


def spread(values: Sequence[float]) -> dict[str, float | None] | None:
    """Mean, standard deviation (None for a single value), smallest and largest; None without values."""
    if not values:
        return None
    sd = stdev(values) if len(values) > 1 else None
    return {"mean": mean(values), "sd": sd, "min": min(values), "max": max(values)}
