"""Many weight vectors at once: Vmap against Loop and torch's vmap, forward and backward, as ratios within one run.

python -m benchmarks.bench_evaluation [--device cpu|cuda] [--repeats N] [--out DIR]
"""

from __future__ import annotations

import argparse
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
from livi.experiments.networks import lenet
from livi.experiments.plain_problems import dense

QUICK = ("--repeats", "3")
FULL = ("--repeats", "10")


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]  # of one input
    batch: int
    samples: int


def batch_norm_cnn() -> nn.Module:
    first = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    second = [nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    third = [nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*first, *second, *third, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


CASES = (
    Case("MLP 1-7-10-1", lambda: dense(1, 7, 10, 1), (1,), 70, 200),
    Case("MLP 8-16-16-2", lambda: dense(8, 16, 16, 2), (8,), 900, 8),
    Case("MLP 13-50-1", lambda: dense(13, 50, 1), (13,), 455, 64),
    Case("MLP 784-400-400-10", lambda: dense(784, 400, 400, 10), (784,), 256, 4),
    Case("LeNet", lambda: lenet(padding=0), (1, 28, 28), 256, 4),
    Case("BatchNorm CNN", batch_norm_cnn, (3, 32, 32), 64, 4),
)


def seconds(layout: livi.Layout, theta: Tensor, x: Tensor, strategy: livi.Loop | livi.Vmap, repeats: int) -> float:
    """Median time of one forward and backward pass, after one to warm up; on a CPU that of the process alone."""
    times, clock = [], time.perf_counter if theta.is_cuda else time.process_time
    for _ in range(repeats + 1):
        leaf = theta.clone().requires_grad_()
        if leaf.is_cuda:
            torch.cuda.synchronize()
        started = clock()
        outputs = livi.apply_many(layout, leaf, x, batch_statistics=True, strategy=strategy)
        torch.autograd.grad(outputs.square().sum(), leaf)
        if leaf.is_cuda:
            torch.cuda.synchronize()
        times.append(clock() - started)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_evaluation")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    rows = []
    titles = ("network", "weights", "batch", "samples", "Loop (ms)", "torch's vmap (ms)", "Vmap (ms)")
    print(f"| {' | '.join(titles)} | Vmap / Loop | Vmap / vmap |\n{'|---' * 9}|")
    for case in CASES:
        torch.manual_seed(0)
        layout = livi.Layout(case.build().to(chosen.device))
        theta = layout.flatten().expand(case.samples, -1)
        x = torch.randn(case.batch, *case.shape, device=chosen.device)
        loop = seconds(layout, theta, x, livi.Loop(), chosen.repeats)
        vmap = seconds(layout, theta, x, livi.Vmap(), chosen.repeats)
        # With a forward of its own nothing is known of a network, so that nothing is written out.
        any_module = livi.Layout(layout.module, forward=lambda module, inputs: module(inputs))
        general = seconds(any_module, theta, x, livi.Vmap(), chosen.repeats)
        rows.append({"network": case.name, "loop_seconds": loop, "vmap_seconds": vmap, "torch_vmap_seconds": general})
        print(
            f"| {case.name} | {layout.num_params:,} | {case.batch} | {case.samples} | {1e3 * loop:.1f} | "
            f"{1e3 * general:.1f} | {1e3 * vmap:.1f} | {vmap / loop:.2f} | {vmap / general:.2f} |",
            flush=True,
        )
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        document = {"machine": machine(), "versions": versions(), "rows": rows}
        (chosen.out / "evaluation.json").write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
