"""Tables from lists, and functions to pass as `say`."""

import numpy as np

from livi.tables import Table
from livi.tables.values import texts


def table(**columns):
    """A table from lists of text or numbers; the first row is on line 2."""
    cells = {
        name: texts(values) if any(isinstance(value, str) for value in values) else np.array(values, float)
        for name, values in columns.items()
    }
    return Table("some.csv", cells, np.arange(2, 2 + len(next(iter(cells.values())))))


def silent(_):
    """A `say` that ignores messages."""


def refuse(text):
    """A `say` that allows no message."""
    raise AssertionError(f"said: {text}")
