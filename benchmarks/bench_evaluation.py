"""Many weight vectors at once: Vmap against Loop, forward and backward, as a ratio within one run.

python -m benchmarks.bench_evaluation [--device cpu|cuda] [--repeats N] [--out DIR]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import livi
from livi.experiments.machine import machine, versions

QUICK = ("--repeats", "3")
FULL = ("--repeats", "10")


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]  # of one input
    batch: int
    samples: int


def lenet() -> nn.Module:
    convolutions = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    dense = [nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
    return nn.Sequential(*convolutions, *dense)


def batch_norm_cnn() -> nn.Module:
    first = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    second = [nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    third = [nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*first, *second, *third, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def mlp(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


CASES = (
    Case("MLP 1-7-10-1", lambda: mlp(1, 7, 10, 1), (1,), 70, 200),
    Case("MLP 13-50-1", lambda: mlp(13, 50, 1), (13,), 455, 64),
    Case("MLP 784-400-400-10", lambda: mlp(784, 400, 400, 10), (784,), 256, 4),
    Case("LeNet", lenet, (1, 28, 28), 256, 4),
    Case("BatchNorm CNN", batch_norm_cnn, (3, 32, 32), 64, 4),
)


def seconds(layout: livi.Layout, theta: Tensor, x: Tensor, strategy: livi.Loop | livi.Vmap, repeats: int) -> float:
    """Median time of one forward and backward pass, after one to warm up."""
    times = []
    for _ in range(repeats + 1):
        leaf = theta.clone().requires_grad_()
        if leaf.is_cuda:
            torch.cuda.synchronize()
        started = time.perf_counter()
        outputs = livi.apply_many(layout, leaf, x, batch_statistics=True, strategy=strategy)
        torch.autograd.grad(outputs.square().sum(), leaf)
        if leaf.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_evaluation")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    rows = []
    print("| network | weights | batch | samples | Loop (ms) | Vmap (ms) | Vmap / Loop |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        torch.manual_seed(0)
        layout = livi.Layout(case.build().to(chosen.device))
        theta = layout.flatten().expand(case.samples, -1)
        x = torch.randn(case.batch, *case.shape, device=chosen.device)
        loop = seconds(layout, theta, x, livi.Loop(), chosen.repeats)
        vmap = seconds(layout, theta, x, livi.Vmap(), chosen.repeats)
        rows.append({"network": case.name, "loop_seconds": loop, "vmap_seconds": vmap, "ratio": vmap / loop})
        print(
            f"| {case.name} | {layout.num_params:,} | {case.batch} | {case.samples} | {1e3 * loop:.1f} | "
            f"{1e3 * vmap:.1f} | {vmap / loop:.2f} |",
            flush=True,
        )
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        document = {"machine": machine(), "versions": versions(), "rows": rows}
        (chosen.out / "evaluation.json").write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
