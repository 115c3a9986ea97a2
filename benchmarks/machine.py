"""The machine and the versions behind a measurement, without names of hosts or users."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

import livi


def describe() -> dict[str, object]:
    """CPU, cores, threads, memory, GPU and versions, ready for JSON."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": _memory_gib(),
        "gpu": gpu,
        "cuda": torch.version.cuda if gpu else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "livi": livi.__version__,
    }


def _cpu_model() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError):  # not every system has sysconf
        return None
