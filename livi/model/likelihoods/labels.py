"""Labels and classes."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from livi.model.likelihoods.base import (
    ClassificationLikelihood,
    aligned,
    counts_of,
    refuse,
    single,
    summed,
    weighted_moments,
)
from livi.model.likelihoods.forms import ClosedForm, Logits


class Bernoulli(ClassificationLikelihood):
    """y in {0, 1} with the output as logit. Axes behind B are independent labels and are summed.

    >>> Bernoulli().log_prob(torch.zeros(1, 2, 1), torch.tensor([0.0, 1.0]))
    tensor([[-0.6931, -0.6931]])
    """

    exclusive: ClassVar[bool | None] = False

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        logits = aligned(single(outputs), targets)
        valid = self._valid(targets)
        expanded = targets.to(logits.dtype).where(valid, float("nan")).expand_as(logits)
        density = -F.binary_cross_entropy_with_logits(logits, expanded, reduction="none")
        return summed(density)

    def _check_values(self, outputs: Tensor, targets: Tensor) -> None:
        del outputs
        self._valid(targets)

    def _valid(self, targets: Tensor) -> Tensor:  # (B, ...)
        valid = (targets >= 0) & (targets <= 1)
        remedy = "labels -1 and 1 become 0 and 1 by `(y + 1) / 2`, and more than two classes want Categorical()"
        refuse(targets, valid, "values in [0, 1]", remedy)
        return valid

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.sigmoid()

    def closed_form(self, outputs: Tensor) -> ClosedForm | None:
        return Logits(outputs) if self.is_as_in(Bernoulli, "log_prob", "probabilities") else None

    def constant_log_prob(self, targets: Tensor, weights: Tensor | None = None) -> float | None:
        columns = targets.detach().double().reshape(len(targets), -1)
        counts = counts_of(columns, weights)
        share = weighted_moments(columns, counts)[0]
        return -float(counts.sum() * (torch.special.entr(share) + torch.special.entr(1.0 - share)).sum())


class Multilabel(Bernoulli):
    """L independent labels: outputs (S, B, L), targets (B, L)."""

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if targets.ndim < 2:
            raise ValueError(f"targets: expected shape (B, L), got {tuple(targets.shape)}; one label is Bernoulli.")
        return super().log_prob(outputs, targets)

    _check_values = Bernoulli._check_values

    def closed_form(self, outputs: Tensor) -> ClosedForm | None:
        return Logits(outputs) if self.is_as_in(Multilabel, "log_prob", "probabilities") else None


class Categorical(ClassificationLikelihood):
    """y in {0, ..., C-1} with outputs (S, B, C, ...) as logits, classes on the axis behind B as in F.cross_entropy.

    Dense targets (B, ...) such as pixels or tokens are summed for each example; `ignore_index` ones count as zero.
    """

    exclusive: ClassVar[bool | None] = True

    def __init__(self, *, ignore_index: int = -100) -> None:
        super().__init__()
        self.ignore_index = ignore_index

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        _check_classes(single(outputs), targets)
        targets = targets.long()  # before comparing: uint8 labels would wrap the number of classes and ignore_index
        valid = self._valid(outputs.shape[2], targets)
        kept = targets.where(valid, self.ignore_index)
        repeated = kept.expand(outputs.shape[0], *targets.shape).flatten(0, 1)
        nats = F.cross_entropy(outputs.flatten(0, 1), repeated, reduction="none", ignore_index=self.ignore_index)
        density: Tensor = -nats.unflatten(0, outputs.shape[:2]).where(valid, float("nan"))
        return summed(density)

    def _check_values(self, outputs: Tensor, targets: Tensor) -> None:
        self._valid(outputs.shape[2], targets.long())

    def _valid(self, classes: int, targets: Tensor) -> Tensor:  # (B, ...)
        valid = ((targets >= 0) & (targets < classes)) | (targets == self.ignore_index)
        remedy = "number the classes from 0, and give the network an output for each"
        refuse(targets, valid, f"labels 0 to {classes - 1}", remedy)
        return valid

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(2)

    def closed_form(self, outputs: Tensor) -> ClosedForm | None:
        return Logits(outputs) if self.is_as_in(Categorical, "log_prob", "probabilities") else None

    def constant_log_prob(self, targets: Tensor, weights: Tensor | None = None) -> float | None:
        labels = targets.detach().reshape(-1, 1).long()
        known = (labels >= 0) & (labels != self.ignore_index)
        counts = torch.bincount(labels[known], counts_of(labels.double(), weights)[known])
        return float(torch.xlogy(counts, counts / counts.sum()).sum())


def _check_classes(outputs: Tensor, targets: Tensor) -> None:
    """Outputs (S, B, C, ...), targets (B, ...) of integers; or what to do about what came instead."""
    logits, labels = tuple(outputs.shape[1:]), tuple(targets.shape)  # (B, C, ...), (B, ...)
    wanted = (*logits[:1], *logits[2:])
    if len(logits) < 2 or logits[1] == 1:
        remedy = "one output for each example is yes or no: use livi.Bernoulli()"
    elif labels == wanted:
        if targets.is_floating_point() or targets.dtype == torch.bool:
            whole = targets.dtype == torch.bool or bool((targets == targets.round()).all())
            remedy = "convert with `.long()`" if whole else "numbers that are no classes want livi.Gaussian()"
            raise TypeError(f"targets: expected integer class labels, got {targets.dtype}; {remedy}.")
        return
    elif labels == logits:
        remedy = "of one-hot targets pass class indices: `y.argmax(1)`"
    elif labels == (*wanted, 1):
        remedy = "of a column of labels pass `y.squeeze(-1)`"
    elif labels == logits[:-1]:
        remedy = "classes come right behind the examples: forward=lambda net, x: net(x).movedim(-1, 1)"
    else:
        remedy = "give the network an output for each class, and each example one label"
    raise ValueError(
        f"outputs: expected (S, B, C, ...) with targets (B, ...), got {tuple(outputs.shape)} and {labels}; {remedy}."
    )
