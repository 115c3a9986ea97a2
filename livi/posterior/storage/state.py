"""Nested state, such as an optimiser's, as a flat dict of tensors and a JSON skeleton; and back, exactly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from livi.posterior.storage.contents import complaint
from livi.posterior.storage.file import StorageError, read, write
from livi.spec import Json, from_json, to_json


def write_checkpoint(path: str | Path, state: Any) -> None:
    """Any nested state (see `flatten_state`) in one file, as atomically as `write` does."""
    tensors, skeleton = flatten_state("", state)
    write(path, tensors, {"kind": "checkpoint", "state": skeleton})


def read_checkpoint(path: str | Path) -> Any:
    """The state that `write_checkpoint` was given, its tensors on the CPU.

    Raises:
        StorageError: as from `read`, or the file is not a checkpoint.
    """
    tensors, meta = read(path)
    check_kind(path, meta, "checkpoint")
    try:
        return unflatten_state(tensors, meta["state"])
    except Exception as error:  # a file can hold anything
        raise StorageError(f"{path}: {complaint(error)}") from error


def check_kind(path: str | Path, meta: Mapping[str, Any], kind: str) -> None:
    if meta.get("kind") != kind:
        raise StorageError(f"{path}: expected a {kind}, got a {meta.get('kind')}; check the path.")


def flatten_state(prefix: str, state: Any) -> tuple[dict[str, Tensor], Json]:
    """The tensors of a nested state under dotted names that begin with the prefix, and the JSON of everything else.

    The state is made of dicts (with any plain keys), lists, tuples, numbers, strings, None, dtypes and tensors. Floats
    keep every bit. Tensors are detached, not copied.

    Raises:
        TypeError: the state holds something else.

    >>> import torch
    >>> flatten_state("adam", {0: {"step": torch.tensor(3.0), "betas": (0.9, 0.99)}})
    ({'adam.0.step': tensor(3.)}, {'dict': [[0, {'dict': [['step', {'tensor': 'adam.0.step'}], ...]]})
    """
    tensors: dict[str, Tensor] = {}

    def other(value: Any, path: str) -> Json:
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{path}: expected None, numbers, strings, tensors, or dicts, lists and tuples of these, "
                f"got {type(value).__name__}; convert or drop it."
            )
        name = _free(path, tensors)
        tensors[name] = value.detach()
        return {"tensor": name}

    return tensors, to_json(state, other, prefix)


def unflatten_state(tensors: Mapping[str, Tensor], skeleton: Json) -> Any:
    """What `flatten_state` was given. `tensors` may hold others besides, such as all those of a file.

    Raises:
        ValueError: the skeleton is not from `flatten_state`, or needs a tensor that is missing.
    """

    def other(tag: str, name: Json) -> Any:
        if tag != "tensor" or name not in tensors:
            raise ValueError(f"expected a tensor from a flattened state, got {tag} {name!r}; pass all of its tensors.")
        return tensors[name]

    return from_json(skeleton, other)


def _free(path: str, taken: Mapping[str, Tensor]) -> str:
    """The path in plain letters; numbered where that makes two the same."""
    name = number = re.sub(r"[^\w.\-]", "_", path, flags=re.ASCII)
    count = 1
    while number in taken:
        count += 1
        number = f"{name}~{count}"
    return number
