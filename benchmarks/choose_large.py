"""Which noise, prior and schedule suit networks of more than 5,000 weights: held-out scores on data no table reports.

    LIVI_DATA_DIR=... python -m benchmarks.choose_large --device cuda --jobs 8 [--only noise] [--out choices.json]

Networks are trained plainly on part of KMNIST's or EMNIST's published test letters (which the reported experiments use
only as foreign pictures, without labels), then given to `livi.fit(..., start="net")` under each choice, and scored on
other rows of the same file. Prints a Markdown table: mean over problems and seeds of NLL minus the plain network's.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import livi
from livi.layout import Layout
from livi.metrics import accuracy, ece, nll

Options = dict[str, Any]


def lenet(classes: int) -> nn.Module:
    """44,426 weights for ten classes."""
    features = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    head = [nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)]
    return nn.Sequential(*features, *head)


def norm_cnn(classes: int) -> nn.Module:
    """Two convolutions with BatchNorm, and a linear layer: 25,000 weights for ten classes."""
    first = [nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU()]
    second = [nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*first, *second, nn.Linear(32 * 49, classes))


def mlp(classes: int) -> nn.Module:
    """784-100-10, 79,510 weights."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, classes))


NETWORKS = {"lenet": lenet, "norm-cnn": norm_cnn, "mlp": mlp}
# data, network, examples to train on
PROBLEMS = [
    ("kmnist", "lenet", 6000),
    ("kmnist", "norm-cnn", 1300),
    ("letters", "norm-cnn", 6000),
    ("letters", "lenet", 15000),
    ("kmnist", "mlp", 1300),
]


def relative(share: float) -> Callable[[Layout], livi.RelativeNoise]:
    return lambda layout: livi.RelativeNoise.for_layout(layout, share)


def fixed(std: float) -> Callable[[Layout], livi.FixedNoise]:
    return lambda _: livi.FixedNoise(std)


def fan_in(scale: float) -> Callable[[Layout], livi.Normal]:
    return lambda layout: livi.Normal.for_layout(layout, scale, fan_in=True)


def relative_start(steps: int = 1000, **more: Any) -> Options:
    recipe = livi.Recipe(**{"steps": steps, "spread": 0.1, "relative_spread": True} | more)
    return {"generator": per_tensor, "recipe": recipe}


def per_tensor(layout: Layout) -> livi.MMNN:
    return livi.MMNN.for_layout(layout, budget=4.0, offset=True, scale_sizes=[slot.numel for slot in layout.slots])


CHOICES: dict[str, dict[str, Options]] = {
    "noise": {
        "fixed 0.05": {"noise": fixed(0.05), "steps": 1000},
        "fixed 0.02": {"noise": fixed(0.02), "steps": 1000},
        "fixed 0.01": {"noise": fixed(0.01), "steps": 1000},
        "relative 0.05": {"noise": relative(0.05)} | relative_start(),
        "relative 0.1": {"noise": relative(0.1)} | relative_start(),
        "relative 0.2": {"noise": relative(0.2)} | relative_start(),
        "relative 0.3": {"noise": relative(0.3)} | relative_start(),
        "relative 0.1, fan-in 1": {"noise": relative(0.1), "prior": fan_in(1.0)} | relative_start(),
        "relative 0.1, fan-in 2": {"noise": relative(0.1), "prior": fan_in(2.0)} | relative_start(),
        "relative 0.1, fan-in 4": {"noise": relative(0.1), "prior": fan_in(4.0)} | relative_start(),
        "relative 0.1, N(0, 0.3)": {"noise": relative(0.1), "prior": livi.Normal(0.3)} | relative_start(),
    },
    "steps": {
        f"relative 0.1, {steps} steps": {"noise": relative(0.1)} | relative_start(steps)
        for steps in (300, 600, 1000, 2000, 4000)
    },
}


def images(name: str) -> tuple[Tensor, Tensor]:
    """Pictures (n, 1, 28, 28) in [0, 1] and labels from 0."""
    folder = Path(os.environ["LIVI_DATA_DIR"])
    if name == "kmnist":
        pixels = np.load(folder / "kmnist" / "kmnist-test-imgs.npz")["arr_0"]
        labels = np.load(folder / "kmnist" / "kmnist-test-labels.npz")["arr_0"].astype(np.int64)
    else:
        stem = folder / "emnist-letters"
        raw = gzip.decompress((stem / "emnist-letters-test-images-idx3-ubyte.gz").read_bytes())
        pixels = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28)
        raw = gzip.decompress((stem / "emnist-letters-test-labels-idx1-ubyte.gz").read_bytes())
        labels = np.frombuffer(raw, np.uint8, offset=8).astype(np.int64) - 1
    return torch.tensor(pixels / 255.0, dtype=torch.float32)[:, None], torch.tensor(labels)


