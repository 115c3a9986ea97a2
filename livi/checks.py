"""Argument checks. Their errors say in one sentence what was expected, what came, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from operator import index

import torch
from torch import Tensor


def positive_int(name: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}.")
    if value < 1:
        raise ValueError(f"{name}: expected at least 1, got {value}.")
    return value


def positive_float(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}.")
    if not 0.0 < value < float("inf"):
        raise ValueError(f"{name}: expected a positive, finite number, got {value}.")
    return float(value)


def options(
    function: str, given: Iterable[str], known: Iterable[str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Raise a TypeError about the first unknown name, which suggests the nearest one or says where it belongs.

    Args:
        elsewhere: what other names are, and how to pass them.

    >>> options("save", ["draw"], ["draws", "extra"])
    Traceback (most recent call last):
    TypeError: save: got 'draw'; did you mean 'draws'?
    """
    names, others = list(known), dict(elsewhere or {})
    for name in given:
        if name in names:
            continue
        if name in others:
            raise TypeError(f"{function}: got {name!r}, which is {others[name]}.")
        near = get_close_matches(name, [*names, *others], n=1)
        if not near:
            raise TypeError(f"{function}: expected options among {', '.join(names)}, got {name!r}; correct the name.")
        where = f" It is {others[near[0]]}." if near[0] in others and near[0] not in names else ""
        raise TypeError(f"{function}: got {name!r}; did you mean {near[0]!r}?{where}")


def numbers(value: float | Sequence[float] | Tensor) -> Tensor:
    """Convert numbers to a tensor of torch's default dtype, on its default device; a tensor is returned unchanged."""
    return value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.get_default_dtype())


def seed(value: int) -> int:
    """Return a seed as an int if torch's random generators accept it; numpy's integers are allowed."""
    try:
        found = index(value)
    except TypeError:
        found = None
    if found is None or isinstance(value, bool):
        raise TypeError(f"seed: expected an int, got {type(value).__name__} {value!r}; pass a number such as 0.")
    if not -(2**63) <= found < 2**63:
        raise ValueError(f"seed: expected -2**63 to 2**63 - 1, got {found}; pass a smaller number.")
    return found


def rng(name: str, value: torch.Generator | None) -> torch.Generator | None:
    """Return the value if it is a torch.Generator or None, which stands for torch's global one."""
    if value is None or isinstance(value, torch.Generator):
        return value
    kind = type(value).__name__
    seed = value if isinstance(value, int) and not isinstance(value, bool) else 0
    got = f"{kind} {value}" if isinstance(value, int) else kind
    raise TypeError(
        f"{name}: expected a torch.Generator or None, got {got}; pass torch.Generator().manual_seed({seed})."
    )


def device(value: torch.device | str) -> torch.device:
    """Return the device, if tensors can be allocated on it here."""
    if not isinstance(value, torch.device | str | int):  # torch takes a GPU's number too
        raise TypeError(
            f"device: expected a torch.device or its name, got {type(value).__name__} {value}; pass 'cpu' or 'cuda'. "
            "Precision is that of the network when it is fitted."
        )
    try:
        return torch.empty(0, device=value).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0].split(". ")[0].rstrip(".")
        raise ValueError(
            f"device: expected one that torch can use here, got {str(value)!r} ({reason}); pass device='cpu', or "
            "install a build of torch for it."
        ) from error


def autocast(value: torch.dtype | None) -> torch.dtype | None:
    """Return the dtype of mixed precision if torch.autocast has it on every device, or None for full precision."""
    if value is not None and not isinstance(value, torch.dtype):
        raise TypeError(
            f"autocast: expected torch.bfloat16 or None, got {type(value).__name__} {value!r}; pass torch.bfloat16."
        )
    if value not in (None, torch.bfloat16, torch.float16):
        raise ValueError(f"autocast: expected torch.bfloat16 or None, got {value}; leave it out for full precision.")
    return value


def has_doubles(name: str, value: torch.device) -> torch.device:
    """Return the device if it has float64, in which log-determinants, evidences and sums over the data are computed."""
    if value.type == "mps":
        raise ValueError(
            f"{name}: expected a device with float64, in which parts of a fit are computed, got {str(value)!r}, which "
            "has none; pass device='cpu'."
        )
    return value


def may_be_read(tensor: Tensor) -> bool:
    """False while a CUDA graph is recorded, or where torch forbids waiting for a GPU: values cannot be read then.

    A check that would read them to raise an error must let NaN through instead.
    """
    if not tensor.is_cuda:
        return True
    return not torch.cuda.is_current_stream_capturing() and torch.cuda.get_sync_debug_mode() < 2


def rows_in_words(sound: Tensor) -> str:  # (B, ...) of bool
    """Say how many rows are not sound, and number the first of them.

    >>> rows_in_words(torch.tensor([[True, True], [True, False], [True, True]]))
    'in 1 of 3 rows (numbers 1, counted from 0)'
    """
    each = sound.reshape(len(sound), -1).all(1) if sound.ndim else sound[None]
    rows = (~each).nonzero().flatten().tolist()
    few = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
    return f"in {len(rows)} of {len(each)} rows (numbers {few}, counted from 0)"


def matrix(name: str, value: Tensor, columns: int) -> Tensor:
    """Return the value if it is a floating-point tensor of shape (rows, columns) with at least one row."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(value).__name__}.")
    if value.ndim != 2 or value.shape[1] != columns or value.shape[0] < 1:
        raise ValueError(
            f"{name}: expected shape (num_samples >= 1, {columns}), got {tuple(value.shape)}; "
            f"a single vector needs a leading sample axis, as in `{name}[None]`."
        )
    if not value.is_floating_point():
        raise TypeError(f"{name}: expected a floating-point tensor, got {value.dtype}; convert with `.float()`.")
    return value


def vector(name: str, value: Tensor, size: int) -> Tensor:
    """Return the value if it is a finite floating-point tensor of shape (size,)."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(value).__name__}.")
    if value.shape != (size,):
        raise ValueError(f"{name}: expected shape ({size},), got {tuple(value.shape)}.")
    if not value.is_floating_point():
        raise TypeError(f"{name}: expected a floating-point tensor, got {value.dtype}; convert with `.float()`.")
    if not torch.isfinite(value).all():
        raise ValueError(f"{name}: expected finite numbers, got {int((~torch.isfinite(value)).sum())} NaN or inf.")
    return value


def same_kind(name: str, value: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the value if it has this dtype and is on this device."""
    if value.dtype != dtype or value.device != device:
        raise ValueError(
            f"{name}: expected {dtype} on {device}, got {value.dtype} on {value.device}; "
            f"convert with `{name}.to({str(device)!r}, {dtype})`."
        )
    return value


def sizes(name: str, values: Sequence[int], total: int) -> tuple[int, ...]:
    """Return the values as a tuple if they are positive ints that add up to `total`."""
    for value in values:
        positive_int(f"each of {name}", value)
    if sum(values) != total:
        raise ValueError(f"{name}: expected sizes that add up to {total}, got {tuple(values)} with sum {sum(values)}.")
    return tuple(values)
