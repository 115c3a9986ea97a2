"""A limit on the memory that may be allocated while a posterior is rebuilt from the description in a file.

A description is text that anyone can edit: 55 kB of file may speak of a layer of 10**12 weights. Tensors that a file
brings are as large as the file, and what is built to hold them is not much larger, so that there is a limit.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

MULTIPLE = 8  # of the bytes of the file's tensors: made in single precision, converted, copied
LEAST = 64 * 2**20  # bytes that any file may ask for
OVERHEAD = 16384  # bytes for each tensor with the module around it, so that a million small layers count too


class Allowance(TorchDispatchMode):
    """Refuses operations whose results would exceed a number of bytes in all, before they are carried out.

    Each operation is tried on the meta device first, where results have shapes and no memory.

    Args:
        stored: bytes of tensors that there are already, in the file and in a network that was given.

    >>> with Allowance(stored=1000) as allowance:
    ...     small = torch.zeros(10, 10)
    >>> with Allowance(stored=1000):
    ...     torch.zeros(10**6, 10**6)
    Traceback (most recent call last):
        ...
    MemoryError: expected parts as large as the tensors in the file, 1,000 bytes, got a description that asks for ...
    """

    def __init__(self, stored: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stored, self.left, self.refusal = stored, MULTIPLE * stored + LEAST, ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        asked = _asked(func, args, kwargs or {})
        self.left -= asked
        if self.left < 0:
            self.refusal = (
                f"expected parts as large as the tensors in the file, {self.stored:,} bytes, got a description that "
                f"asks for {asked:,} bytes more than there is room for; it was changed or damaged: save it again."
            )
            raise MemoryError(self.refusal)
        return func(*args, **(kwargs or {}))


def _asked(func: Any, args: Any, kwargs: Any) -> int:
    """Bytes of new memory that an operation is going to allocate; 0 for views and in-place operations."""
    if any(result.alias_info is not None for result in func._schema.returns):
        return 0
    try:
        if any(argument.name == "device" for argument in func._schema.arguments):
            kwargs = kwargs | {"device": torch.device("meta")}
        made = func(*pytree.tree_map(_on_meta, args), **pytree.tree_map(_on_meta, kwargs))
    except (RuntimeError, NotImplementedError, TypeError, ValueError):  # a result that depends on values
        return _guessed(args)
    return sum(_bytes(leaf) + OVERHEAD for leaf in pytree.tree_leaves(made) if isinstance(leaf, Tensor))


def _on_meta(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype, device="meta")


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _guessed(args: Any) -> int:
    """A guess of the size of a result: that of the inputs, or of a list of sizes as the first argument."""
    sizes = args[0] if args and isinstance(args[0], (list, tuple)) else ()
    given = sum(_bytes(leaf) for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor))
    declared = math.prod(sizes) * 8 if sizes and all(type(size) is int for size in sizes) else 0
    return max(given, declared) + OVERHEAD
