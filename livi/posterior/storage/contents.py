"""Checks of the JSON and tensors in a file, before anything is built from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi.spec import Json

_OURS = re.compile(r"(^|: )expected ")  # messages of livi's own errors
_LONGEST = 200  # characters shown of other errors' messages


def check_meta(meta: Mapping[str, Json]) -> None:
    """Raise a ValueError about the first thing that `save_posterior` would not have written."""
    _check(meta, "the metadata", state=object, layout=dict, specs=dict, learned=dict, left_out=list)
    _check(meta["layout"], "layout", forward=bool, dtype=str, slots=list, parameters=list)
    _check(meta["specs"], "specs", sampler=(dict, type(None)), likelihood=(dict, type(None)))
    _expect(not meta["specs"].keys() - {"sampler", "likelihood", "prior"}, "specs", "others than the known parts")
    for name in meta["specs"]:
        _expect(_texts(meta["learned"].get(name)), f"learned.{name}", "no list of names")
    _expect(_texts(meta["left_out"]), "left_out", "no list of names")
    _expect(_texts(meta["layout"]["slots"]), "layout.slots", "no list of names")
    _expect(_texts(meta["layout"].get("layers", [])), "layout.layers", "no list of texts")  # files of old have none
    scaling = meta["layout"].get("scaling")
    if scaling is not None:
        _check({"scaling": scaling}, "layout", scaling=dict)
        _expect(all(_numbers(scaling.get(name)) for name in ("centre", "spread")), "layout.scaling", "no numbers")


def check_state(state: Any, specs: Mapping[str, Json]) -> dict[str, Any]:
    """Check that the state has all that a posterior needs beside its specs, and return it."""
    _expect(isinstance(state, dict), "state", f"a {type(state).__name__}")
    _check(state, "state", network=(dict, type(None)), buffers=dict, history=list, plan=dict)
    _check(state, "state", **dict.fromkeys(specs, dict))
    _expect(isinstance(state.get("extra", {}), dict), "state.extra", "no dict")
    for name, tensors in {"buffers": state["buffers"], **(state["network"] or {})}.items():
        _expect(isinstance(tensors, dict), f"state.{name}", f"a {type(tensors).__name__}")
        for key, tensor in tensors.items():
            _expect(isinstance(key, str) and isinstance(tensor, Tensor), f"state.{name}", "others than tensors")
    for row in state["history"]:
        numbers = isinstance(row, dict) and all(isinstance(value, (int, float)) for value in row.values())
        _expect(numbers and _texts(list(row)), "state.history", "others than rows of numbers")
    _expect(_texts(list(state["plan"])), "state.plan", "other keys than names")
    found: dict[str, Any] = state
    return found


def check_numbers(what: str, saved: Mapping[str, Any], part: nn.Module) -> None:
    """Check that a part's saved tensors are of the same kinds as its own, and in one precision where its own are.

    Parts are made in single precision; a file may hold them in double.
    """
    precisions: dict[torch.dtype, torch.dtype] = {}
    for name, value in part.state_dict().items():
        if isinstance(value, Tensor):
            other = saved[name]
            _expect(isinstance(other, Tensor), f"{what}.{name}", f"a {type(other).__name__}")
            both = {value.dtype, other.dtype}
            right = len(both) == 1 or both <= {torch.float32, torch.float64}
            right &= precisions.setdefault(value.dtype, other.dtype) == other.dtype
            _expect(right, f"{what}.{name}", f"{other.dtype} where {precisions[value.dtype]} belongs")
    for prefix, module in part.named_modules():
        check = getattr(module, "check_loaded", None)
        if callable(check):
            start = f"{prefix}." if prefix else ""
            check({name.removeprefix(start): tensor for name, tensor in saved.items() if name.startswith(start)})


def check_calibration(calibration: Any, dtype: torch.dtype) -> None:
    """Check that calibration inputs have one number of examples, and the network's precision."""
    if calibration is None:
        return
    tensors = [leaf for leaf in pytree.tree_leaves(calibration) if isinstance(leaf, Tensor)]
    _expect(len({len(tensor) if tensor.ndim else -1 for tensor in tensors}) == 1, "state.calibration", "no examples")
    for tensor in tensors:
        right = not tensor.is_floating_point() or tensor.dtype == dtype
        _expect(right, "state.calibration", f"{tensor.dtype} where {dtype} belongs")


def complaint(error: Exception) -> str:
    """An error of reading in words: its own message if it has one, else that the file is not as livi writes it."""
    if _OURS.search(str(error)):
        return str(error)
    if isinstance(error, RecursionError):
        got = "lists within lists, too deep to read"
    elif isinstance(error, KeyError):
        got = f"nothing called {error}"
    else:
        first = str(error).partition("\n")[0]
        got = f"{type(error).__name__}: {first[:_LONGEST]}"
    return f"expected content as livi writes it, got {got}; save it again, or use the version that saved it."


def _check(found: Any, where: str, **kinds: Any) -> None:
    for name, kind in kinds.items():
        _expect(name in found, where, f"nothing called {name!r}")
        _expect(isinstance(found[name], kind), f"{where}.{name}", f"a {type(found[name]).__name__}")


def _expect(right: bool, where: str, got: str) -> None:
    if not right:
        raise ValueError(f"{where}: expected content as livi writes it, got {got}; copy or save it again.")


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) in (int, float) for item in value)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
