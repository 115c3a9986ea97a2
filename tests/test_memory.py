"""Freed memory is kept while a fit runs, where the C library allows it, and given back afterwards."""

import ctypes
import subprocess
import sys

import pytest

from livi.training import memory

COUNT_FAULTS = """
import resource, torch
from livi.training.memory import kept_memory

def faults(steps):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        tensors = [torch.ones(1_000_000) for _ in range(8)]
        del tensors
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
with kept_memory():
    faults(3)
    print(faults(20))
"""


@pytest.mark.skipif(memory._glibc() is None, reason="needs glibc")
def test_steps_inside_do_not_fetch_their_memory_anew():
    # 20 steps of 32 MB are some 160,000 pages of 4 kB.
    run = subprocess.run([sys.executable, "-c", COUNT_FAULTS], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 20_000


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: pytest.fail("the C library was loaded"))
    with memory.kept_memory():
        pass
