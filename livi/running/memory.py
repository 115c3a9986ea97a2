"""Keeps freed memory in the process between steps, instead of returning it and fetching it again page by page."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# In bytes, with room for glibc's own header and whole pages: just below 32 MB, the largest block that glibc takes from
# its own heap (DEFAULT_MMAP_THRESHOLD_MAX).
_LARGEST = (32 << 20) - (64 << 10)


@contextmanager
def kept_memory() -> Iterator[None]:
    """While a fit runs, the C library keeps what tensors free: a step of a few megabytes takes an eighth less time.

    Every step frees what it allocated, and glibc returns the end of its heap to the system when more than a little of
    it is free: each step would then begin with thousands of page faults. Its threshold adapts: after a block that was
    mapped from the system is freed, blocks of up to that size come from the heap, and twice that size stays there. So a
    block of 32 MB is allocated, never touched, and freed; no setting is changed. (mallopt would change settings for
    good, since they cannot be read and so not restored, and would end the adapting for the rest of the process.) The
    adapted threshold remains, and the user's own settings, by MALLOC_..._ variables or mallopt, stay in force. On
    leaving, free memory goes back to the system. Other C libraries are left alone.
    """
    library = _glibc()
    if library is None:
        yield
        return
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    library.free.restype, library.free.argtypes = None, (ctypes.c_void_p,)
    library.free(library.malloc(_LARGEST))
    try:
        yield
    finally:
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    has_all = all(hasattr(library, name) for name in ("malloc", "free", "malloc_trim", "gnu_get_libc_version"))
    return library if has_all else None
