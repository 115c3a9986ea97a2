"""One file: tensors and JSON in safetensors format, written atomically and checked against a digest when read.

safetensors' own writer is not used: it leaves the file readable by its owner alone, and gives no say over the temporary
file that a killed process leaves behind. Its reader is: what comes from elsewhere is parsed by well-tried code.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from livi.version import __version__

try:
    import fcntl
except ImportError:  # Windows, where nobody can remove a file that is open
    fcntl = None  # type: ignore[assignment]

FORMAT = 1  # of what is in the header; raised when an older livi could misread it
_HEADER_LIMIT = 100_000_000  # safetensors refuses to read longer ones
_META = "livi_meta"  # the JSON: in the header, or as a tensor where it is longer than this
_LONG = 10_000_000
_CODES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
}


class StorageError(ValueError):
    """A file cannot be written or read, or holds something else than was asked for."""


def write(path: str | Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Put tensors and JSON into one file. It is replaced as a whole: after any failure the old one is still there.

    Tensors may share memory, be strided, and live on any device; each is written in full. `meta` must be plain JSON
    (str keys, no tuples, finite numbers); anything richer goes through `flatten_state`.

    Raises:
        StorageError: the folder is missing or unwritable, the disk is full, or the content has no place in the format.
    """
    pieces, text = {name: _piece(name, tensor) for name, tensor in tensors.items()}, _plain(meta)
    if len(text) > _LONG:
        pieces[_META], text = torch.frombuffer(bytearray(text, "ascii"), dtype=torch.uint8), ""
    replace_file(path, chain([_header(pieces, text)], (_bytes(pieces[name]) for name in _order(pieces))))


