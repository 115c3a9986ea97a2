"""The entropy benchmark's rows as two Markdown tables: `python -m benchmarks.entropy_tables entropy.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

Row = dict[str, object]
Column = tuple[str, Callable[[Row], str]]


def _number(name: str, form: str, scale: float = 1.0) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        value = row.get(name)
        return "–" if value is None else format(scale * float(value), form)

    return show


HEAD: list[Column] = [("noise", lambda row: str(row["noise"])), ("estimator", lambda row: str(row["estimator"]))]
COST: list[Column] = [
    *HEAD,
    ("seconds", _number("seconds", ".3g")),
    ("passes", _number("pass_ratio", ".0f")),
    ("value only, s", _number("seconds_value", ".3g")),
    ("peak MB", _number("peak_bytes", ",.0f", 1e-6)),
    ("bytes/(d+m)", _number("bytes_per_entry", ",.0f")),
    ("products", _number("products", ".0f")),
]
ACCURACY: list[Column] = [
    *HEAD,
    ("error, nats", _number("error_nats", "+.3g")),
    ("rms, %", _number("error_percent", ".2g")),
    ("gradient cos", _number("gradient_cosine", ".3f")),
    ("gradient error", _number("gradient_error", ".2g")),
    ("s.e.", _number("standard_error", ".2g")),
    ("truncation", _number("truncation", ".1g")),
    ("residual", _number("residual", ".1g")),
    ("converged", lambda row: "yes" if row["converged"] else "no"),
]


def render(rows: list[Row]) -> str:
    """A heading for each problem, then what it cost and how good it was. Cases left out are named under the tables."""
    parts = []
    for name in dict.fromkeys(str(row["problem"]) for row in rows):
        mine = [row for row in rows if row["problem"] == name and not row.get("same_as_default")]
        done = [row for row in mine if "skipped" not in row]
        first = mine[0]
        parts.append(
            f"### {name}: d = {first['d']:,}, m = {first['m']:,}\n\n"
            f"{first['generator_weights']:,} generator weights; one forward and backward pass takes "
            f"{1e3 * min(float(row['pass_seconds']) for row in mine):.3g} ms."
        )
        exact = {row["noise"]: row["half_log_det"] for row in done if "half_log_det" in row}
        if exact:
            values = ", ".join(f"{value:,.1f} nats at noise {noise}" for noise, value in exact.items())
            parts[-1] += f" Half the exact log-determinant: {values}."
        parts += [_table(done, COST), _table(done, ACCURACY)]
        reasons: dict[tuple[object, object], list[str]] = {}
        for row in mine:
            if "skipped" in row:
                reasons.setdefault((row["estimator"], row["skipped"]), []).append(str(row["noise"]))
        parts += [f"Left out: {who}, noise {' and '.join(noises)}: {why}." for (who, why), noises in reasons.items()]
    return "\n\n".join(parts)


def _table(rows: list[Row], columns: list[Column]) -> str:
    cells = [[title for title, _ in columns], *([show(row) for _, show in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]

    def text(line: list[str]) -> str:
        named, counted = list(zip(line, widths, strict=True))[:2], list(zip(line, widths, strict=True))[2:]
        return "| " + " | ".join([*(c.ljust(w) for c, w in named), *(c.rjust(w) for c, w in counted)]) + " |"

    rule = "|" + "|".join("-" * (w + 2) if i < 2 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([text(cells[0]), rule, *map(text, cells[1:])])


if __name__ == "__main__":
    print(render(json.loads(Path(sys.argv[1]).read_text())["rows"]))
