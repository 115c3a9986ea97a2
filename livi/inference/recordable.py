"""Whether a step can be recorded: a trial of it, in which what a recording forbids is an error of Python's.

A recording that meets such a thing breaks off at best. At worst the process ends: so with MAGMA, to which torch before
2.12 gives some batches of matrices, and which cannot begin its work while a step is recorded.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.torch_version import TorchVersion
from torch.utils._python_dispatch import TorchDispatchMode

HAS_MAGMA = TorchVersion(torch.__version__) < TorchVersion("2.12")
MAGMA_IN_BATCHES = (torch.ops.aten.cholesky_solve, torch.ops.aten.cholesky_inverse)


class CaptureError(RuntimeError):
    """A step that was to be captured and cannot be."""


def try_step(step: Callable[[], Any]) -> None:
    """Take a step in which an error is raised wherever it would read a result back, or go to MAGMA.

    Raises:
        RuntimeError: it would wait for the device, by torch's own account.
        CaptureError: it would go to MAGMA.
    """
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(), WithoutMagma() if HAS_MAGMA else nullcontext():
        # torch calls this mode a prototype; what it overlooks, the recording finds
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        try:
            torch.cuda.set_sync_debug_mode("error")
            step()
        finally:
            torch.cuda.set_sync_debug_mode(mode)


class WithoutMagma(TorchDispatchMode):
    """Raises a `CaptureError` for operations that torch would hand to MAGMA, which cannot be recorded."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in MAGMA_IN_BATCHES and args[0].ndim > 2:
            raise CaptureError(
                f"a batch of torch.{func.overloadpacket.__name__}, which cannot be recorded; "
                "torch.linalg.solve_triangular, twice, can"
            )
        if func.overloadpacket is torch.ops.aten.linalg_solve_triangular and _many_large(args[0]):
            raise CaptureError("a batch of torch.linalg.solve_triangular of more than 512 rows")
        return func(*args, **(kwargs or {}))


def _many_large(matrices: Tensor) -> bool:
    """More than eight matrices of more than 512 rows, which torch does not hand to cuBLAS."""
    return matrices.shape[-1] > 512 and matrices.shape[:-2].numel() > 8
