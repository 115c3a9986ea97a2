"""Closed forms of log p(y | outputs): what a likelihood can tell predictions beyond its log_prob."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Normals(NamedTuple):
    """Each target is normal, or, with several parts, a mixture of normal distributions around one mean."""

    means: Tensor  # (S, B, ...)
    stds: Tensor  # of the whole, (S, B, ...) or broadcastable to it
    parts: tuple[tuple[float, float], ...] = ((1.0, 1.0),)  # share of each, and its standard deviation in `stds`


class LogNormals(NamedTuple):
    """The logarithm of each target is normal."""

    means: Tensor  # (S, B, ...), of the logarithms
    stds: Tensor  # of the logarithms, (S, B, ...) or broadcastable to it


class Logits(NamedTuple):
    """Probabilities are softmax or sigmoid of the outputs themselves."""

    logits: Tensor  # (S, B, C, ...) of classes, (S, B, ...) of labels


ClosedForm = Normals | LogNormals | Logits
