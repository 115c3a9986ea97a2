"""`Schema`: the target and columns of a model's table and how to read them, as saved with the model in JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from livi.tables.content import ColumnFacts, Task
from livi.tables.notation import Notation
from livi.tables.reading import Decimal, TableError

Kind = Literal["numeric", "date", "categorical"]
MISSING_CATEGORY = "(missing)"


@dataclass(frozen=True)
class Column:
    """A column that the model reads.

    Args:
        missing: the number of missing values among the rows fitted to. If there were any, a numeric column or date gets
            a second feature that is 1 where the value is missing, and a categorical one a category for missing values.
        median: replaces a missing number (days since 1970 for a date); 0 for a categorical column.
        categories: of a categorical column, most frequent first.
        notation: how its numbers are written, if not plainly.
        reach: the range, with a margin, of a numeric column or date in the rows fitted to; None for a categorical
            column and in old files.
    """

    name: str
    kind: Kind
    missing: int = 0
    median: float = 0.0
    categories: tuple[str, ...] = ()
    notation: Notation | None = None
    reach: tuple[float, float] | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that encode this column."""
        if self.kind == "categorical":
            names = [*self.categories, *([MISSING_CATEGORY] if self.missing else [])]
            return tuple(f"{self.name}={name}" for name in names)
        return (self.name, f"{self.name} is missing") if self.missing else (self.name,)

    @property
    def facts(self) -> ColumnFacts:
        words = [f"{len(self.categories)} categories"] if self.kind == "categorical" else []
        words += [f"in {self.notation.unit}"] if self.notation and self.notation.unit else []
        words += [f"{self.missing} missing"] if self.missing else []
        return ColumnFacts(self.name, self.kind, ", ".join(words))


@dataclass(frozen=True)
class Dropped:
    """A column that the model does not read, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class Schema:
    """The target, its classes (none for regression), and the columns in the order of their features.

    Args:
        notation: how the numbers of the target are written, if not plainly.
        decimal: the decimal sign in the file of the fit.
        missing: words that are missing values, besides the usual ones.
    """

    target: str
    task: Task
    columns: tuple[Column, ...]
    classes: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    notation: Notation | None = None
    decimal: Decimal = "point"
    missing: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(feature for column in self.columns for feature in column.features)

    @property
    def column_facts(self) -> tuple[ColumnFacts, ...]:
        left_out = (ColumnFacts(column.name, "dropped", column.reason) for column in self.dropped)
        return (*(column.facts for column in self.columns), *left_out)

    def describe(self) -> str:
        """The columns in words: "5 numeric, 1 categorical; dropped: id"."""
        counts = {
            kind: sum(column.kind == kind for column in self.columns) for kind in ("numeric", "date", "categorical")
        }
        words = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        return words + (f"; dropped: {', '.join(column.name for column in self.dropped)}" if self.dropped else "")

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        for column in found["columns"]:
            column["categories"] = list(column["categories"])
            column["reach"] = None if column["reach"] is None else list(column["reach"])
        return found | {name: list(found[name]) for name in ("columns", "classes", "dropped", "missing")}

    @classmethod
    def from_json(cls, stored: Any) -> Schema:
        """The schema that `to_json` wrote.

        Raises:
            TableError: `stored` is not such a schema.
        """
        try:
            columns = tuple(_column(column) for column in stored["columns"])
            dropped = tuple(Dropped(str(entry["name"]), str(entry["reason"])) for entry in stored["dropped"])
            classes = tuple(str(name) for name in stored["classes"])
            schema = cls(
                str(stored["target"]),
                stored["task"],
                columns,
                classes,
                dropped,
                Notation.from_json(stored.get("notation")),
                stored.get("decimal", "point"),
                tuple(str(word) for word in stored.get("missing", ())),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TableError(f"a schema that cannot be read ({type(error).__name__}: {error}).") from error
        if schema.decimal not in ("point", "comma"):
            raise TableError(f"a schema with the decimal {schema.decimal!r}.")
        if schema.task not in ("regression", "classification") or (schema.task == "classification") != bool(classes):
            raise TableError(f"a schema of the task {schema.task!r} with {len(classes)} classes.")
        return schema


def _column(stored: Any) -> Column:
    kind, median, missing = stored["kind"], float(stored["median"]), stored["missing"]
    if kind not in ("numeric", "date", "categorical") or not math.isfinite(median) or not isinstance(missing, int):
        raise ValueError(f"column {stored['name']!r}: kind {kind!r}, median {median}, missing {missing!r}")
    categories = tuple(str(name) for name in stored["categories"])
    notation, reach = Notation.from_json(stored.get("notation")), _reach(stored.get("reach"))
    return Column(str(stored["name"]), kind, missing, median, categories, notation, reach)


def _reach(stored: Any) -> tuple[float, float] | None:
    if stored is None:
        return None
    low, high = map(float, stored)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"a column from {low} to {high}")
    return low, high
