"""A fit's history as a CSV file that can be read while the fit runs."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from livi.inference.callbacks import Callback, Row, Run
from livi.posterior.storage import replace_file


class CSVLogger(Callback):
    """Writes every logged row to a CSV file: `livi.fit(..., callbacks=[livi.CSVLogger("fit.csv")])`.

    A row is one line, appended whole. At the start, for a new column, and after a divergence that is rolled back, the
    file is replaced atomically by one with all rows so far. A new fit writes a new file; a resumed one continues with
    the rows of its checkpoint. Where a row lacks a number, its cell is empty. Of several processes that fit together
    the first one writes.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._columns: list[str] = []
        self._last = 0.0  # step that was written last

    def on_start(self, run: Run) -> None:
        self._columns, self._last = ["step"], 0.0
        if run.rank == 0:
            self._write(run.history)

    def on_step(self, run: Run) -> None:
        row = run.row
        if row is None or run.rank != 0:
            return
        if row.keys() <= set(self._columns) and row["step"] > self._last:
            with self.path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self._columns, restval="").writerow(row)
            self._last = row["step"]
        else:
            self._write(run.history)

    def _write(self, rows: list[Row]) -> None:
        """A new file in place of the old one."""
        self._columns = list(dict.fromkeys([*self._columns, *(name for row in rows for name in row)]))
        self._last = rows[-1]["step"] if rows else 0.0
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, [text.getvalue().encode()])
