"""Tensors from whatever holds numbers: arrays, tables, lists, nested in tuples and dicts."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from livi import checks


def as_tensor(leaf: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """What holds numbers as a tensor on the device, floating ones in the network's dtype; anything else unchanged.

    Results of `torch.inference_mode`, such as features of a frozen network, are copied, for autograd refuses them.
    """
    if not holds_numbers(leaf):
        return leaf
    tensor = to_tensor("data", leaf)
    tensor = tensor.to(device, dtype if tensor.is_floating_point() else None)
    return tensor.clone() if tensor.is_inference() and not torch.is_inference_mode_enabled() else tensor


def as_tensors(tree: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """`as_tensor` of every leaf of a tuple or dict; a list of numbers is a leaf."""
    return pytree.tree_map(lambda leaf: as_tensor(leaf, device, dtype), tree, is_leaf=holds_numbers)


def detached(tree: Any) -> Any:
    """The same without what it was computed by, such as another network: data of a fit have no gradients."""
    return pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, tree)


def to_tensor(name: str, value: Any) -> Tensor:
    """A tensor of what holds numbers: a tensor, an array, a table or a column of one, a list, nested or not.

    >>> to_tensor("inputs", [[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])

    Raises:
        TypeError, ValueError: it holds something else, or rows of different lengths.
    """
    if isinstance(value, Tensor):
        return value
    if not is_array(value) and not isinstance(value, list):
        raise TypeError(f"{name}: expected tensors, arrays or lists of numbers, got {type(value).__name__}.")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: expected rows of one length, got a list of lists of several; pad them.") from error
    if array.dtype.kind not in "biufc":
        array = _numbers(name, value, array)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.require(native, requirements=["C", "W"]))  # a table's own memory is read-only


def _numbers(name: str, value: Any, array: Any) -> Any:
    """Numbers from an array of objects, as a table with columns of several types gives."""
    columns = getattr(value, "columns", None)
    for place, entry in np.ndenumerate(array.astype(object)):
        if not isinstance(entry, numbers.Real):
            where = f" in column {columns[place[1]]!r}" if columns is not None else ""
            raise TypeError(
                f"{name}: expected numbers, got {type(entry).__name__} {entry!r}{where}; "
                "encode words and classes as numbers, and drop or impute what is missing."
            )
    return array.astype(np.float64)


def is_array(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) or hasattr(leaf, "__array__")


def is_column(value: Any) -> bool:
    """An array, or a list without arrays in it, which is meant to be one."""
    return is_array(value) or (isinstance(value, list) and not any(map(is_array, pytree.tree_leaves(value))))


def holds_numbers(value: Any) -> bool:
    if not isinstance(value, list):
        return is_array(value)
    leaves = pytree.tree_leaves(value)
    return bool(leaves) and all(isinstance(leaf, numbers.Real) for leaf in leaves)


def check_finite(name: str, values: Tensor) -> None:
    """Raise where a number is not finite. A finite sum, which is cheap, says that all are."""
    if values.is_floating_point() and not bool(torch.isfinite(values.sum())) and not bool(torch.isfinite(values).all()):
        raise ValueError(
            f"{name}: expected finite numbers, got NaN or inf {checks.rows_in_words(torch.isfinite(values))}; leave "
            "those rows out or impute them first."
        )
