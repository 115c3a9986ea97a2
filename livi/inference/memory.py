"""Freed memory kept for the next step, instead of returned to the system and fetched again page by page."""

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
    it is free: each step would then begin with thousands of page faults. How much is a little it learns by itself:
    after a block of its own pages has been freed, blocks of up to that size come from the heap, and twice that size
    stays there. So a block of 32 MB is allocated, never touched, and freed, as any program might do; no setting is
    changed. (mallopt would change some for good: they cannot be read, so not put back, and setting any of them ends
    the learning for the rest of the process.) What glibc has learned stays learned, and settings of the user's own, by
    MALLOC_..._ variables or mallopt, stay in force. Afterwards free memory goes back to the system. Other C libraries
    are left alone.
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
