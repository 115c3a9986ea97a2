"""The machine and versions that a measurement depends on, without names of hosts or users."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch

from livi.version import __version__


def machine() -> dict[str, str | int | float | None]:
    """CPU, cores, threads, memory and GPU, ready for JSON; None for what is absent or unknown."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": _memory_gib(),
        "gpu": gpu,
        "cuda": torch.version.cuda if gpu else None,
        "system": platform.system(),
    }


def versions(packages: Iterable[str] = ()) -> dict[str, str | None]:
    """Versions of livi, torch, numpy, Python and these packages; None for those that are not installed."""
    return {
        "livi": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    } | {name: _installed(name) for name in packages}


def forget_peak_memory() -> None:
    """Reset the peak that `peak_memory` reports, where the system allows it (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory() -> float | None:
    """Peak memory of this process in MB since `forget_peak_memory`, PyTorch itself included; None if unknown."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) * 1024 / 1e6, 1)
    return None


def _installed(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None


def _cpu_model() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError):  # not every system has sysconf
        return None
