"""Errors about inputs that a network does not take, in terms of the inputs it was fitted to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from livi import checks
from livi.model.data import shapes_in_words
from livi.model.data.conversion import check_finite
from livi.model.data.shapes import remedy
from livi.network import Layout, apply_many, as_call

FAILURES = (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError)


@torch.no_grad()
def failure(layout: Layout, inputs: Any) -> Exception | None:
    """The error that the network raises on the first two of these examples; None if it runs."""
    first = pytree.tree_map(lambda leaf: leaf[:2] if isinstance(leaf, Tensor) and leaf.ndim else leaf, inputs)
    args, kwargs = as_call(first)
    try:
        apply_many(layout, layout.flatten()[None], *args, **kwargs)
    except FAILURES as error:
        return error
    return None


@contextmanager
def inputs_refused(layout: Layout, plan: Mapping[str, Any], inputs: Any) -> Iterator[None]:
    """A context that turns errors of a network that does not take these inputs into errors about the inputs.

    Other errors, such as of memory, are left as they are.

    Args:
        plan: of the fit, whose "inputs" are what is expected.
    """
    try:
        yield
    except FAILURES as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        reason = failure(layout, inputs)
        if reason is None:
            raise
        fitted = str(plan.get("inputs", ""))
        expected = f"inputs like those of the fit, {fitted}" if fitted else "inputs like those of the fit"
        how = f"; {remedy(fitted, inputs)}" if fitted else ""
        kind = ValueError if isinstance(inputs, Tensor) else TypeError
        got = f"{shapes_in_words(inputs, batch=False)}{how}. (The network says: {reason})"
        raise kind(f"inputs: expected {expected}, got {got}") from error


def check_taken(layout: Layout, plan: Mapping[str, Any], inputs: Any) -> None:
    """Raise where the network does not take these inputs, tried on two of them; see `inputs_refused`."""
    with inputs_refused(layout, plan, inputs):
        reason = failure(layout, inputs)
        if reason is not None:
            raise reason


def check_answers(outputs: Any, inputs: Any, name: str = "inputs") -> None:
    """Raise where inputs are infinite, and where they are NaN and so are answers.

    A network that knows what to do with NaN may. What infinite numbers saturate answers with finite ones, which mean
    nothing. Answers that are NaN at finite inputs come of weights, and are left as they are.
    """
    lost = any(_any(torch.isnan, leaf) for leaf in pytree.tree_leaves(outputs))
    for leaf in pytree.tree_leaves(inputs):
        if isinstance(leaf, Tensor) and (lost or _any(torch.isinf, leaf)):
            check_finite(name, leaf)


def _any(test: Callable[[Tensor], Tensor], leaf: Any) -> bool:
    """Whether `test` holds for some number; a finite sum, which is cheap to compute, excludes NaN and infinity."""
    if not isinstance(leaf, Tensor) or not leaf.is_floating_point() or not checks.may_be_read(leaf):
        return False
    return not bool(leaf.sum().isfinite()) and bool(test(leaf).any())
