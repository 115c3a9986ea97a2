"""Many fits at a time, each in a process of its own, with a fixed number of threads, and GPUs in turn."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from multiprocessing.connection import wait as wait_for
from multiprocessing.sharedctypes import Synchronized
from typing import Any, TypeVar

import torch

from livi.experiments.deadlines import FOR_EVER, Deadline
from livi.experiments.rows import Row

Job = TypeVar("Job")


def side_by_side(
    fit: Callable[[Job], Row | None], jobs: Sequence[Job], count: int, until: Deadline = FOR_EVER
) -> Iterator[Row]:
    """Rows as they come from so many processes; these end with the iteration, however it ends.

    A job that gives None has no row. The device "cuda" is another GPU in every process, as far as there are several.

    Args:
        until: when to stop: fits that are under way then are given up.
    """
    before = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, spawn, _begin, (spawn.Value("i", 0),))
    running: set[Future[Row | None]] = set()
    try:
        running |= {pool.submit(fit, job) for job in jobs}
        while running and not until.passed():
            done, running = wait(running, until.left(), FIRST_COMPLETED)
            for one in done:
                if (row := one.result()) is not None:
                    yield row
    finally:
        pool.shutdown(wait=not running, cancel_futures=True)  # idle ones end by themselves, and leave nothing behind
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """As many threads for torch, and where scikit-learn is installed for BLAS and OpenMP."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with _limited(count):
            yield
    finally:
        torch.set_num_threads(before)


def _limited(count: int) -> AbstractContextManager[Any]:
    if find_spec("threadpoolctl") is None:  # which comes with scikit-learn
        return nullcontext()
    limits: AbstractContextManager[Any] = importlib.import_module("threadpoolctl").threadpool_limits(limits=count)
    return limits


def _begin(begun: Synchronized[int]) -> None:
    """What a process does first. Interrupts are left to the parent, and whoever kills that ends its processes too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    take_gpu(begun)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is one of its processes
    wait_for([parent.sentinel])
    os._exit(1)


def take_gpu(begun: Synchronized[int]) -> None:
    """The next GPU in turn, by how many processes have begun before this one."""
    with begun.get_lock():
        number = begun.value
        begun.value += 1
    if torch.cuda.device_count() > 1:
        torch.cuda.set_device(number % torch.cuda.device_count())
