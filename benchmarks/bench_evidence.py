"""The exact last layer's evidence and its gradient: in closed form and blocks, all at once, and by autograd.

python -m benchmarks.bench_evidence [--steps N]

And whole steps of a fit with and without freed memory kept by the C library, each in a process of its own.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn

import livi
from livi.family.last_layer import LinearGaussian, evidence
from livi.inference import Trainer
from livi.running import kept_memory

QUICK = ("--steps", "2")
FULL = ("--steps", "30")
CASES = ((20, 455, 50), (4, 8000, 50))  # samples, examples, width of the last layer
WARM_UP = 3


def seconds(step: Callable[[], object], count: int) -> float:
    for _ in range(WARM_UP):
        step()
    started = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - started) / count


def by_autograd(features: Tensor, targets: Tensor, log_std: Tensor, log_scale: Tensor) -> Tensor:  # (S,)
    """The same evidence as it is usually written: a Cholesky factor in double precision, differentiated."""
    design = torch.cat([features, torch.ones_like(features[..., :1])], -1).double() * (log_scale - log_std).exp()
    unit = (targets / log_std.exp()).double()[:, None]
    factor = torch.linalg.cholesky(design.mT @ design + torch.eye(design.shape[-1], dtype=torch.float64))
    pulled = torch.linalg.solve_triangular(factor, design.mT @ unit, upper=False)
    misfit = unit.square().sum() - pulled.square().sum((1, 2))
    volume = factor.diagonal(dim1=1, dim2=2).log().sum(1)
    return -0.5 * misfit - volume - len(targets) * (log_std + 0.5 * math.log(2.0 * math.pi))


def evidences(samples: int, rows: int, width: int, count: int) -> tuple[float, float, float]:
    """Seconds by autograd, in closed form, and in closed form and blocks."""
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(samples, rows, width, generator=rng).requires_grad_()
    targets = torch.randn(rows, generator=rng)
    likelihood = LinearGaussian(livi.Gaussian(0.3, learned=True), scale=0.2, learn_scale=True)
    hyper = (likelihood.noise.log_std, likelihood.log_scale)

    def ours() -> None:
        likelihood.log_prob(features, targets).sum().backward()

    base = seconds(lambda: by_autograd(features, targets, *hyper).sum().backward(), count)
    usual = evidence._CPU_BLOCK
    evidence._CPU_BLOCK = 2**62
    whole = seconds(ours, count)
    evidence._CPU_BLOCK = usual
    return base, whole, seconds(ours, count)


def step_of_a_fit(keep: bool, count: int) -> float:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(13, 50), nn.SiLU(), nn.Linear(50, 1))
    data = torch.randn(455, 13), torch.randn(455)
    plan = livi.plan(net, data, livi.Gaussian(), prior=livi.Relevance.for_layout)
    trainer = Trainer(plan.bound, plan.data, plan.recipe)
    with kept_memory() if keep else nullcontext():
        return seconds(lambda: trainer._step(data), count)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_evidence", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--memory", choices=("kept", "returned"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.memory is not None:
        print(step_of_a_fit(chosen.memory == "kept", chosen.steps))
        return
    print("| samples x examples x width | autograd (ms) | closed form / autograd | in blocks / autograd |")
    print("|---|---|---|---|", flush=True)
    for samples, rows, width in CASES:
        base, whole, blocks = evidences(samples, rows, width, chosen.steps)
        ratios = f"{whole / base:.2f} | {blocks / base:.2f}"
        print(f"| {samples} x {rows:,} x {width} | {1e3 * base:.1f} | {ratios} |", flush=True)
    taken = {}
    for memory in ("returned", "kept"):  # in processes of their own: what one keeps, the next would find
        command = [sys.executable, "-m", "benchmarks.bench_evidence", "--steps", str(chosen.steps), "--memory", memory]
        taken[memory] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    ratio = taken["kept"] / taken["returned"]
    print(f"\na step of a fit to 455 x 13: {1e3 * taken['returned']:.1f} ms, freed memory kept / returned {ratio:.2f}")


if __name__ == "__main__":
    main()
