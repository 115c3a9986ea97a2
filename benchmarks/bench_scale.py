"""A step of `livi.fit` on large networks over a plain training step of the same network, both as CUDA graphs.

    python -m benchmarks.bench_scale                          # LeNet, WRN-16-4, WRN-28-10 and an MLP of 109 M weights
    python -m benchmarks.bench_scale --only WRN-16-4 --samples 1,2 --every 10,1

Random pictures, 50,000 of them, so that the rules size the generator as for CIFAR. The plain step is Adam (fused) on
the network itself, same batch, memory format and precision. Peak memory is what is added to network and data. Needs
a GPU.
"""

from __future__ import annotations

import argparse
import gc
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, product

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import livi
from livi.experiments.networks import lenet, wide_resnet
from livi.inference import Recipe, Run, Trainer
from livi.inference.callbacks import Callback, Callbacks

EXAMPLES = 50_000
FIRST, LAST = 210, 410  # steps between which time is taken


@dataclass(frozen=True)
class Case:
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    channels_last: bool = False
    autocast: torch.dtype | None = None


def wide_mlp() -> nn.Module:
    sizes = (3072, 8192, 8192, 2048)
    layers = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(2048, 10))


CASES = {
    "LeNet": Case(lenet, (1, 28, 28), 256),
    "WRN-16-4": Case(wide_resnet, (3, 32, 32), 128, channels_last=True),
    "WRN-28-10, bf16": Case(lambda: wide_resnet(28, 10), (3, 32, 32), 128, channels_last=True, autocast=torch.bfloat16),
    "MLP": Case(wide_mlp, (3, 32, 32), 128),
}


class Timer(Callback):
    """Seconds of the steps in between."""

    def on_step(self, run: Run) -> None:
        if run.step in (FIRST, LAST):
            torch.cuda.synchronize()
            self.started, self.ended = getattr(self, "ended", 0.0), time.perf_counter()

    @property
    def per_step(self) -> float:
        return (self.ended - self.started) / (LAST - FIRST)


def plain(case: Case, net: nn.Module, x: Tensor, y: Tensor) -> tuple[float, int]:
    """Seconds of a recorded step of Adam, and bytes."""
    net.train()
    if case.channels_last:
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimiser = torch.optim.Adam(net.parameters(), capturable=True, fused=True)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()

    def step() -> None:
        optimiser.zero_grad(set_to_none=False)
        with torch.autocast("cuda", case.autocast, enabled=case.autocast is not None):
            loss = F.cross_entropy(net(x).float(), y)
        loss.backward()
        optimiser.step()

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(50):
        graph.replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / 50, torch.cuda.max_memory_allocated() - before


def ours(
    case: Case, net: nn.Module, x: Tensor, y: Tensor, samples: int, every: int
) -> tuple[Trainer, livi.Plan, float, int]:
    """A trainer after its steps, its plan, seconds of one step, and bytes."""
    before = torch.cuda.memory_allocated()
    recipe = Recipe(steps=LAST, num_samples=samples, num_entropy_samples=1, entropy_every=every)
    options = {"batch_size": case.batch, "start": "net", "autocast": case.autocast}
    plan = livi.plan(net, (x, y), livi.Categorical(), recipe=recipe, **options)
    spread, relative = plan.recipe.spread, plan.recipe.relative_spread
    plan.bound.posterior.begin_around(plan.layout.flatten()[None], spread, relative=relative)
    timer = Timer()
    trainer = Trainer(plan.bound, plan.data, plan.recipe, callbacks=Callbacks([timer]))
    trainer.run()
    return trainer, plan, timer.per_step, torch.cuda.max_memory_allocated() - before


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_scale", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(name.split(",")[0] for name in CASES))
    parser.add_argument("--samples", default="1")
    parser.add_argument("--every", default="10", help="steps from one entropy to the next")
    parser.add_argument("--tf32", action=argparse.BooleanOptionalAction, default=True)
    chosen = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("expected a GPU that torch can use, got none.")
    torch.backends.cuda.matmul.allow_tf32 = chosen.tf32
    warnings.simplefilter("ignore")  # random data: nothing is learned here
    print(
        "| network | weights | S | entropy every | plain (ms) | livi / plain | plain (GB) | memory / plain | "
        "planned time, memory | products | missed | recorded |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for name, case in CASES.items():
        if name.split(",")[0] not in chosen.only.split(","):
            continue
        torch.manual_seed(0)
        x, y = torch.randn(EXAMPLES, *case.shape, device="cuda"), torch.randint(10, (EXAMPLES,), device="cuda")
        base, base_bytes = plain(case, case.build().cuda(), x[: case.batch], y[: case.batch])
        numbers = ([int(number) for number in text.split(",")] for text in (chosen.samples, chosen.every))
        for samples, every in product(*numbers):
            trainer = plan = None
            gc.collect()  # the last one's memory is free before the next one's is counted
            trainer, plan, taken, memory = ours(case, case.build().cuda(), x, y, samples, every)
            weights = trainer.bound.posterior.num_params
            ways = ", ".join(str(way[0]) for _, way in trainer.stepper.recordings)
            print(
                f"| {name} | {weights:,} | {samples} | {every} | {1e3 * base:.2f} | {taken / base:.2f} | "
                f"{base_bytes / 1e9:.2f} | {memory / base_bytes:.2f} | "
                f"{plan.cost.seconds / taken:.2f}, {plan.cost.memory / memory:.2f} | {trainer.products} | "
                f"{float(trainer.missed / trainer.estimated):.0%} | {ways or trainer.stepper.reason} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
