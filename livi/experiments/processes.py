"""Fits in parallel processes, each with a fixed number of threads and, in turn, one of the GPUs."""

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

from livi.experiments.deadlines import NO_DEADLINE, Deadline
from livi.experiments.rows import Row

Job = TypeVar("Job")


def side_by_side(
    fit: Callable[[Job], Row | None], jobs: Sequence[Job], count: int, until: Deadline = NO_DEADLINE
) -> Iterator[Row]:
    """Yield rows as they come from `count` processes, which end with the iteration, however it ends.

    A job whose fit returns None has no row. In each process the device "cuda" is the next GPU in turn.

    Args:
        until: when to stop; fits that are running then are terminated.
    """
    before = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, spawn, _set_up, (spawn.Value("i", 0),))
    running: set[Future[Row | None]] = set()
    try:
        running |= {pool.submit(fit, job) for job in jobs}
        while running and not until.passed():
            done, running = wait(running, until.left(), FIRST_COMPLETED)
            for future in done:
                if (row := future.result()) is not None:
                    yield row
    finally:
        pool.shutdown(wait=not running, cancel_futures=True)  # idle processes exit by themselves and clean up
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Limit torch to `count` threads inside, and where scikit-learn is installed also BLAS and OpenMP."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with _limited(count):
            yield
    finally:
        torch.set_num_threads(before)


def _limited(count: int) -> AbstractContextManager[Any]:
    if find_spec("threadpoolctl") is None:  # it comes with scikit-learn
        return nullcontext()
    limits: AbstractContextManager[Any] = importlib.import_module("threadpoolctl").threadpool_limits(limits=count)
    return limits


def _set_up(started: Synchronized[int]) -> None:
    """Set up a new process: the parent alone handles Ctrl-C, and this process ends when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    take_gpu(started)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is one of its processes
    wait_for([parent.sentinel])
    os._exit(1)


def take_gpu(started: Synchronized[int]) -> None:
    """Select the next GPU in turn, by the number of processes that began before this one."""
    with started.get_lock():
        number = started.value
        started.value += 1
    if torch.cuda.device_count() > 1:
        torch.cuda.set_device(number % torch.cuda.device_count())
