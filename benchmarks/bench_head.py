"""The last layer of a trained network: livi, and last-layer Laplace by laplace-torch, on letters and characters.

    LIVI_DATA_DIR=... python -m benchmarks.bench_head [--only kmnist-mlp] [--seeds 0,1] [--out head.json]
    python -m benchmarks.bench_head --read head.json

Networks are trained plainly on the first rows of KMNIST or EMNIST letters; each method starts at their weights, with
its defaults, and all are scored on the same other rows. Seconds are CPU seconds of one thread, without the training and
the predictions.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import livi
from benchmarks.choose_fit import train_plainly
from benchmarks.choose_problems import PROBLEMS, Problem, lenet, pictures
from livi.family.ensemble import Ensemble
from livi.posterior.metrics import ece, nll
from livi.rivals import fit_laplace_last_layer

QUICK = ("--only", "kmnist-mlp", "--seeds", "0")
FULL = ("--seeds", "0,1", "--out", "head.json")
METHODS = ("network", "livi", "Laplace")


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.second, self.second_norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        between = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(x + self.second_norm(self.second(between)))


def residual(classes: int) -> Callable[[], nn.Module]:
    """Six residual blocks with BatchNorm at 7 by 7 pixels: 112,970 weights, 330 of the last layer, for ten classes."""

    def make() -> nn.Module:
        stem = [nn.Conv2d(1, 32, 5, 4, 2), nn.BatchNorm2d(32), nn.ReLU()]
        pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*stem, *(Block(32) for _ in range(6)), *pooled, nn.Linear(32, classes))

    return make


def problems() -> dict[str, Problem]:
    return {
        "kmnist-mlp": PROBLEMS["kmnist-mlp-1300"],
        "kmnist-residual": Problem(pictures("kmnist"), 1500, residual(10), livi.Categorical, epochs=20),
        "letters-lenet": Problem(pictures("emnist-letters"), 6000, lenet(26), livi.Categorical, epochs=20),
    }


def posterior_of(method: str, net: nn.Module, rows: tuple[Tensor, Tensor], seed: int) -> livi.Posterior:
    head = [name for name, layer in net.named_modules() if isinstance(layer, nn.Linear)][-1]
    options: dict[str, Any] = {"include": f"{head}.*", "seed": seed, "progress": False}
    if method == "livi":
        return livi.fit(net, rows, livi.Categorical(), start="net", **options)
    return fit_laplace_last_layer(net, rows, livi.Categorical(), recipe=livi.Recipe(map_steps=0), **options)


def run(name: str, seed: int) -> list[dict[str, Any]]:
    problem = replace(problems()[name], held_out=2000)
    x, y = problem.rows(torch.Generator().manual_seed(seed))
    train, held = slice(0, problem.count), slice(-problem.held_out, None)
    started = time.process_time()
    net = train_plainly(problem, x[train], y[train], seed)
    seconds = time.process_time() - started
    rows = []
    for method in METHODS:
        started = time.process_time()
        if method == "network":
            layout = livi.Layout(net)
            members = Ensemble(layout, layout.flatten()[None])
            found = livi.Posterior(members, livi.Categorical())
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what a fit says of itself is not what is looked at here
                found = posterior_of(method, net, (x[train], y[train]), seed)
            seconds = time.process_time() - started
        prediction = found.predict(x[held])
        scores = {"nll": nll(prediction, y[held]), "ece": ece(prediction, y[held])}
        rows.append({"problem": name, "seed": seed, "method": method, "seconds": seconds} | scores)
        print(rows[-1], flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Means over the seeds: NLL, ECE and seconds."""
    lines = ["| problem | method | NLL | ECE | seconds |", "|---|---|---|---|---|"]
    for name, method in dict.fromkeys((row["problem"], row["method"]) for row in rows):
        chosen = [row for row in rows if (row["problem"], row["method"]) == (name, method)]
        loss, error, seconds = (sum(row[key] for row in chosen) / len(chosen) for key in ("nll", "ece", "seconds"))
        lines.append(f"| {name} | {method} | {loss:.3f} | {error:.1%} | {seconds:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_head", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(problems()))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--read", type=Path, help="print the table of these rows")
    chosen = parser.parse_args()
    if chosen.read is not None:
        print(table(json.loads(chosen.read.read_text())))
        return
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for name in chosen.only.split(","):
        for seed in map(int, chosen.seeds.split(",")):
            rows += run(name, seed)
            if chosen.out is not None:
                chosen.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
