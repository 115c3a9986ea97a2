"""Readers of the formats in which images are published. They return bytes (n, c, h, w), and labels if there are any.

SVHN's .mat files need scipy, and single image files Pillow; npz files, which `livi data pack` writes, need neither.
"""

from __future__ import annotations

import gzip
import io
import math
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # (n, c, h, w)
Labels = NDArray[np.int64]  # (n,)

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp"}
_UNSIGNED_BYTES = 8  # the type code of idx files; published images have no other
# What numpy raises of a file that is no npz file, of one that is a single array (TypeError), and of a damaged one.
_NOT_NPZ = (KeyError, IndexError, TypeError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes in the format of MNIST: two zeros, a type code, the number of axes, their lengths, the data.

    http://yann.lecun.com/exdb/mnist/ describes it. A name that ends in .gz is decompressed.

    Raises:
        ValueError: the file is something else, or cut short.
    """
    content = path.read_bytes()
    try:
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (EOFError, OSError, zlib.error) as error:
        raise _damaged(path, "a gzip file", str(error)) from error
    axes = content[3] if len(content) > 3 else 0
    head = 4 + 4 * axes
    if content[:3] != bytes([0, 0, _UNSIGNED_BYTES]) or len(content) < head:
        raise _damaged(path, "an idx file of bytes", f"one that begins with {content[:4].hex(' ') or 'nothing'}")
    shape = np.frombuffer(content, ">u4", axes, offset=4).astype(int)
    if len(content) - head != math.prod(shape):
        raise _damaged(path, f"{math.prod(shape):,} numbers", f"{len(content) - head:,}")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def read_npz(path: Path, name: str | None = None) -> NDArray[np.uint8]:
    """One array of bytes from an npz file: the one of this name, or the first."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            chosen = arrays.files[0] if name is None else name
            array = arrays[chosen]
    except _NOT_NPZ as error:
        raise _damaged(path, f"an npz file with {name or 'an array'}", str(error)) from error
    if array.dtype.kind not in "iu" or (array.size and (array.min() < 0 or array.max() > 255)):
        raise _damaged(path, "whole numbers from 0 to 255", f"{array.dtype}")
    numbers: NDArray[np.uint8] = array.astype(np.uint8)
    return numbers


def npz_names(path: Path) -> list[str]:
    """The names of the arrays in an npz file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return list(arrays.files)
    except _NOT_NPZ as error:
        raise _damaged(path, "an npz file", str(error)) from error


def read_cifar(paths: list[Path], label_bytes: int) -> tuple[Pixels, Labels]:
    """Images of 3 x 32 x 32 bytes, each after one label (CIFAR-10), or two, of which the second is used (CIFAR-100).

    https://www.cs.toronto.edu/~kriz/cifar.html describes both.
    """
    size = label_bytes + 3 * 32 * 32
    parts = []
    for path in paths:
        content = np.frombuffer(path.read_bytes(), np.uint8)
        if not len(content) or len(content) % size:
            raise _damaged(path, f"a multiple of {size:,} bytes", f"{len(content):,}")
        parts.append(content.reshape(-1, size))
    rows = np.concatenate(parts)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1].astype(np.int64)


def read_svhn(path: Path) -> tuple[Pixels, Labels]:
    """Images and labels from X (32, 32, 3, n) and y (n, 1) of a .mat file, in which the digit 0 has label 10.

    Raises:
        ImportError: scipy is not installed.
    """
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise ImportError(
            f"{path}: reading a .mat file needs scipy; install it, or run `livi data pack svhn` where it is."
        ) from error
    try:
        found = loadmat(path)
        pixels, labels = found["X"], found["y"]
    except Exception as error:  # scipy's own errors of damaged files have no base class in common
        raise _damaged(path, "a .mat file with X and y", str(error)) from error
    return np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)), labels.ravel().astype(np.int64) % 10


def read_pictures(path: Path, side: int, within: str = "") -> Pixels:
    """All images under `within` in a folder or a .zip, in the order of their names, converted to RGB.

    Images of another size are resized to `side` x `side`, bicubic.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: there are no images, or one is damaged.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            f"{path}: reading images needs Pillow; install it, or run `livi data pack` where it is."
        ) from error
    found = []
    for content in _contents(path, within):
        try:
            with Image.open(io.BytesIO(content)) as opened:
                picture = opened.convert("RGB")
        except (OSError, SyntaxError) as error:  # Pillow raises the latter of damaged PNG files
            raise _damaged(path, "images", str(error)) from error
        if picture.size != (side, side):
            picture = picture.resize((side, side), Image.Resampling.BICUBIC)
        found.append(np.asarray(picture).transpose(2, 0, 1))
    if not found:
        raise _damaged(path, f"images ({', '.join(sorted(SUFFIXES))})", "none")
    return np.stack(found)


def _contents(path: Path, within: str) -> Iterator[bytes]:
    if path.is_dir():
        names = sorted(each for each in (path / within).rglob("*") if each.suffix.lower() in SUFFIXES)
        yield from (name.read_bytes() for name in names)
        return
    try:
        with zipfile.ZipFile(path) as opened:
            for name in sorted(opened.namelist()):
                if name.startswith(within) and Path(name).suffix.lower() in SUFFIXES:
                    yield opened.read(name)
    except zipfile.BadZipFile as error:
        raise _damaged(path, "a .zip file", str(error)) from error


def _damaged(path: Path, expected: str, got: str) -> ValueError:
    return ValueError(f"{path}: expected {expected}, got {got}; get the file again.")
