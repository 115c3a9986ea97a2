"""A step of `livi.fit` with its default choices, eager and as a CUDA graph, against a plain training step of Adam.

python -m benchmarks.bench_step [--device cpu|cuda] [--steps N] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

import livi
from benchmarks.bench_evaluation import CASES, Case
from livi.experiments.machine import machine, versions
from livi.inference import Trainer

QUICK = ("--steps", "10")
FULL = ("--steps", "100")
WARM_UP = 20


def seconds(step: Callable[[], object], count: int, device: torch.device) -> float:
    """Mean time of a step, after those that warm up, and on a GPU record."""
    for _ in range(WARM_UP):
        step()
    _synchronise(device)
    started = time.perf_counter()
    for _ in range(count):
        step()
    _synchronise(device)
    return (time.perf_counter() - started) / count


def plain(case: Case, data: tuple[Tensor, Tensor], count: int) -> float:
    """Adam on the network itself, as everybody writes it."""
    net = case.build().to(data[0].device)
    optimiser = torch.optim.Adam(net.parameters())
    loss_of: Callable[[Tensor, Tensor], Tensor] = (
        nn.functional.mse_loss if data[1].is_floating_point() else nn.functional.cross_entropy
    )

    def step() -> None:
        optimiser.zero_grad()
        loss_of(net(data[0]).squeeze(-1), data[1]).backward()
        optimiser.step()

    return seconds(step, count, data[0].device)


def ours(case: Case, data: tuple[Tensor, Tensor], count: int, capture: bool | None) -> tuple[float, bool]:
    """Seconds of a step, and whether it was replayed."""
    torch.manual_seed(0)
    likelihood = livi.Gaussian() if data[1].is_floating_point() else livi.Categorical()
    options = {"batch_size": len(data[1]), "last_layer": "sampled"}
    plan = livi.plan(case.build().to(data[0].device), data, likelihood, **options)
    recipe = replace(plan.recipe, steps=10 * (WARM_UP + count))
    trainer = Trainer(plan.bound, plan.data, recipe, capture=capture)
    taken = seconds(lambda: trainer._step(data), count, data[0].device)
    return taken, trainer.stepper.captured


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_step", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    warnings.simplefilter("ignore", livi.FitWarning)  # random data: nothing is learned here
    rows = []
    print("| network | weights | plain (ms) | livi (ms) | livi / plain | captured (ms) | captured / livi |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for case in CASES:
        torch.manual_seed(0)
        net = case.build()
        x = torch.randn(case.batch, *case.shape, device=device)
        classes = net(x[:2].cpu()).shape[-1]
        y = torch.randn(case.batch, device=device) if classes == 1 else torch.randint(classes, (case.batch,)).to(device)
        base = plain(case, (x, y), chosen.steps)
        eager, _ = ours(case, (x, y), chosen.steps, capture=False)
        captured, replayed = ours(case, (x, y), chosen.steps, capture=None)
        rows.append(
            {
                "network": case.name,
                "plain_seconds": base,
                "livi_seconds": eager,
                "captured_seconds": captured if replayed else None,
            }
        )
        graph = f"{1e3 * captured:.2f} | {captured / eager:.2f}" if replayed else "– | –"
        weights = sum(parameter.numel() for parameter in net.parameters())
        print(
            f"| {case.name} | {weights:,} | {1e3 * base:.2f} | {1e3 * eager:.2f} | {eager / base:.1f} | {graph} |",
            flush=True,
        )
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        document = {"machine": machine(), "versions": versions(), "rows": rows}
        (chosen.out / "step.json").write_text(json.dumps(document, indent=1) + "\n")


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
