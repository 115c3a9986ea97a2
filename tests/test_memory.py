"""Freed memory is kept while a fit runs, where the C library allows it, and given back afterwards."""

import ctypes
import os
import subprocess
import sys

import pytest

from livi.running import memory

COUNT_FAULTS = """
import resource, torch
from livi.running import kept_memory

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


# Whether a block of 1 MB comes from pages of its own (1) or from the heap (0), before a fit, within and behind it.
COUNT_OWN_PAGES = """
import ctypes
from livi.running import kept_memory

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Info
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
library.free.argtypes = (ctypes.c_void_p,)

def own_pages():
    before = library.mallinfo2().hblks
    block = library.malloc(1 << 20)
    found = library.mallinfo2().hblks - before
    kept.append(block)  # freeing it would teach glibc something
    return found

kept = []
print(own_pages())
with kept_memory():
    print(own_pages())
print(own_pages())
"""


def own_pages(**settings):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | settings
    run = subprocess.run(
        [sys.executable, "-c", COUNT_OWN_PAGES], capture_output=True, text=True, check=True, env=environment
    )
    return [int(line) for line in run.stdout.split()]


needs_mallinfo = pytest.mark.skipif(
    memory._glibc() is None or not hasattr(memory._glibc(), "mallinfo2"), reason="needs glibc 2.33 or later"
)


@needs_mallinfo
def test_settings_of_the_user_s_own_hold_within_a_fit_and_behind_it():
    assert own_pages(MALLOC_MMAP_THRESHOLD_="65536") == [1, 1, 1]
    assert own_pages(MALLOC_TRIM_THRESHOLD_="65536", MALLOC_MMAP_THRESHOLD_="2097152") == [0, 0, 0]


@needs_mallinfo
def test_a_fit_takes_its_blocks_from_the_heap():
    assert own_pages()[1] == 0


def test_no_setting_of_the_c_library_is_changed(monkeypatch):
    class Library:
        """glibc, but for mallopt, whose settings could not be put back."""

        def __init__(self):
            self.calls = []
            for name in ("malloc", "free", "malloc_trim"):
                setattr(self, name, self._recorder(name))

        def _recorder(self, name):
            def record(*args):
                self.calls.append((name, *args))
                return 7

            return record

    library = Library()
    monkeypatch.setattr(memory, "_glibc", lambda: library)
    with memory.kept_memory():
        assert library.calls == [("malloc", memory._LARGEST), ("free", 7)]
    assert library.calls[2:] == [("malloc_trim", 0)]


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: pytest.fail("the C library was loaded"))
    with memory.kept_memory():
        pass
