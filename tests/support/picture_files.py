"""Small made-up image sets in the published file formats, whose pixels depend on the class."""

import gzip
from pathlib import Path

import numpy as np

from livi.experiments.images import methods, problems

SETS = ("mnist", "fashion-mnist", "kmnist", "emnist-letters")


def made(count: int, shape: tuple[int, ...], classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, c, h, w) with a bright square whose position depends on the class, and labels (n,)."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    pixels = rng.integers(0, 60, (count, *shape), dtype=np.uint8)
    for picture, label in zip(pixels, labels, strict=True):
        row, column = divmod(int(label) % 16, 4)
        picture[:, 6 * row + 2 : 6 * row + 8, 6 * column + 2 : 6 * column + 8] = 180 + 4 * (int(label) // 16)
    return pixels, labels.astype(np.uint8)


def write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes()))


def write_mnist(folder: Path, train: int = 300, test: int = 100, name: str = "mnist") -> None:
    """Write MNIST, or Fashion-MNIST, with made-up images, and three out-of-distribution sets of noise."""
    for seed, (prefix, count) in enumerate((("train", train), ("t10k", test))):
        pixels, labels = made(count, (1, 28, 28), 10, seed)
        write_idx(folder / f"{name}/{prefix}-images-idx3-ubyte.gz", pixels[:, 0])
        write_idx(folder / f"{name}/{prefix}-labels-idx1-ubyte.gz", labels)
    for seed, other in enumerate(each for each in SETS if each != name):
        pixels = np.random.default_rng(10 + seed).integers(0, 256, (60, 28, 28))
        prefix = "emnist-letters-test" if other == "emnist-letters" else "t10k"
        write_idx(folder / f"{other}/{prefix}-images-idx3-ubyte.gz", pixels)
        write_idx(folder / f"{other}/{prefix}-labels-idx1-ubyte.gz", np.ones(60))


def write_cifar(folder: Path, train: int = 300, test: int = 100) -> None:
    """Write CIFAR-10 and CIFAR-100 with made-up images, and noise for SVHN and Tiny ImageNet, packed."""
    for name, classes in (("cifar-10-batches-bin", 10), ("cifar-100-binary", 100)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for seed, (part, count) in enumerate((("train", train), ("test", test))):
            pixels, labels = made(count, (3, 32, 32), classes, seed)
            coarse = [] if classes == 10 else [labels[:, None] // 5]
            rows = np.concatenate([*coarse, labels[:, None], pixels.reshape(count, -1)], 1).astype(np.uint8)
            if classes == 100 or part == "test":
                (folder / name / ("test_batch.bin" if classes == 10 else f"{part}.bin")).write_bytes(rows.tobytes())
                continue
            for number, some in enumerate(np.array_split(rows, 5), 1):
                (folder / name / f"data_batch_{number}.bin").write_bytes(some.tobytes())
    for seed, name in enumerate(("svhn", "tiny-imagenet")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(20 + seed).integers(0, 256, (60, 3, 32, 32), dtype=np.uint8)
        np.savez(folder / name / "test.npz", images=noise)


def few_steps(monkeypatch) -> None:
    """Make quick trials take only a few steps and images."""
    for name, value in (("QUICK_STEPS", 4), ("QUICK_BATCH", 8), ("QUICK_GRADIENTS", 20)):
        monkeypatch.setattr(methods, name, value)
    monkeypatch.setattr(problems, "QUICK_TRAIN", 64)
    monkeypatch.setattr(problems, "QUICK_SCORED", 20)
