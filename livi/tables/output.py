"""Files that commands write: checked before the work begins, written whole or not at all."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from livi.posterior.storage import StorageError, replace_file
from livi.tables.formulas import protected_frame
from livi.tables.reading import TableError


def check_output(path: str | Path, *, force: bool = False, inputs: Iterable[str | Path] = ()) -> None:
    """Find out before the work whether a file can be written at the end of it.

    Raises:
        TableError: it exists and `force` is not set, is one of the inputs, or its folder is missing or unwritable.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir() or str(path).endswith(os.sep):
        raise TableError(f"{path}: expected the name of a file to write, got a folder; add a file name.")
    if any(target == Path(os.path.realpath(entry)) for entry in inputs):
        raise TableError(f"{path}: expected another file than those that are read or written besides; rename it.")
    if target.exists() and not target.is_file():
        raise TableError(f"{path}: expected the name of a file to write, got a device; choose another name.")
    if target.exists() and not force:
        raise TableError(f"{path}: expected a new file, got one that exists; pass --force to replace it.")
    if not target.parent.is_dir():
        raise TableError(f"{path}: expected an existing folder, got {target.parent}; create it first.")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise TableError(f"{path}: expected a folder to write in, got {target.parent}, which is not; choose another.")


def frame_bytes(frame: Any, suffix: str, *, raw_text: bool = False) -> bytes:
    """A data frame as the content of a .csv (UTF-8) or .parquet file; see `frames_bytes`."""
    return b"".join(frames_bytes([frame], suffix, raw_text=raw_text))


def frames_bytes(frames: Iterable[Any], suffix: str, *, raw_text: bool = False) -> Iterator[bytes]:
    """Data frames with the same columns as the content of one file, .csv (UTF-8) or .parquet, piece by piece.

    Args:
        raw_text: leave text in a CSV file as it is, even if a spreadsheet would run it as a formula; else a single
            quote in front makes it text again, which `read_table` takes away. Parquet files are left as they are.
    """
    if suffix != ".csv":
        yield from _parquet_bytes(frames)
        return
    for place, frame in enumerate(frames):
        written = frame if raw_text else protected_frame(frame)
        yield bytes(written.to_csv(index=False, header=place == 0, lineterminator="\n"), "utf-8")


def _parquet_bytes(frames: Iterable[Any]) -> Iterator[bytes]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError('Parquet files need pyarrow: pip install "livi[parquet]", or write a .csv file.') from error
    sink, writer = _Sink(), None
    for frame in frames:
        if writer is None:
            first = pyarrow.Schema.from_pandas(frame, preserve_index=False)
            text = [field.with_type(pyarrow.string()) if field.type == pyarrow.null() else field for field in first]
            writer = parquet.ParquetWriter(sink, pyarrow.schema(text, first.metadata))
        writer.write_table(pyarrow.Table.from_pandas(frame, writer.schema, preserve_index=False))
        yield sink.taken()
    if writer is not None:
        writer.close()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """A file for a writer that hands over what was written, piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._place = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        self._place += len(self._pieces[-1])
        return len(self._pieces[-1])

    def taken(self) -> bytes:
        found, self._pieces = b"".join(self._pieces), []
        return found


def save_somewhere(save: Callable[[Path], None], path: str | Path) -> tuple[Path, StorageError | None]:
    """Write what took long to make: to this file, or where that fails to a new folder, which only the user can read.

    Tried are the temporary folder, the user's own and the current one. Ctrl-C while it is written is taken to mean the
    work that is over by now; the second one is obeyed.

    Returns:
        Where it is, and why it is not where it should be.

    Raises:
        StorageError: it can be written nowhere.
    """
    try:
        _patiently(save, Path(path))
        return Path(path), None
    except StorageError as error:
        for folder in (tempfile.gettempdir, Path.home, Path.cwd):
            with suppress(OSError, RuntimeError, StorageError):
                kept = Path(tempfile.mkdtemp(prefix="livi-", dir=folder())) / Path(path).name
                try:
                    _patiently(save, kept)
                except StorageError:
                    kept.parent.rmdir()
                    raise
                return kept, error
        raise


def _patiently(save: Callable[[Path], None], path: Path) -> None:
    try:
        save(path)
    except KeyboardInterrupt:
        save(path)


def write_frame(path: str | Path, frame: Any, *, raw_text: bool = False) -> None:
    """Write a data frame as CSV or Parquet, by the suffix; the file is replaced as a whole. See `frames_bytes`."""
    write_frames(path, [frame], raw_text=raw_text)


def write_frames(path: str | Path, frames: Iterable[Any], *, raw_text: bool = False) -> None:
    """Likewise data frames with the same columns, one behind the other, in the memory of one."""
    replace_file(path, frames_bytes(frames, Path(path).suffix.lower(), raw_text=raw_text))
