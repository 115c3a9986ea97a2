"""Markov chains on small networks: a gradient and a step, written out and by autograd, as ratios within one run.

python -m benchmarks.bench_chain_step [--device cpu|cuda] [--repeats N]

Eight chains on all rows of a table, under the noise that the network gives, as in `LIVIRegressor(noise="network")`.
Microseconds are medians of single calls, of CPU time but on a GPU, and calls take turns, so that other work on the
machine meets all alike.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from livi.model.likelihoods import HeteroscedasticGaussian
from livi.model.priors import Normal
from livi.model.problem import Problem
from livi.network.evaluation import synchronise
from livi.running import kept_memory
from livi.sampling.chains import ENERGY_ERROR, Differentiated, MovingChains
from livi.sampling.log_joint import by_autograd, written_out

QUICK = ("--repeats", "50")
FULL = ("--repeats", "500")
CHAINS = 8
TABLES = ((277, 6), (455, 13), (691, 8), (927, 8), (5000, 8))  # rows and inputs: yacht, boston, energy, concrete, more


def gradients(rows: int, inputs: int, device: str) -> tuple[Differentiated, Differentiated, Tensor]:
    """By autograd and written out, and weights of all chains."""
    torch.manual_seed(0)
    layers = [nn.Linear(inputs, 16), nn.GELU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 2)]
    x = torch.randn(rows, inputs)
    y = x[:, :1].sin() + 0.1 * torch.randn(rows, 1)
    likelihood = HeteroscedasticGaussian(1e-3)
    options = {"prior": Normal(1.0), "standardise": False, "batch_size": rows, "device": device}
    problem = Problem.of(nn.Sequential(*layers), (x, y), likelihood, **options)
    blocks = [problem.data.first()]
    written = written_out(problem, blocks)
    assert written is not None
    theta = problem.layout.flatten() + 0.1 * torch.randn(CHAINS, problem.layout.num_params).to(device)
    return by_autograd(problem, blocks), written, theta


def step_of(target: Differentiated, theta: Tensor) -> Callable[[], object]:
    """A step of the chains, in the warm-up."""
    rng = torch.Generator(theta.device).manual_seed(0)
    chains = MovingChains(target, theta, (ENERGY_ERROR, ENERGY_ERROR), rng)
    return lambda: chains.adapt(*chains.advance(), 0.3)


@torch.no_grad()
def measured(ways: list[Callable[[], object]], theta: Tensor, repeats: int) -> list[float]:
    """Median microseconds of each."""
    clock = time.perf_counter if theta.is_cuda else time.process_time
    found: list[list[float]] = [[] for _ in ways]
    for _ in range(repeats + 5):
        for way, seconds in zip(ways, found, strict=True):
            synchronise(theta)
            started = clock()
            way()
            synchronise(theta)
            seconds.append(clock() - started)
    return [1e6 * statistics.median(seconds[5:]) for seconds in found]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_chain_step", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=200)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| rows, inputs | gradient: autograd (us) | written out | ratio | step: autograd (us) | written out | ratio |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for rows, inputs in TABLES:
        automatic, written, theta = gradients(rows, inputs, chosen.device)
        steps = [step_of(target, theta) for target in (automatic, written)]
        with kept_memory():
            a, b, c, d = measured(
                [lambda: automatic(theta), lambda: written(theta), *steps],  # noqa: B023
                theta,
                chosen.repeats,
            )
        print(f"| {rows:,}, {inputs} | {a:.0f} | {b:.0f} | {b / a:.2f} | {c:.0f} | {d:.0f} | {d / c:.2f} |", flush=True)


if __name__ == "__main__":
    main()
