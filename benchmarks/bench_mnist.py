"""LeNet on all of MNIST by `livi.fit` without options: test scores and seconds, one row per seed.

    LIVI_DATA_DIR=... python -m benchmarks.bench_mnist --device cuda --seeds 300,301,302

Reads the published files from the folder `mnist` there. Nothing was chosen by the test rows.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import livi
from livi.experiments.networks import lenet
from livi.posterior.metrics import accuracy, ece, nll


def rows(folder: Path, part: str, device: str) -> tuple[Tensor, Tensor]:
    """Pictures between 0 and 1, and labels."""
    pixels = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())
    x = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 1, 28, 28) / 255.0
    y = np.frombuffer(labels, np.uint8, offset=8).astype(np.int64)
    return torch.tensor(x, dtype=torch.float32, device=device), torch.tensor(y, device=device)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_mnist", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", default="300,301,302")
    chosen = parser.parse_args()
    folder = Path(os.environ.get("LIVI_DATA_DIR", ".")) / "mnist"
    if not folder.is_dir():
        parser.error(f"expected MNIST's files in {folder}, got no such folder; set LIVI_DATA_DIR.")
    (x, y), (new_x, new_y) = rows(folder, "train", chosen.device), rows(folder, "t10k", chosen.device)
    print("| seed | accuracy | NLL | ECE | s |\n|---|---|---|---|---|", flush=True)
    for seed in map(int, chosen.seeds.split(",")):
        torch.manual_seed(seed)
        net = lenet().to(chosen.device)
        started = time.perf_counter()
        posterior = livi.fit(net, (x, y), livi.Categorical(), seed=seed, progress=False)
        seconds = time.perf_counter() - started
        prediction = posterior.predict(new_x)
        scores = f"{accuracy(prediction, new_y):.2%} | {nll(prediction, new_y):.4f} | {ece(prediction, new_y):.2%}"
        print(f"| {seed} | {scores} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
