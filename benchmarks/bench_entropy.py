"""Cost and accuracy of the entropy estimators, from a hundred weights to 36 million.

For each generator, in a narrow state around random weights, and each noise: seconds for value and gradient at one
latent, also as a multiple of one forward and backward pass of the generator; peak memory; and the error against the
exact log-determinant and its gradient where those are affordable. Results go to entropy.json and entropy.png.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import entropy_plot, entropy_tables
from benchmarks.entropy_measure import Row, measure, pass_seconds
from benchmarks.entropy_memory import memory_kind, peak_bytes
from benchmarks.entropy_problems import CONVERGED, ESTIMATORS, NOISES, PROBLEMS, SIZES, SPREAD, Problem, prepare
from benchmarks.entropy_reference import Reference, references
from livi import Exact, SmallestSingularValue
from livi.experiments.machine import machine, versions
from livi.family.entropy import EntropyEstimator
from livi.family.generators import Generator

QUICK = ("--sizes", "small")
FULL = ("--sizes", "all")

PATIENCE = {"cpu": 20.0, "cuda": 1.5}  # seconds of repeats for one case
MINUTES = {"cpu": 60.0, "cuda": 2.5}  # slow cases are left out when they might exceed these; past them, repeats too
MEASURABLE = 5_000  # weights; with fewer, the growth of a process on the CPU is lost in its rounding
GPU_BYTES = 100e9  # asked of the allocator as a ceiling, so that a large case fails alone


def main() -> None:
    arguments = _arguments()
    device, out = arguments.device, Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    if device == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, GPU_BYTES / total))
    wanted = SIZES if arguments.sizes == "all" else (arguments.sizes,)
    result = {
        "config": vars(arguments) | {"noises": NOISES, "spread": SPREAD, "patience": PATIENCE[device]},
        "estimators": {label: repr(estimator) for label, estimator in ESTIMATORS.items()},
        "machine": machine(),
        "versions": versions(),
        "rows": [],
    }
    clock = _Clock(60.0 * MINUTES[device])
    for problem in PROBLEMS:
        if problem.size in wanted:
            result["rows"] += _run(problem, arguments, clock)
            result["seconds"] = clock.spent()
            (out / "entropy.json").write_text(json.dumps(result, indent=1) + "\n")  # a stopped run keeps what it has
    print(entropy_tables.render(result["rows"]))
    entropy_plot.draw(result, out / "entropy.png")
    print(f"{clock.spent():.0f} s; written: {out / 'entropy.json'}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_entropy", description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--sizes", choices=[*SIZES, "all"], default="small")
    parser.add_argument("--out", default="results", help="folder for entropy.json and entropy.png")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=7)
    return parser.parse_args()


def _run(problem: Problem, arguments: argparse.Namespace, clock: _Clock) -> list[Row]:
    """All rows of one problem."""
    device = arguments.device
    generator, z = prepare(problem, device, arguments.seed)
    d, m = generator.latent_dim, generator.num_params
    weights = sum(parameter.numel() for parameter in generator.parameters())
    _say(f"{problem.name}: d={d:,} m={m:,}", clock)
    exact = _references(problem, generator, z, clock)
    memory: dict[EntropyEstimator, int | None] = {}  # on the CPU: the noise does not change it
    rows: list[Row] = []
    for noise in NOISES:
        unit = pass_seconds(generator, z)
        seen: dict[str, Row] = {}
        for label in ESTIMATORS:
            row = _case(problem, label, generator, z, noise, exact.get(noise), arguments, seen, clock)
            if device == "cpu" and m >= MEASURABLE and "skipped" not in row:
                kind = memory_kind(ESTIMATORS[label])
                if kind not in memory:
                    memory[kind] = peak_bytes(problem, label, generator, z, noise)
                row["peak_bytes"] = memory[kind]
            if "skipped" not in row:
                row["pass_ratio"] = row["seconds"] / unit
                row["bytes_per_entry"] = None if row["peak_bytes"] is None else row["peak_bytes"] / (d + m)
            seen[label] = row
            head: Row = {"problem": problem.name, "d": d, "m": m, "noise": noise, "estimator": label}
            rows.append(head | {"generator_weights": weights, "pass_seconds": unit} | row)
        _say(f"{problem.name}: noise {noise} done", clock)
    return rows


def _case(
    problem: Problem,
    label: str,
    generator: Generator,
    z: Tensor,
    noise: float,
    reference: Reference | None,
    arguments: argparse.Namespace,
    seen: dict[str, Row],
    clock: _Clock,
) -> Row:
    estimator = ESTIMATORS[label]
    if isinstance(estimator, Exact) and arguments.device not in problem.exact:
        return {"skipped": "the Jacobian and its gradient would not fit in memory"}
    if isinstance(estimator, SmallestSingularValue):
        before = seen["L'' default" if label == CONVERGED else "Lanczos 1 probe, 1e-2"]
        if "skipped" in before or (label == CONVERGED and before["converged"]):
            return before | {"same_as_default": True}
        most = 2 * estimator.block_size * estimator.max_iterations
        seconds = before["seconds"] * most / before["products"]
        if seconds > clock.left() / 4:
            return {"skipped": f"{seconds:.0f} s in the worst case, too slow for this run"}
    patience = PATIENCE[arguments.device] if clock.left() > 0 else 0.0
    settings = {"seed": arguments.seed, "repeats": arguments.repeats, "patience": patience}
    try:
        return measure(estimator, generator, z, noise, reference, **settings)
    except torch.OutOfMemoryError:
        pass  # memory is free again only once the exception is gone
    torch.cuda.empty_cache()
    return {"skipped": f"more than {GPU_BYTES / 1e9:.0f} GB of GPU memory"}


def _references(problem: Problem, generator: Generator, z: Tensor, clock: _Clock) -> dict[float, Reference]:
    device = z.device.type
    if device not in problem.reference or clock.left() == 0:
        return {}
    try:
        found = references(generator, z, NOISES, gradient=device in problem.gradient)
    except torch.OutOfMemoryError:
        return {}
    _say(f"{problem.name}: exact log-determinant {found[NOISES[0]].half_log_det * 2:.2f}", clock)
    return found


@dataclasses.dataclass
class _Clock:
    """Time since the start of the run, and what is left of it."""

    limit: float
    start: float = dataclasses.field(default_factory=time.perf_counter)

    def spent(self) -> float:
        return time.perf_counter() - self.start

    def left(self) -> float:
        return max(0.0, self.limit - self.spent())


def _say(text: str, clock: _Clock) -> None:
    print(f"[{clock.spent():6.1f} s] {text}", flush=True)


if __name__ == "__main__":
    main()
