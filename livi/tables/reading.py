"""Reading of CSV and Parquet files as tables that know each row's line, so that errors can name row and column."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np
from numpy.typing import NDArray

from livi.tables.formulas import unprotected
from livi.tables.values import Cells, clean, texts, with_point

DELIMITERS = (",", ";", "\t")
Decimal = Literal["point", "comma"]
_PARQUET = b"PAR1"
_FOREIGN = {
    b"\x1f\x8b": "a gzip file; unpack it first",
    b"PK\x03\x04": "an archive or a spreadsheet; export it as CSV",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet; export it as CSV",
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
}
_LONGEST_MARK = max(map(len, (_PARQUET, *_FOREIGN)))
_NO_UTF8 = re.compile("[\udc80-\udcff]")  # surrogateescape's characters for bytes that are not UTF-8
_MAX_EXACT_INTEGER = 2**53  # float64 represents every whole number up to this one
_HEADER_LINES = 20  # lines after the header's first from which the delimiter is guessed, as quoted names may span lines


class TableError(ValueError):
    """Raised for data that cannot be used. The message names the file, and the row and column if there is one."""


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length. Cells are text ("" is missing) or numbers (NaN is missing).

    Args:
        name: of the file, for messages.
        columns: cells by column name, in the file's order.
        lines: for each row, the line of a CSV file that it starts on (the header is line 1), or its number, from 1, in
            a Parquet file or data frame.
        notes: on what was left out in reading.
        decimal: the decimal sign in the file; cells always have points.
        whole: names of columns with an integer type.
        gap_words: words such as NA that were read as missing, by column.
    """

    name: str
    columns: Mapping[str, Cells]
    lines: NDArray[np.int64]  # (n,)
    notes: tuple[str, ...] = field(default=())
    decimal: Decimal = "point"
    whole: frozenset[str] = frozenset()
    gap_words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lines)

    def rows(self, places: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Table:
        """A table of some of the rows."""
        chosen = {name: cells[places] for name, cells in self.columns.items()}
        return replace(self, columns=chosen, lines=self.lines[places])

    def error(self, text: str, *, row: int | None = None, column: str | None = None) -> TableError:
        """An error that names file, row and column; `row` is an index into the table, shown as the file's line."""
        place = [self.name]
        place += [] if row is None else [f"row {self.lines[row]}"]
        place += [] if column is None else [f"column {column!r}"]
        return TableError(f"{', '.join(place)}: {text}")

    @classmethod
    def from_frame(cls, frame: Any, name: str = "table") -> Table:
        """A pandas DataFrame as a table, without its index and without columns of lists, bytes or complex numbers."""
        names = [str(column).strip() for column in frame.columns]
        _check_names(name, names)
        cells: dict[str, Cells] = {}
        words: dict[str, tuple[str, ...]] = {}
        notes = list(_note_unnamed(names))
        whole = frozenset(column for place, column in enumerate(names) if frame.dtypes.iloc[place].kind in "iu")
        for place, column in enumerate(names):
            unusable = _unusable(frame.iloc[:, place])
            if column and unusable:
                notes.append(f"left out: column {column!r}, which holds {unusable}, neither numbers nor text")
            elif column:
                cells[column] = _cells(frame.iloc[:, place])
                words[column] = _gap_words(frame.iloc[:, place], cells[column])
        return cls(name, cells, np.arange(1, len(frame) + 1), tuple(notes), whole=whole, gap_words=words)


def read_table(path: str | Path, *, delimiter: str | None = None, decimal: Decimal = "point") -> Table:
    """Read a CSV file (UTF-8, a header, one record a line) or a Parquet file.

    Parquet is recognised by its first bytes or by the suffix .parquet or .pq; everything else is read as CSV. Fields
    may be quoted, and then contain delimiters and line breaks. Empty lines are skipped. Columns without a name, as an
    index or a trailing delimiter leaves them, are left out with a note. Blanks around cells and names are removed.

    Args:
        delimiter: one character; by default comma, semicolon or tab, whichever splits the header into most fields.
        decimal: the decimal sign in a CSV file. With "comma", points separate thousands.

    Raises:
        TableError: the file cannot be read as a table; with the row if there is one.
        ImportError: the file is Parquet, but pyarrow is not installed.
    """
    (table,) = read_parts(path, None, delimiter=delimiter, decimal=decimal)
    return table


def read_parts(
    path: str | Path, rows: int | None, *, delimiter: str | None = None, decimal: Decimal = "point"
) -> Iterator[Table]:
    """`read_table` with this many rows at a time, in memory that does not grow with the file; None reads all at once.

    An error in the file is raised when its row is reached, after the parts before it.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            begins = file.peek(_LONGEST_MARK)
            if begins.startswith(_PARQUET):
                yield from _parquet_parts(path, rows)
                return
            if path.suffix.lower() in (".parquet", ".pq"):
                raise TableError(
                    f"{path.name}: expected a Parquet file, got something else; rename it to .csv if it is one."
                )
            for mark, kind in _FOREIGN.items():
                if begins.startswith(mark):
                    raise TableError(f"{path.name}: expected a CSV or Parquet file, got {kind}.")
            with io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="") as text:
                for table in _csv_parts(path.name, text, rows, delimiter):
                    yield table if decimal == "point" else _with_points(table)
    except IsADirectoryError as error:
        raise TableError(f"{path}: expected a file, got a folder; add a file name.") from error
    except OSError as error:
        raise TableError(f"{path}: expected a readable file, got: {error.strerror}; check the path.") from error
    except ValueError as error:  # a zero byte in the path
        if isinstance(error, TableError):
            raise
        raise TableError(f"{path}: expected a readable file, got: {error}; check the path.") from error


def one_ahead(parts: Iterator[Table]) -> Iterator[Table]:
    """Yield the parts; while one is in use, another thread reads the next."""
    with ThreadPoolExecutor(1) as reader:
        upcoming = reader.submit(next, parts, None)
        while (part := upcoming.result()) is not None:
            upcoming = reader.submit(next, parts, None)
            yield part


# --- CSV ------------------------------------------------------------------------------------------


def _csv_parts(name: str, text: TextIO, rows: int | None, delimiter: str | None) -> Iterator[Table]:
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n '):
        raise TableError(f"delimiter: expected one character such as ; or a tab, got {delimiter!r}.")
    lines = _lines(name, text)
    first_lines = []
    for line in lines:
        first_lines.append(line)
        if line.strip():
            break
    else:
        raise TableError(f"{name}: expected a header and rows, got an empty file.")
    first_lines += itertools.islice(lines, _HEADER_LINES)
    records = _records(name, itertools.chain(first_lines, lines), delimiter or _guessed_delimiter("".join(first_lines)))
    _, header = next(records, (0, []))
    names = [unprotected(column.strip()) for column in header]
    _check_names(name, names)
    part = list(itertools.islice(records, rows))
    if not part:
        raise TableError(f"{name}: expected rows below the header, got none.")
    while part:
        yield _csv_table(name, names, part)
        part = list(itertools.islice(records, rows))


def _csv_table(name: str, names: list[str], records: list[tuple[int, list[str]]]) -> Table:
    columns = zip(*(record for _, record in records), strict=True)
    cells: dict[str, Cells] = {}
    words: dict[str, tuple[str, ...]] = {}
    for column, values in zip(names, columns, strict=True):
        cells[column] = texts([unprotected(clean(value)) for value in values])
        words[column] = _gap_words(values, cells[column])
    cells.pop("", None)
    lines = np.array([line for line, _ in records], np.int64)
    return Table(name, cells, lines, _note_unnamed(names), gap_words=words)


def _lines(name: str, text: TextIO) -> Iterator[str]:
    """Yield the lines; raise TableError for bytes that are not UTF-8 text."""
    for row, line in enumerate(text, 1):
        wrong = None if line.isascii() else _NO_UTF8.search(line)
        if wrong:
            raise TableError(
                f"{name}, row {row}: expected UTF-8 text, got the byte 0x{ord(wrong[0]) - 0xDC00:02x}; "
                "save the file as UTF-8 (iconv -f latin1 -t utf-8)."
            )
        if "\0" in line:
            raise TableError(f"{name}, row {row}: expected text, got a zero byte; is it a CSV file in UTF-8?")
        yield line


def _with_points(table: Table) -> Table:
    """The table with points in place of decimal commas."""
    columns: dict[str, Cells] = {}
    for name, cells in table.columns.items():
        found = [with_point(text) for text in cells.tolist()]
        if None in found:
            row = found.index(None)
            raise table.error(
                f"expected a decimal comma, got {cells[row]!r}; pass --decimal point.", row=row, column=name
            )
        columns[name] = texts([text or "" for text in found])
    return replace(table, columns=columns, decimal="comma")


def _records(name: str, lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the header and the records, each with the line on which it starts."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
    line, width = 1, 0
    try:
        for record in reader:
            if any(record[:1]) or len(record) > 1:
                width = width or len(record)
                if len(record) != width:
                    raise TableError(
                        f"{name}, row {line}: expected {width} values as in the header, got {len(record)}; "
                        "correct the row, or set --delimiter if it is another one."
                    )
                yield line, record
            line = reader.line_num + 1
    except csv.Error as error:
        raise TableError(f"{name}, row {line}: expected quoted CSV fields that end, got: {error}.") from error


def _guessed_delimiter(text: str) -> str:
    """The delimiter that splits the header into most fields; a comma where none does."""
    counts = []
    for delimiter in DELIMITERS:
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
            counts.append(len(next(record for record in reader if any(record))))
        except (csv.Error, StopIteration):
            counts.append(0)
    return DELIMITERS[counts.index(max(counts))]


# --- Parquet and data frames ----------------------------------------------------------------------


def _parquet_parts(path: Path, rows: int | None) -> Iterator[Table]:
    name = path.name
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(f'{name}: Parquet files need pyarrow: pip install "livi[parquet]", or convert to CSV.') from (
            error
        )
    rows_read = 0
    try:
        with parquet.ParquetFile(path) as content:
            names = [column.strip() for column in content.schema_arrow.names]
            _check_names(name, names)
            index = re.compile(r"__index_level_\d+__")
            columns = [place for place, column in enumerate(names) if not index.fullmatch(column)]
            whole = {names[i] for i in columns if pyarrow.types.is_integer(content.schema_arrow.field(i).type)}
            parts = [content.read()] if rows is None else map(_one_batch, content.iter_batches(rows))
            for part in parts:
                frame = part.select(columns).to_pandas(ignore_metadata=True)
                if not len(frame.columns) or not len(frame):
                    break
                table = Table.from_frame(frame, name)
                yield replace(table, lines=rows_read + table.lines, whole=frozenset(whole))
                rows_read += len(frame)
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"{name}: expected a Parquet file, got a damaged one ({_first_line(error)}).") from error
    if not rows_read:
        raise TableError(f"{name}: expected columns and rows, got none.")


def _one_batch(batch: Any) -> Any:
    import pyarrow

    return pyarrow.Table.from_batches([batch])


def _unusable(series: Any) -> str:
    """The kind of values in a column that are neither numbers nor text; "" for a usable column."""
    if series.dtype.kind == "c":
        return "complex numbers"
    if series.dtype != object:
        return ""
    foreign = (bytes, dict, list, tuple, set, np.ndarray)
    return next((type(value).__name__ for value in series if isinstance(value, foreign)), "")


def _cells(series: Any) -> Cells:
    """A column of a data frame as cells: numbers stay numbers, dates become ISO text, durations days, all else text.

    Whole numbers too large for float64 to represent exactly, such as long identifiers, become text too.
    """
    missing = series.isna().to_numpy()
    if series.dtype.kind == "m":
        days: Cells = series.dt.total_seconds().to_numpy(np.float64) / 86400.0
        return days
    if series.dtype.kind == "f" or (series.dtype.kind in "iu" and _exact_in_float64(series)):
        numbers: Cells = series.astype("object").where(~missing, np.nan).to_numpy().astype(np.float64)
        return numbers
    return texts(["" if gone else _text(value) for value, gone in zip(series, missing, strict=True)])


def _exact_in_float64(series: Any) -> bool:
    """Whether float64 represents all these whole numbers exactly."""
    return bool(series.isna().all()) or max(abs(int(series.min())), abs(int(series.max()))) <= _MAX_EXACT_INTEGER


def _text(value: Any) -> str:
    isoformat: Callable[[], str] | None = getattr(value, "isoformat", None)
    return clean(str(value) if isoformat is None else isoformat())


def as_series(table: Table, name: str) -> Any:
    """A column of a table as a pandas Series: text, whole numbers or floating-point numbers, with missing values."""
    import pandas as pd

    cells = table.columns[name]
    if cells.dtype == object:
        return pd.Series([text or None for text in cells.tolist()], dtype=object)
    return pd.Series(cells).astype("Int64") if name in table.whole else pd.Series(cells)


# --- both -----------------------------------------------------------------------------------------


def _check_names(name: str, names: list[str]) -> None:
    seen: set[str] = set()
    for column in names:
        if column and column in seen:
            raise TableError(f"{name}: expected different column names, got {column!r} twice; rename one.")
        seen.add(column)
    if not seen - {""}:
        raise TableError(f"{name}: expected a header with column names, got none.")


def _gap_words(values: Iterable[Any], cells: Cells) -> tuple[str, ...]:
    """The words in a column that were read as missing."""
    if cells.dtype != object:
        return ()
    gaps = {value for value, cell in zip(values, cells, strict=True) if not cell and isinstance(value, str)}
    return tuple(sorted({value.strip() for value in gaps} - {""}))


def _note_unnamed(names: list[str]) -> tuple[str, ...]:
    unnamed = [str(place) for place, column in enumerate(names, 1) if not column]
    return (f"left out: column {', '.join(unnamed)} of the file, without a name",) if unnamed else ()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