def train_plainly(net: nn.Module, x: Tensor, y: Tensor, seed: int) -> nn.Module:
    """Adam with a cosine schedule, minibatches of 64, 40 epochs, weight decay 1e-4."""
    rng = torch.Generator().manual_seed(seed)
    epochs, batches = 40, -(-len(x) // 64)
    optimiser = torch.optim.Adam(net.parameters(), 1e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * batches)
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=rng).to(x.device).tensor_split(batches):
            loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return net.eval()


def compare(problem: tuple[str, str, int], seed: int, choices: dict[str, Options], device: str) -> list[dict[str, Any]]:
    """One plain network, and a fit from it under each choice."""
    data, network, count = problem
    x, y = (part.to(device) for part in images(data))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(device)
    rows, held = order[:count], order[-4000:]
    torch.manual_seed(seed)
    net = train_plainly(NETWORKS[network](int(y.max()) + 1).to(device), x[rows], y[rows], seed)
    with torch.no_grad():
        plain = livi.prediction.ClassificationPrediction(net(x[held])[None], livi.Categorical())
    found = [_scores("plain", problem, seed, plain, y[held], 0.0)]
    for name, options in choices.items():
        started = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            posterior = livi.fit(
                net, (x[rows], y[rows]), livi.Categorical(), start="net", seed=seed, progress=False, **options
            )
        seconds = time.perf_counter() - started
        row = _scores(name, problem, seed, posterior.predict(x[held], num_samples=50), y[held], seconds)
        row["bound"] = posterior.history[-1]["bound"]
        row["warnings"] = [str(warning.message)[:100] for warning in caught]
        found.append(row)
        print(json.dumps(row), flush=True)
    return found


def _scores(name: str, problem: tuple[str, str, int], seed: int, prediction: Any, y: Tensor, seconds: float) -> Options:
    scores = {"nll": nll(prediction, y), "ece": ece(prediction, y), "accuracy": accuracy(prediction, y)}
    return {"choice": name, "problem": "-".join(map(str, problem)), "seed": seed, "seconds": seconds} | scores


def table(rows: list[dict[str, Any]]) -> str:
    """NLL (and ECE in per cent) by choice and problem, and the mean of NLL over the plain network's."""
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    lines = ["| choice | " + " | ".join(problems) + " | NLL / plain |", "|---" * (len(problems) + 2) + "|"]
    plain = {(row["problem"], row["seed"]): row["nll"] for row in rows if row["choice"] == "plain"}
    for choice in dict.fromkeys(row["choice"] for row in rows):
        own = [row for row in rows if row["choice"] == choice]
        cells = []
        for problem in problems:
            some = [row for row in own if row["problem"] == problem]
            cells.append(
                f"{np.mean([row['nll'] for row in some]):.4f} ({100 * np.mean([row['ece'] for row in some]):.1f})"
                if some
                else ""
            )
        ratio = np.mean([row["nll"] / plain[row["problem"], row["seed"]] for row in own])
        lines.append(f"| {choice} | " + " | ".join(cells) + f" | {ratio:.3f} |")
    return "\n".join(lines)


def _job(arguments: tuple[tuple[str, str, int], int, str, str, str]) -> list[dict[str, Any]]:
    problem, seed, group, choice, device = arguments
    torch.set_num_threads(1)
    return compare(problem, seed, {choice: CHOICES[group][choice]}, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="noise", help=f"of {','.join(CHOICES)}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for group in chosen.only.split(","):
        jobs = [
            (problem, seed, group, choice, chosen.device)
            for seed, problem, choice in product(range(chosen.seeds), PROBLEMS, CHOICES[group])
        ]
        with ProcessPoolExecutor(chosen.jobs, multiprocessing.get_context("spawn")) as pool:
            for found in pool.map(_job, jobs):
                seen = {(row["choice"], row["problem"], row["seed"]) for row in rows}
                rows += [row for row in found if (row["choice"], row["problem"], row["seed"]) not in seen]
        if chosen.out is not None:
            chosen.out.write_text(json.dumps(rows, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
