"""Likelihoods made of others: with weights of the examples, or of the user's own function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from livi import checks
from livi.model.likelihoods.base import Likelihood

WITH_WEIGHTS = (
    "pass data ((x, w), y) and forward=pass_weights, of livi.model.likelihoods; without weights leave Weighted() out"
)


class Weighted(Likelihood):
    """Another likelihood in which example i counts w_i times: w_i log p(y_i | output_i).

    Weights pass through the network beside its inputs, so that batches are ((x, w), y) and targets stay as they are:
    `livi.fit(net, ((x, w), y), livi.Weighted(livi.Gaussian()), forward=livi.pass_weights)`.
    New examples have no weights and the likelihood `base`.

    >>> import torch
    >>> from livi.model.likelihoods import Gaussian
    >>> outputs, weights = torch.zeros(1, 2, 1), torch.tensor([[1.0, 3.0]])
    >>> Weighted(Gaussian(0.5)).log_prob((outputs, weights), torch.zeros(2))
    tensor([[-0.2258, -0.6774]])
    """

    def __init__(self, base: Likelihood) -> None:
        super().__init__()
        self.base = base

    @property
    def observed(self) -> Likelihood:
        return self.base.observed

    def without_weights(self, outputs: Any) -> tuple[Likelihood, Any, Tensor | None]:
        own, weights = outputs
        return self.base, own, weights

    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:  # ((S, B, ...), (S, B)), (B, ...) -> (S, B)
        if not (isinstance(outputs, tuple | list) and len(outputs) == 2):
            raise TypeError(
                f"outputs: expected the network's and the weights of the examples, got {type(outputs).__name__} alone; "
                f"{WITH_WEIGHTS}."
            )
        own, weights = outputs
        values = self.base.log_prob(own, targets)
        if weights.ndim > 2 or weights.shape[-1:] != values.shape[-1:]:
            raise ValueError(
                f"weights: expected one for each of {values.shape[-1]} examples along the last axis, got shape "
                f"{tuple(weights.shape)}; return w.reshape(-1) beside the outputs."
            )
        weighted: Tensor = values * weights
        return weighted

    def _check_values(self, outputs: Any, targets: Tensor) -> None:
        self.base.check_targets(outputs[0], targets)

    def started_from(self, targets: Tensor) -> Weighted:
        return type(self)(self.base.started_from(targets))

    def for_map(self, targets: Tensor) -> Likelihood:
        return type(self)(self.base.for_map(targets))

    def takes_labels(self, targets: Tensor) -> bool:
        return self.base.takes_labels(targets)

    def is_far(self, targets: Tensor) -> bool:
        return self.base.is_far(targets)

    def standardised(self, targets: Tensor) -> Weighted | None:
        base = self.base.standardised(targets)
        return None if base is None else type(self)(base)

    def lower_limits(self) -> list[tuple[nn.Parameter, float | Tensor]]:
        return self.base.lower_limits()


def pass_weights(net: nn.Module, inputs: Tensor, weights: Tensor) -> tuple[Any, Tensor]:
    """The `forward` of a network under a `Weighted` likelihood: its outputs, and the examples' weights beside them."""
    return net(inputs), in_a_row(weights)


def in_a_row(weights: Tensor) -> Tensor:  # (N,) or (N, 1) -> (N,)
    """Weights of examples along one axis, without the second that a column of a table has."""
    return weights[:, 0] if weights.ndim == 2 and weights.shape[1] == 1 else weights


def check_weights(weights: Tensor, *, whole: bool) -> None:  # (N,) or (N, 1)
    """Raise a ValueError about weights of examples that are no shares; of the whole data, where all are zero."""
    row = in_a_row(weights)
    if row.ndim != 1:
        raise ValueError(
            f"weights: expected one for each example, of shape (N,), got {tuple(weights.shape)}; pass one column."
        )
    sound = (row >= 0) & torch.isfinite(row)
    if not bool(sound.all()):
        raise ValueError(
            f"weights: expected finite numbers of at least 0, got {row[~sound][0].item():g} "
            f"{checks.rows_in_words(sound)}; leave those examples out, or give them a weight of 0."
        )
    if whole and not bool(row.any()):
        raise ValueError(
            f"weights: expected some above 0, got {len(row)} of 0; leave Weighted() out to count all alike."
        )


class FunctionLikelihood(Likelihood):
    """Any log_prob(outputs, targets) -> (S, B). Outputs are whatever the module returns, with a leading sample axis."""

    def __init__(self, log_prob: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = log_prob

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        values = self.function(outputs, targets)
        if not isinstance(values, Tensor) or values.ndim != 2:
            got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(f"log_prob: expected shape (num_samples, batch), got {got}; sum over event axes.")
        return values
