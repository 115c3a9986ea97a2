"""Peak memory of an estimator on the CPU: a fresh process for each case, so that nothing before it counts.

The kernel only knows the largest size that a process ever had. The child therefore does as little as it can before
the measurement: it runs the estimator once on a toy, so that libraries are loaded and their buffers exist, loads the
prepared weights without initialising a generator, and reports by how much the one real call raised the peak. That is
good to a few megabytes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.entropy_measure import value_and_gradient
from benchmarks.entropy_problems import ESTIMATORS, PROBLEMS, Problem
from livi import MLP, Lanczos, SmallestSingularValue
from livi.family.entropy import EntropyEstimator
from livi.family.generators import Generator

_ITERATIONS = 20  # enough for every buffer to exist: a later iteration adds a few numbers at most


def memory_kind(estimator: EntropyEstimator) -> EntropyEstimator:
    """The estimator with a fixed number of iterations: tolerances and limits do not change its memory."""
    if isinstance(estimator, (Lanczos, SmallestSingularValue)):
        return dataclasses.replace(estimator, tolerance=0.0, max_iterations=_ITERATIONS)
    return estimator


def peak_bytes(problem: Problem, label: str, generator: Generator, z: Tensor, noise_std: float) -> int | None:
    """Of value and gradient for one latent; None where the system does not tell."""
    if sys.platform == "win32":
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.pt"
        torch.save((generator.state_dict(), z, noise_std), path)
        command = [sys.executable, "-m", "benchmarks.entropy_memory", problem.name, label, str(path)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(json.loads(output))


def _child(name: str, label: str, path: str) -> int:
    problem = next(problem for problem in PROBLEMS if problem.name == name)
    estimator = memory_kind(ESTIMATORS[label])
    toy = MLP(40, 80)
    value_and_gradient(estimator, toy, torch.zeros(1, 40), torch.tensor(0.1), 0)
    with torch.device("meta"):
        generator = problem.build()
    state, z, noise_std = torch.load(path)
    generator.load_state_dict(state, assign=True)
    before = _peak_so_far()
    value_and_gradient(estimator, generator, z, torch.tensor(noise_std), 0)
    return _peak_so_far() - before


def _peak_so_far() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would start from the peak of the parent here
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    import resource  # not on every system

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    print(json.dumps(_child(*sys.argv[1:])))