def replace_file(path: str | Path, pieces: Iterable[Any]) -> None:
    """Put bytes into one file. It is replaced as a whole: after any failure the old one, or none, is still there.

    Raises:
        StorageError: the folder is missing or unwritable, or the disk is full.
    """
    target = _target(path)
    try:
        _sweep(target)
        with _temporary(target) as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
            file.close()  # Windows renames no open file
            os.replace(file.name, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise StorageError(
            f"{path}: expected a folder with room to write in, got {error.strerror or error}; "
            "make room or choose another folder. What was there before is unchanged."
        ) from error


def read(path: str | Path, device: str | torch.device = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, on this device, and the JSON of a file from `write`.

    Raises:
        StorageError: no such file, not from livi, from a newer livi, cut short, or damaged.
    """
    if not Path(path).is_file():
        got = "a folder" if Path(path).is_dir() else "none of that name"
        raise StorageError(f"{path}: expected a file, got {got}; check the path.")
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            header = file.metadata() or {}
            _check_origin(path, header)
            # Clones: what safe_open gives is a view of the file, and changes with it.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        digest = _digest(tensors, header.get("livi_version", ""), header.get(_META, ""))
    except (SafetensorError, OSError, RuntimeError, TypeError, LookupError, AttributeError) as error:
        raise StorageError(f"{path}: {_complaint(path, error)}") from error
    if header.get("livi_sha256") != digest:
        raise StorageError(f"{path}: expected the bytes that were written, got others; copy or save it again.")
    meta = _parsed(path, header.get(_META) or bytes(_bytes(tensors.pop(_META, torch.zeros(0, device="cpu")))))
    return {name: tensor.to(device) for name, tensor in tensors.items()}, meta


# --- writing --------------------------------------------------------------------------------------


def _target(path: str | Path) -> Path:
    target = Path(os.path.realpath(path))  # a link stays, and its target is replaced
    if target.exists() and not target.is_file():
        raise StorageError(f"{path}: expected the name of a file, got a folder or a device; add a file name.")
    if not target.parent.is_dir():
        raise StorageError(f"{path}: expected an existing folder, got {target.parent}; create it first.")
    return target


def _piece(name: str, tensor: Tensor) -> Tensor:
    """The tensor as contiguous memory on the CPU."""
    if name in (_META, "__metadata__") or not name.isprintable():
        raise StorageError(f"tensors: expected printable names, not {_META} or __metadata__, got {name!r}; rename it.")
    if not isinstance(tensor, Tensor):
        raise TypeError(f"tensors[{name!r}]: expected a torch.Tensor, got {type(tensor).__name__}.")
    if tensor.layout != torch.strided or tensor.is_meta or tensor.dtype not in _CODES:
        kind = "meta" if tensor.is_meta else f"{tensor.layout}, {tensor.dtype}"
        raise StorageError(
            f"tensors[{name!r}]: expected a dense tensor of a dtype that safetensors has, got {kind}; "
            "convert it, with `torch.view_as_real` if it is complex."
        )
    return tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()


def _bytes(piece: Tensor) -> Any:
    return piece.reshape(-1).view(torch.uint8).numpy().data


def _order(pieces: Mapping[str, Tensor]) -> list[str]:
    """The order of tensors in the file: by falling element size, so that all are aligned when it is memory-mapped."""
    return sorted(pieces, key=lambda name: (-pieces[name].element_size(), name))


def _header(pieces: Mapping[str, Tensor], text: str) -> bytes:
    entries: dict[str, Any] = {
        "__metadata__": {
            "livi_format": str(FORMAT),
            "livi_version": __version__,
            "livi_sha256": _digest(pieces, __version__, text),
            _META: text,
        }
    }
    start = 0
    for name in _order(pieces):
        stop = start + pieces[name].nbytes
        entries[name] = _entry(pieces[name]) | {"data_offsets": [start, stop]}
        start = stop
    header = json.dumps(entries, separators=(",", ":")).encode("ascii")
    header += b" " * (-len(header) % 8)
    if len(header) > _HEADER_LIMIT:
        raise StorageError(
            f"tensors: expected at most {_HEADER_LIMIT:,} bytes of names, got {len(header):,}; store fewer tensors."
        )
    return len(header).to_bytes(8, "little") + header


def _entry(piece: Tensor) -> dict[str, Any]:
    return {"dtype": _CODES.get(piece.dtype, str(piece.dtype)), "shape": list(piece.shape)}


def _plain(meta: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(dict(meta), allow_nan=False)
        exact = json.loads(text) == dict(meta)
    except (TypeError, ValueError) as error:
        raise StorageError(f"meta: expected plain JSON, got {error}; pass it through flatten_state.") from error
    if not exact:
        raise StorageError(
            "meta: expected str keys and lists, got other keys or tuples; pass it through flatten_state."
        )
    return text


def _digest(tensors: Mapping[str, Tensor], version: str, text: str) -> str:
    """A digest of everything in the file, so that any changed byte is noticed."""
    digest = hashlib.sha256(json.dumps([FORMAT, version, text]).encode("ascii"))
    for name in sorted(tensors):
        digest.update(json.dumps([name, _entry(tensors[name])]).encode("ascii"))
        digest.update(_bytes(tensors[name]))
    return digest.hexdigest()


@contextmanager
def _temporary(target: Path) -> Iterator[BinaryIO]:
    """A new file beside the target, locked while its writer lives; removed in the end unless it became the target."""
    path = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    with ExitStack() as stack:
        file = open(path, "xb")  # noqa: SIM115
        stack.callback(path.unlink, missing_ok=True)
        stack.enter_context(file)
        with suppress(OSError):  # there is none yet, or it is another's
            path.chmod(stat.S_IMODE(target.stat().st_mode))
        if fcntl is not None:  # by a handle of its own, since the writer closes the file before it is renamed
            fcntl.flock(stack.enter_context(open(path, "rb")), fcntl.LOCK_EX)
        yield file


def _sweep(target: Path) -> None:
    """Remove temporary files of this target that killed processes left behind."""
    ours = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}\.tmp")
    for name in os.listdir(target.parent):
        if ours.fullmatch(name):
            with suppress(OSError):  # a living writer's, or gone already
                _remove_abandoned(target.parent / name)


def _remove_abandoned(path: Path) -> None:
    with ExitStack() as stack:
        if fcntl is not None:
            fcntl.flock(stack.enter_context(open(path, "rb")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def _sync_folder(folder: Path) -> None:
    """Make the new name outlive a power cut, where the file system can; the file is complete in any case."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# --- reading --------------------------------------------------------------------------------------


def _check_origin(path: str | Path, header: Mapping[str, str]) -> None:
    if "livi_format" not in header:
        raise StorageError(
            f"{path}: expected a file written by livi, got safetensors without livi's metadata; "
            "for bare weights, use safetensors.torch.load_file."
        )
    if not header["livi_format"].isdecimal() or int(header["livi_format"][:9]) > FORMAT:
        raise StorageError(
            f"{path}: expected format {FORMAT} or older, got {header['livi_format']} written by livi "
            f"{header.get('livi_version')}; this is livi {__version__}: upgrade it."
        )


def _complaint(path: str | Path, error: Exception) -> str:
    """What is wrong with a file that could not be read, judging by its bytes."""
    try:
        with open(path, "rb") as file:
            start, size = file.read(9), os.fstat(file.fileno()).st_size
            length = int.from_bytes(start[:8], "little")
            if len(start) < 9 or length > _HEADER_LIMIT or start[8:] != b"{":
                return f"expected a safetensors file from livi, got {_kind(start)} of {size} bytes; check the path."
            header = start[8:] + file.read(length - 1)
        if size < 8 + length + _end(header):
            return f"expected a complete file, got its first {size} bytes; copy or save it again."
    except OSError as denied:
        return f"expected a readable file, got {denied.strerror}; check its permissions."
    return f"expected a header as livi writes it, got a damaged one ({error}); copy or save it again."


def _kind(start: bytes) -> str:
    if not start:
        return "an empty file"
    return "a pickle or an archive" if start[:1] in (b"\x80", b"P") else "something else"


def _end(header: bytes) -> int:
    """The end of the last tensor according to the header; 0 if that cannot be parsed."""
    try:
        entries = json.loads(header)
        return max((entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"), default=0)
    except (ValueError, TypeError, KeyError, LookupError, RecursionError):
        return 0


def _parsed(path: str | Path, text: str | bytes) -> dict[str, Any]:
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path}: expected JSON in {_META}, got {error}; copy or save it again.") from error
    if not isinstance(meta, dict):
        raise StorageError(f"{path}: expected a JSON object in {_META}, got {type(meta).__name__}; save it again.")
    return meta
