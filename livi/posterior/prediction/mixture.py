"""Helpers of all predictions: uniform mixtures over weight samples, and checks of outputs and targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from livi.model.data import to_tensor

Numbers = float | Sequence[float] | Tensor | np.ndarray[Any, Any]  # one, or a row of them
Targets = Tensor | np.ndarray[Any, Any] | Sequence[Any]


def differentiable_in(tree: Any) -> AbstractContextManager[Any]:
    """A context in which gradients are recorded if one of the tensors in a tree requires them, and otherwise not."""
    wanted = any(leaf.requires_grad for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor))
    return torch.set_grad_enabled(wanted and torch.is_grad_enabled())


def log_mean_exp(logs: Tensor) -> Tensor:  # (S, ...) -> (...)
    """The log of the mixture's density from the logs of its components': log 1/S sum_s exp(logs_s)."""
    return torch.logsumexp(logs, 0) - math.log(logs.shape[0])


def without_last_one(outputs: Tensor) -> Tensor:  # (S, B, ..., 1) -> (S, B, ...)
    """Drop a last axis of one behind the examples; anything else stays.

    A network that ends in Linear(.., 1) is meant for targets (B,). `likelihoods.aligned` takes targets of either
    shape, and so does whatever calls it on the result.
    """
    return outputs.squeeze(-1) if outputs.ndim > 2 and outputs.shape[-1] == 1 else outputs


def precise(outputs: Tensor) -> Tensor:
    """Outputs in at least float32, as half precision is too coarse for tails and logs of mixtures."""
    return outputs.to(torch.promote_types(outputs.dtype, torch.float32))


def interpolated(ordered: Tensor, q: float | list[float]) -> Tensor:  # (S, ...) -> (...), or (Q, ...) for several
    """Quantiles of values in ascending order: torch.quantile without its limit on the number of elements."""
    if isinstance(q, list):
        return torch.stack([interpolated(ordered, level) for level in q])
    place = q * (ordered.shape[0] - 1)
    below = math.floor(place)
    above = min(below + 1, ordered.shape[0] - 1)
    return ordered[below].lerp(ordered[above], place - below)


def stepped(ordered: Tensor, q: float | list[float]) -> Tensor:  # (S, ...) -> (...), or (Q, ...) for several
    """Quantiles that are among the values, in ascending order: the smallest that a share q does not exceed."""
    if isinstance(q, list):
        return torch.stack([stepped(ordered, level) for level in q])
    return ordered[max(0, math.ceil(q * ordered.shape[0] - 1e-9) - 1)]


def check_outputs(outputs: object) -> Tensor:
    """One floating-point tensor (S, B, ...)."""
    if not isinstance(outputs, Tensor):
        raise TypeError(
            f"outputs: expected one tensor for this likelihood, got {type(outputs).__name__}; choose one with "
            "Layout(module, forward=...), or use livi.FunctionLikelihood."
        )
    if outputs.ndim < 2 or not outputs.is_floating_point() or outputs.shape[0] < 1:
        raise ValueError(
            f"outputs: expected floating-point numbers of shape (num_samples >= 1, batch, ...), got {outputs.dtype} "
            f"of shape {tuple(outputs.shape)}; the network must keep the axis of examples in front."
        )
    return outputs


def check_targets(targets: Targets, device: torch.device) -> Tensor:
    """Targets as a tensor; arrays and lists are put on the prediction's device."""
    if not isinstance(targets, Tensor):
        return to_tensor("targets", targets).to(device)
    if targets.device != device:
        raise ValueError(
            f"targets: expected a tensor on {device}, got one on {targets.device}; "
            f"convert with `targets.to({str(device)!r})`."
        )
    return targets


def probabilities(q: Numbers) -> float | list[float]:
    """One number strictly between 0 and 1, or a list of them."""
    plain = q.tolist() if isinstance(q, (Tensor, np.ndarray, np.generic)) else q
    return (
        [probability("each of q", value) for value in plain] if isinstance(plain, Sequence) else probability("q", plain)
    )


def probability(name: str, value: float) -> float:
    """A number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}.")
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name}: expected a number strictly between 0 and 1, got {value}.")
    return float(value)
