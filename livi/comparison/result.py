"""`Comparison`, which `livi.compare` returns: a table in many forms, a figure and a page."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from livi.experiments.machine import machine, versions
from livi.posterior.posterior import Posterior
from livi.posterior.storage import replace_file
from livi.report.compared import Compared, ranked
from livi.report.comparison_figure import comparison_figure
from livi.report.comparison_page import comparison_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OVER = 1.1  # times the budget, above which a sentence says so
# Shown, in this order, of the scores that a prediction has; `coverage` is the share inside 90 % intervals.
SHOWN = ("rmse", "crps", "coverage", "accuracy", "brier", "ece")


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several methods on one problem: `print` it, or see `figure()` and `save("page.html")`.

    Attributes:
        rows: best negative log likelihood first; at the end those that failed, with the reason as `trouble`.
        posteriors: what was fitted, by name.
        gradients: the budget of each method.
        num_train, num_held_out: examples.
        source: the file and the column that was predicted, where it was a table.
    """

    rows: tuple[Compared, ...]
    posteriors: dict[str, Posterior]
    gradients: int
    num_train: int
    num_held_out: int
    seed: int
    source: tuple[str, str] | None = None

    @property
    def best(self) -> str:
        """The name of the method with the smallest negative log likelihood."""
        return self.rows[0].name

    def to_dict(self) -> dict[str, Any]:
        """Everything that is shown, as JSON-able values."""
        return {
            "gradients": self.gradients,
            "num_train": self.num_train,
            "num_held_out": self.num_held_out,
            "seed": self.seed,
            "methods": {row.name: self._facts(row) for row in self.rows},
        }

    def to_document(self) -> dict[str, Any]:
        """The comparison in the form of a benchmark's results, for `livi report`: a row for each method."""
        facts = self.to_dict()
        of = ", ".join(self.source or ("data",))
        return {
            "experiment": "compare",
            "config": {name: facts[name] for name in ("gradients", "num_train", "num_held_out")} | {"data": of},
            "source": self.source,
            "versions": versions(),
            "machine": machine(),
            "rows": [
                {"data": of, "method": name, "seed": self.seed, "error": values["trouble"]}
                | {key: value for key, value in values.items() if key not in ("title", "trouble")}
                for name, values in facts["methods"].items()
            ],
            "notes": self.words(),
        }

    def to_csv(self) -> str:
        """CSV with a line for each method."""
        facts = {row.name: self._facts(row) for row in self.rows}
        names = list(dict.fromkeys(name for values in facts.values() for name in values))
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", *names])
        for name, values in facts.items():
            writer.writerow([name, *("" if values.get(column) is None else values[column] for column in names)])
        return file.getvalue()

    def to_markdown(self) -> str:
        head, *lines = self.cells()
        rule = ["---", *["---:"] * (len(head) - 1)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *lines))

    def cells(self) -> list[list[str]]:
        """The table as text: a heading and a line for each method that has a result."""
        done = [row for row in self.rows if not row.trouble]
        shown = [name for name in SHOWN if any(name in row.scores for row in done)]
        head = ["method", "nll", "behind the best", *shown, "fit, s", "predict, s", "gradients"]
        return [head, *([self._title(row), *self._numbers(row, shown)] for row in done)]

    def figure(self) -> Figure:
        """Scores, calibration and time, side by side.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return comparison_figure(self.rows)

    def save(self, path: str | Path) -> None:
        """Write the page (.html), table (.csv, .md, .json) or figure (.png, .pdf, .svg) to a file, as a whole.

        Raises:
            ImportError: matplotlib, which page and figure need, is not installed.
            StorageError: the folder is missing or cannot be written to.
        """
        suffix = Path(path).suffix.lower()
        texts = {".html": self.to_html, ".csv": self.to_csv, ".md": self.to_markdown, ".txt": self.__str__}
        texts[".json"] = lambda: json.dumps(self.to_document(), indent=1, allow_nan=False) + "\n"
        if suffix in texts:
            content = texts[suffix]().encode("utf-8")
        elif suffix in (".png", ".pdf", ".svg"):
            file = io.BytesIO()
            self.figure().savefig(file, format=suffix[1:])
            content = file.getvalue()
        else:
            known = ", ".join([*texts, ".png", ".pdf", ".svg"])
            raise ValueError(f"path: expected a name that ends in one of {known}, got {str(path)!r}.")
        replace_file(path, [content])

    def to_html(self) -> str:
        """The comparison as one HTML page."""
        return comparison_page(self.rows, self.cells(), self.words())

    def words(self) -> list[str]:
        """Sentences on how the comparison was made, and what the marks in the table mean."""
        return [
            f"{self.num_held_out:,} held-out examples, {self.num_train:,} to fit to, seed {self.seed}. Each method had "
            f"a budget of {self.gradients:,} gradients of the log joint density, of one weight vector on one batch "
            f"each; how many it took, and seconds, are in the table.{self._on_budgets()}",
            "nll is the mean negative log likelihood in nats with its standard error, lower is better; behind the "
            "best, the mean difference example by example with its own. * marks what is not clearly behind the best: "
            f"by no more than two standard errors.{self._on_stars()}{self._on_coverage()}",
        ]

    def __str__(self) -> str:
        rows = self.cells()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        rows.insert(1, ["-" * width for width in widths])
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        failed = [f"{row.title}: {row.trouble}" for row in self.rows if row.trouble]
        return "\n".join([*lines, "", *self.words(), *(["", *failed] if failed else [])])

    def _on_budgets(self) -> str:
        """A sentence on methods that took clearly more than the budget, because they need a minimum of draws."""
        over = [row for row in self.rows if (row.gradients or 0) > OVER * self.gradients]
        took = " and ".join(f"{row.title} {(row.gradients or 0) / self.gradients:.1f} times as many" for row in over)
        return f" More than the budget took: {took}." if over else ""

    def _on_stars(self) -> str:
        """Sentences on what the * in the table cannot tell."""
        best, *others = [row for row in self.rows if not row.trouble]
        equal = [row for row in others if row.as_good_as(best)]
        unsure = [row.title for row in equal if row.behind(best)[1] > best.nll_error]
        alone = " That is all of them: none is clearly the best." if others and len(equal) == len(others) else ""
        large = f" Of {' and '.join(unsure)} the error is so large that these examples cannot tell." if unsure else ""
        return alone + large

    def _on_coverage(self) -> str:
        return " coverage is of 90 % intervals." if any("coverage" in row.scores for row in self.rows) else ""

    def _facts(self, row: Compared) -> dict[str, Any]:
        facts: dict[str, Any] = {"title": row.title, "trouble": row.trouble or None}
        if not row.trouble:
            difference, error = row.behind(self.rows[0])
            facts |= row.scores | {"nll_standard_error": row.nll_error}
            facts |= {"nll_behind": difference, "nll_behind_standard_error": error}
            facts |= {"seconds": row.seconds, "prediction_seconds": row.prediction_seconds, "gradients": row.gradients}
        return facts

    def _title(self, row: Compared) -> str:
        return row.title + (" *" if row.as_good_as(self.rows[0]) else "")

    def _numbers(self, row: Compared, shown: Sequence[str]) -> list[str]:
        difference, error = row.behind(self.rows[0])
        behind = "–" if row is self.rows[0] else f"{difference:.3f} ± {error:.3f}"
        values = [_number(name, row.scores.get(name, math.nan)) for name in shown]
        gradients = "–" if row.gradients is None else f"{row.gradients:,}"
        seconds = map(_seconds, (row.seconds, row.prediction_seconds))
        return [f"{row.scores['nll']:.3f} ± {row.nll_error:.3f}", behind, *values, *seconds, gradients]


def comparison_of(
    rows: Sequence[Compared], posteriors: dict[str, Posterior], gradients: int, num_train: int, num_held: int, seed: int
) -> Comparison:
    """The comparison of these rows, ranked.

    Raises:
        ValueError: no method has a result.
    """
    ordered = ranked(rows)
    if all(row.trouble for row in ordered):
        reasons = " ".join(f"{row.title}: {row.trouble}" for row in ordered)
        raise ValueError(f"compare: expected one method with a result, got none. {reasons}")
    return Comparison(tuple(ordered), posteriors, gradients, num_train, num_held, seed)


def _number(name: str, value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.1%}" if name in ("coverage", "accuracy") else f"{value:.4g}"


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
