"""Rows of words as a table of plain text."""

from __future__ import annotations

from collections.abc import Sequence


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows as aligned columns, the third of which, of numbers, is aligned to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [rows[0], tuple("-" * width for width in widths), *rows[1:]]
    return "\n".join("  ".join(_cell(i, cell, widths[i]) for i, cell in enumerate(row)).rstrip() for row in lines)


def _cell(column: int, cell: str, width: int) -> str:
    return cell.rjust(width) if column == 2 else cell.ljust(width)
