"""The shapes of inputs in words, and remedies where they are not those that a network takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

FEW = 4  # parts that are alike and are still listed one by one
CHANNELS_FIRST = "channels come before height and width: pass x.permute(0, 3, 1, 2)"


def images_of_bytes(leaf: Tensor) -> bool:
    return leaf.ndim == 4 and leaf.dtype == torch.uint8


def shapes_in_words(inputs: Any, *, batch: bool = True) -> str:
    """Inputs as their shapes, with B for the number of examples unless `batch` is False.

    >>> import torch
    >>> shapes_in_words(torch.zeros(8, 3)), shapes_in_words(torch.zeros(8, 3), batch=False)
    ('(B, 3)', '(8, 3)')
    >>> shapes_in_words((torch.zeros(8, 3), torch.zeros(8))), shapes_in_words({"x": torch.zeros(8, 1, 2)})
    ('a tuple of (B, 3) and (B,)', "a dict of 'x': (B, 1, 2)")
    >>> shapes_in_words(["an", "id", "for", "each", "row"])
    'a list of 5 str'
    """
    if isinstance(inputs, Tensor):
        sizes = [*(["B"] if batch and inputs.ndim else []), *map(str, inputs.shape[1 if batch else 0 :])]
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
    if isinstance(inputs, Mapping):
        return f"a dict of {_and(f'{name!r}: {shapes_in_words(part, batch=batch)}' for name, part in inputs.items())}"
    if isinstance(inputs, (tuple, list)):
        parts = [shapes_in_words(part, batch=batch) for part in inputs]
        alike = len(parts) > FEW and len(set(parts)) == 1
        return f"a {type(inputs).__name__} of {f'{len(parts)} {parts[0]}' if alike else _and(parts)}"
    return type(inputs).__name__


def remedy(fitted: str, inputs: Any) -> str:
    """What to do about inputs that a network does not take, where those of the fit were `fitted` in words."""
    single = fitted.startswith("(")
    if single and isinstance(inputs, (tuple, list)):
        several = f"a {type(inputs).__name__} of {len(inputs)} is as many arguments of the network"
        return f"{several}: pass its inputs alone, without targets"
    if single and isinstance(inputs, Mapping):
        return "the names of a dict are those of the network's arguments: pass a tensor, or of batches `unpack=`"
    if single and not isinstance(inputs, Tensor):
        return "pass a tensor, an array or a list of numbers"
    if isinstance(inputs, Mapping) and fitted.startswith("a dict"):
        names = re.findall(r"'([^']*)': ", fitted)
        few = [f"add {name!r}" for name in names if name not in inputs]
        many = [f"leave out {name!r}" for name in inputs if name not in names]
        return _and(few + many) if few or many else "bring them into those shapes"
    if not single or not isinstance(inputs, Tensor):
        return "pass as many inputs as there were, in the same way"
    expected = [int(size) for size in fitted.strip("()").replace("B", "").split(",") if size.strip()]
    got = list(inputs.shape)
    if got == expected:
        return "for a single example pass x[None]"
    if got[1:] == expected and images_of_bytes(inputs):
        return "bytes want to be scaled as the images of the fit were, as by `x.float() / 255`"
    if got[1:] == expected:
        return "their shape is that of the fit: look at their values and dtype"
    if len(expected) == 3 and got[1:] == expected[1:]:
        return "images need an axis for their channels: pass x[:, None]" if expected[0] == 1 else "add the channels"
    if len(expected) == 3 and len(got) == 4 and got[1:] == [*expected[1:], expected[0]]:
        return CHANNELS_FIRST
    if len(expected) == 1 and len(got) == 2:
        return f"pass the {expected[0]} columns of the fit, in their order"
    return "bring them into that shape"


def _and(words: Any) -> str:
    *most, last = list(words) or ["nothing"]
    return f"{', '.join(most)} and {last}" if most else last
