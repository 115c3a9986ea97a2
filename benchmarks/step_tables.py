"""The step benchmark's rows as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

HEAD = (
    "| network, weights | way | S | ms | / plain | network, generator, entropy, rest (ms) | GB, step | GB, fit | "
    "/ plain | planned / taken: time, memory |\n|---|---|---|---|---|---|---|---|---|---|"
)


def text(document: Mapping[str, Any]) -> str:
    """All rows in order, and what to know about them."""
    rows = document["rows"]
    lines = [_line(row, plain_of(rows, row["network"])) for row in rows]
    prevented = [f"- {row['network']}, {row['way']}: {row['prevented']}" for row in rows if row["prevented"]]
    eager = [f"- {said}" for row in rows for said in _refused(row)]
    return "\n".join([HEAD, *lines, "", *prevented, *eager, *document.get("notes", [])])


def plain_of(rows: Sequence[Row], network: str) -> Row | None:
    """The plain step that a network's other rows are compared with: recorded, on a GPU."""
    return next((row for row in rows if row["network"] == network and row["way"] == "plain" and works(row)), None)


def works(row: Row) -> bool:
    return row["prevented"] is None


def over_plain(row: Row, plain: Row | None, what: str) -> float | None:
    """A number of a row as a multiple of the plain step's."""
    if plain is None or not works(row) or not plain.get(what) or row.get(what) is None:
        return None
    return float(row[what]) / float(plain[what])


def split(row: Row) -> dict[str, float]:
    """Where the seconds of livi's steps go, on average; the rest are batches, rows of history and the like."""
    parts = {name: float(row[f"{name}_seconds"]) for name in ("network", "generator", "entropy")}
    return parts | {"rest": max(0.0, float(row["seconds"]) - sum(parts.values()))}


def _line(row: Row, plain: Row | None) -> str:
    weights = None if plain is None else plain.get("weights")
    head = f"| {row['network']}{'' if weights is None else f', {weights:,}'} | {row['way']} | {row['samples']} | "
    if not works(row):
        return head + "– |" * 7
    parts = ", ".join(f"{1e3 * value:.2f}" for value in split(row).values()) if "entropy_seconds" in row else "–"
    time = f"{1e3 * row['seconds']:.2f}"
    if row.get("captured_seconds"):
        time = f"{1e3 * row['captured_seconds']:.2f} recorded, {1e3 * row['eager_seconds']:.2f} eager"
    cells = [
        time,
        _number(over_plain(row, plain, "seconds")),
        parts,
        _gigabytes(row.get("step_memory")),
        _gigabytes(row.get("memory")),
        _number(over_plain(row, plain, "memory")),
        _planned(row),
    ]
    return head + " | ".join(cells) + " |"


def _planned(row: Row) -> str:
    if "planned_seconds" not in row:
        return "–"
    memory = row["planned_memory"] / row["memory"] if row.get("memory") else None
    return f"{row['planned_seconds'] / row['seconds']:.2f}, {_number(memory)}"


def _refused(row: Row) -> list[str]:
    """Steps that were not replayed, and why."""
    head = f"{row['network']}, {row['way']}, S = {row['samples']}: steps with the entropy's"
    return [f"{head} {part} run eagerly: {why}" for part, why in (row.get("refused") or {}).items()]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _gigabytes(count: int | None) -> str:
    return "–" if count is None else f"{count / 1e9:.3f}"
