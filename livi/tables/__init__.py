"""Models of CSV and Parquet files: columns in, predictions with uncertainty out.

Reading and reporting need pandas at most; `livi.tables.fitting` and `livi.tables.model` need scikit-learn.
"""

from livi.tables.content import ClassificationRows, Content, RegressionRows
from livi.tables.output import check_output, frames_bytes, save_somewhere, write_frames
from livi.tables.reading import Table, TableError, one_ahead, read_parts, read_table

__all__ = [
    "ClassificationRows",
    "Content",
    "RegressionRows",
    "Table",
    "TableError",
    "check_output",
    "frames_bytes",
    "one_ahead",
    "read_parts",
    "read_table",
    "save_somewhere",
    "write_frames",
]
