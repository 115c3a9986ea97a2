"""Time, memory and accuracy of one entropy estimator on one generator."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from benchmarks.entropy_reference import Reference
from livi.family.entropy import EntropyEstimate, EntropyEstimator
from livi.family.generators import Generator

T = TypeVar("T")
Row = dict[str, object]
Run = tuple[EntropyEstimate, float, tuple[float, float] | None]  # with its seconds and the errors of its gradient


def timed(call: Callable[[], T], device: str) -> tuple[T, float]:
    """What the call returns, and the seconds until the device has finished it.

    A single CPU thread is timed by the processor's clock for this process, so that other work on the machine counts
    less; anything else by the clock on the wall.
    """
    clock = time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    _synchronise(device)
    start = clock()
    result = call()
    _synchronise(device)
    return result, clock() - start


def pass_seconds(generator: Generator, z: Tensor, repeats: int = 7) -> float:
    """Median seconds of one forward and backward pass of the generator: the unit of the ratios."""

    def once() -> None:
        generator.zero_grad()
        generator(z).sum().backward()

    once()
    return statistics.median(timed(once, z.device.type)[1] for _ in range(repeats))


def value_and_gradient(
    estimator: EntropyEstimator, generator: Generator, z: Tensor, noise: Tensor, seed: int
) -> EntropyEstimate:
    """The estimate, with its gradient left in the generator's parameters."""
    generator.zero_grad()
    estimate = estimator(generator, z, noise, torch.Generator().manual_seed(seed))
    estimate.nats.sum().backward()
    return estimate


def measure(
    estimator: EntropyEstimator,
    generator: Generator,
    z: Tensor,  # (1, d)
    noise_std: float,
    reference: Reference | None,
    *,
    seed: int,
    repeats: int,
    patience: float,
) -> Row:
    """One row: medians over repeats, each with its own probes, until `patience` seconds are spent.

    A first call warms up; where that call alone outlasts the patience it is taken as the measurement, and the time of
    the value alone is left out.
    """
    device = z.device.type
    noise = torch.tensor(noise_std, device=z.device)

    def full(k: int) -> tuple[EntropyEstimate, float]:
        return timed(lambda: value_and_gradient(estimator, generator, z, noise, seed + k), device)

    def value_only(k: int) -> float:
        with torch.no_grad():
            return timed(lambda: estimator(generator, z, noise, torch.Generator().manual_seed(seed + k)), device)[1]

    memory = _CudaMemory(device)
    estimate, warm_up = full(0)
    row: Row = {"peak_bytes": memory.peak()}
    runs: list[Run] = [(estimate, warm_up, _gradient_errors(generator, reference))]
    value_times: list[float] = []
    if warm_up <= patience:
        runs, spent = [], 0.0
        while len(runs) < repeats and spent <= patience:
            estimate, seconds = full(len(runs))
            runs.append((estimate, seconds, _gradient_errors(generator, reference)))
            value_times.append(value_only(len(runs)))
            spent += seconds + value_times[-1]
    row |= {
        "repeats": len(runs),
        "seconds": statistics.median(seconds for _, seconds, _ in runs),
        "seconds_value": statistics.median(value_times) if value_times else None,
    }
    return row | _accuracy(runs, reference) | _report(runs[0][0])


def _accuracy(runs: list[Run], reference: Reference | None) -> Row:
    """Errors of nats: their mean, which shows a bias, and their root mean square; gradients: averages over runs."""
    row: Row = {"nats": float(runs[0][0].nats.detach())}
    if reference is None:
        return row
    errors = [float(estimate.nats.detach()) - reference.nats for estimate, _, _ in runs]
    row |= {
        "half_log_det": reference.half_log_det,
        "error_nats": statistics.fmean(errors),
        "error_rms_nats": statistics.fmean(error**2 for error in errors) ** 0.5,
    }
    row["error_percent"] = 100.0 * row["error_rms_nats"] / reference.half_log_det
    slopes = [slope for _, _, slope in runs if slope is not None]
    if slopes:
        row["gradient_cosine"] = statistics.fmean(cosine for cosine, _ in slopes)
        row["gradient_error"] = statistics.fmean(error for _, error in slopes)
    return row


def _gradient_errors(generator: Generator, reference: Reference | None) -> tuple[float, float] | None:
    """Cosine with the exact gradient, and relative error."""
    if reference is None or reference.gradient is None:
        return None
    slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in generator.parameters()]
    found, exact = torch.cat([slope.flatten() for slope in slopes]).double(), reference.gradient
    return float(found @ exact / (found.norm() * exact.norm())), float((found - exact).norm() / exact.norm())


def _report(estimate: EntropyEstimate) -> Row:
    report = estimate.report
    fields = {
        "residual": report.residual,
        "standard_error": report.standard_error,
        "truncation": report.truncation,
        "condition": report.condition,
    }
    numbers = {name: None if value is None else float(value[0]) for name, value in fields.items()}
    return {"products": report.products, "converged": bool(report.converged.all()), **numbers}


class _CudaMemory:
    """Bytes allocated on the GPU above what was there, at the peak; None on the CPU (see `entropy_memory`)."""

    def __init__(self, device: str) -> None:
        self.on = device == "cuda"
        if self.on:
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()

    def peak(self) -> int | None:
        return torch.cuda.max_memory_allocated() - self.before if self.on else None


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
