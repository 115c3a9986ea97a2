"""Output files of commands: checked before the work begins, and written completely or not at all."""

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
    """Check before the work begins that a file can be written at its end.

    Raises:
        TableError: the file exists and `force` is not set, or is one of the inputs, or its folder cannot be written to.
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


def frames_bytes(frames: Iterable[Any], suffix: str, *, raw_text: bool = False) -> Iterator[bytes]:
    """The content of one .csv (UTF-8) or .parquet file with data frames of the same columns, piece by piece.

    Args:
        raw_text: write text in a CSV file as it is, even if a spreadsheet would run it as a formula. By default such
            text gets a single quote in front, which `read_table` removes. Text in Parquet files is always as it is.
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
        yield sink.take()
    if writer is not None:
        writer.close()
    yield sink.take()


class _Sink(io.RawIOBase):
    """A file object for a writer, from which the bytes written so far can be taken."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        self._position += len(self._pieces[-1])
        return len(self._pieces[-1])

    def take(self) -> bytes:
        """What was written since the last call."""
        found, self._pieces = b"".join(self._pieces), []
        return found


def save_somewhere(save: Callable[[Path], None], path: str | Path) -> tuple[Path, StorageError | None]:
    """Save the result of long work to this file, or if that fails to a new folder that only the user can read.

    That folder is made in the temporary folder, the home folder or the current one, whichever works first. A first
    Ctrl-C while the file is written is taken to mean the work, which is over by now, and ignored; a second one is not.

    Returns:
        The path of the file, and the error if it is not the one asked for.

    Raises:
        StorageError: no attempt succeeded.
    """
    try:
        _save_despite_interrupt(save, Path(path))
        return Path(path), None
    except StorageError as error:
        for folder in (tempfile.gettempdir, Path.home, Path.cwd):
            with suppress(OSError, RuntimeError, StorageError):
                fallback = Path(tempfile.mkdtemp(prefix="livi-", dir=folder())) / Path(path).name
                try:
                    _save_despite_interrupt(save, fallback)
                except StorageError:
                    fallback.parent.rmdir()
                    raise
                return fallback, error
        raise


def _save_despite_interrupt(save: Callable[[Path], None], path: Path) -> None:
    try:
        save(path)
    except KeyboardInterrupt:
        save(path)


def write_frames(path: str | Path, frames: Iterable[Any], *, raw_text: bool = False) -> None:
    """Write data frames with the same columns as CSV or Parquet, by the suffix, with only one in memory at a time.

    An existing file is replaced at once. See `frames_bytes`.
    """
    replace_file(path, frames_bytes(frames, Path(path).suffix.lower(), raw_text=raw_text))
