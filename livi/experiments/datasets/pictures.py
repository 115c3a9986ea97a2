"""Published sets of small images by name: MNIST and sets like it, CIFAR, SVHN, Tiny ImageNet.

They are read from the folder that LIVI_DATA_DIR names, or from the cache that `livi data get` fills. Each part of a set
can be stored there in several ways, as published or as one npz file; it is read from the first that is complete.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from livi.experiments.datasets.formats import (
    Labels,
    Pixels,
    npz_names,
    read_cifar,
    read_idx,
    read_npz,
    read_pictures,
    read_svhn,
)
from livi.posterior.storage import replace_file

PARTS = ("train", "test")


class Pictures(NamedTuple):
    """Images as bytes, and their classes; None where a set has none."""

    images: Tensor  # (n, c, h, w)
    labels: Tensor | None  # (n,)


@dataclass(frozen=True)
class Way:
    """A way to store a part of a set: files, or a folder, under the data folder, and their reader."""

    paths: tuple[str, ...]
    read: Callable[[list[Path]], tuple[Pixels, Labels | None]]

    def complete(self, folder: Path) -> bool:
        return all((folder / path).exists() for path in self.paths)


def data_folder() -> Path:
    """LIVI_DATA_DIR, or the folder livi in the user's cache."""
    given = os.environ.get("LIVI_DATA_DIR")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "livi"


def available(folder: Path, name: str, part: str = "test") -> bool:
    """Whether the files of a part exist; they are not opened."""
    return _way(folder, name, part) is not None


def read(folder: Path, name: str, part: str = "test") -> Pictures:
    """One part of a set.

    Raises:
        FileNotFoundError: its files are not there.
        ValueError: there is no such set or part, or a file is damaged.
        ImportError: the format needs scipy or Pillow, which is not installed.
    """
    way = _way(folder, name, part)
    if way is None:
        ways = " or ".join(", ".join(each.paths) for each in SETS[name][part])
        raise FileNotFoundError(
            f"{folder}: expected {name} ({part}) as {ways}, got none of these; run `livi data get {name}`, or set "
            "LIVI_DATA_DIR to where they are."
        )
    pixels, labels = way.read([folder / path for path in way.paths])
    if pixels.ndim != 4 or (labels is not None and len(labels) != len(pixels)):
        shapes = f"{pixels.shape} and {None if labels is None else labels.shape}"
        raise ValueError(f"{folder}: expected images (n, c, h, w) and as many labels in {way.paths}, got {shapes}.")
    return Pictures(torch.tensor(pixels), None if labels is None else torch.tensor(labels))


def pack(folder: Path, name: str, part: str = "test") -> Path:
    """Write a part as one npz file, NAME/PART.npz, which is read first and needs neither scipy nor Pillow."""
    images, labels = read(folder, name, part)
    arrays = {"images": images.numpy()} | ({} if labels is None else {"labels": labels.numpy().astype(np.uint8)})
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    target = folder / name / f"{part}.npz"
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, [content.getvalue()])
    return target


def _way(folder: Path, name: str, part: str) -> Way | None:
    if name not in SETS:
        raise ValueError(f"data: expected one of {', '.join(SETS)}, got {name!r}.")
    if part not in SETS[name]:
        raise ValueError(f"part: expected {' or '.join(SETS[name])} of {name}, got {part!r}.")
    return next((way for way in SETS[name][part] if way.complete(folder)), None)


# --- the sets -------------------------------------------------------------------------------------


def _from_idx(paths: list[Path]) -> tuple[Pixels, Labels]:
    pixels, labels = map(read_idx, paths)
    return pixels[:, None], labels.astype(np.int64)


def _from_emnist(paths: list[Path]) -> tuple[Pixels, Labels]:
    """EMNIST's images are transposed."""
    pixels, labels = _from_idx(paths)
    return np.ascontiguousarray(pixels.transpose(0, 1, 3, 2)), labels


def _from_letters(paths: list[Path]) -> tuple[Pixels, Labels]:
    """EMNIST's letters are numbered from 1; here from 0."""
    pixels, labels = _from_emnist(paths)
    return pixels, labels - 1


def _from_two_npz(paths: list[Path]) -> tuple[Pixels, Labels]:
    return read_npz(paths[0])[:, None], read_npz(paths[1]).astype(np.int64)


def _from_packed(paths: list[Path]) -> tuple[Pixels, Labels | None]:
    labelled = "labels" in npz_names(paths[0])
    return read_npz(paths[0], "images"), read_npz(paths[0], "labels").astype(np.int64) if labelled else None


def _idx(folder: str, part: str, read: Callable[[list[Path]], tuple[Pixels, Labels]] = _from_idx) -> Way:
    prefix = {"train": "train", "test": "t10k"}[part]
    if folder.startswith("emnist"):
        prefix = f"{folder}-{part}"
    return Way(tuple(f"{folder}/{prefix}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")), read)


def _kmnist(part: str) -> Way:
    return Way(tuple(f"kmnist/kmnist-{part}-{kind}.npz" for kind in ("imgs", "labels")), _from_two_npz)


def _cifar10(part: str) -> Way:
    names = ["test_batch"] if part == "test" else [f"data_batch_{number}" for number in range(1, 6)]
    return Way(tuple(f"cifar-10-batches-bin/{name}.bin" for name in names), lambda paths: read_cifar(paths, 1))


def _cifar100(part: str) -> Way:
    return Way((f"cifar-100-binary/{part}.bin",), lambda paths: read_cifar(paths, 2))


def _svhn(part: str) -> Way:
    return Way((f"svhn/{part}_32x32.mat",), lambda paths: read_svhn(paths[0]))


def _pictures(path: str, within: str = "") -> Way:
    return Way((path,), lambda paths: (read_pictures(paths[0], 32, within), None))


_PUBLISHED: dict[str, dict[str, tuple[Way, ...]]] = {
    "mnist": {part: (_idx("mnist", part),) for part in PARTS},
    "fashion-mnist": {part: (_idx("fashion-mnist", part),) for part in PARTS},
    "kmnist": {part: (_idx("kmnist", part), _kmnist(part)) for part in PARTS},
    "emnist-letters": {part: (_idx("emnist-letters", part, _from_letters),) for part in PARTS},
    "emnist-digits": {part: (_idx("emnist-digits", part, _from_emnist),) for part in PARTS},
    "cifar10": {part: (_cifar10(part),) for part in PARTS},
    "cifar100": {part: (_cifar100(part),) for part in PARTS},
    "svhn": {part: (_svhn(part),) for part in PARTS},
    # The published test images, which have no labels, resized; or a folder of resized images.
    "tiny-imagenet": {
        "test": (
            _pictures("tiny-imagenet-200.zip", "tiny-imagenet-200/test/images/"),
            _pictures("tiny-imagenet-200/test/images"),
            _pictures("tiny-imagenet-32"),
        )
    },
}
SETS = {
    name: {part: (Way((f"{name}/{part}.npz",), _from_packed), *ways) for part, ways in parts.items()}
    for name, parts in _PUBLISHED.items()
}
