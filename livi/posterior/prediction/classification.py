"""Predictions of classification: the average of S probability vectors, one a weight sample."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from livi.model.likelihoods import Bernoulli, Categorical
from livi.posterior.prediction.mixture import (
    Targets,
    check_outputs,
    check_targets,
    log_mean_exp,
    precise,
    without_last_one,
)


@dataclass(frozen=True, eq=False)
class ClassificationPrediction:
    """p(y | x, D) ~ 1/S sum_s p(y | x, theta_s), for classes that exclude each other or for independent labels.

    - Classes (`likelihood` is a Categorical): logits (S, B, C, ...). `probabilities` is (B, C, ...); `label`,
      `confidence` and the entropies are (B, ...).
    - Labels (a Bernoulli): logits (S, B, ...) without their last axis if that is one. `probabilities`, of the label
      being 1, and all the rest are (B, ...), each label by itself.

    Logits rather than probabilities are kept, since a probability that rounds to 0 or 1 has no useful logarithm.
    Entropies are in nats. Half precision becomes float32.

    >>> certain_but_divided = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> prediction = ClassificationPrediction.from_probabilities(certain_but_divided, exclusive=True)
    >>> prediction.probabilities, prediction.aleatoric_entropy, prediction.mutual_information
    (tensor([[0.5000, 0.5000]]), tensor([0.]), tensor([0.6931]))
    """

    logits: Tensor  # (S, B, C, ...) for classes, (S, B, ...) for labels
    likelihood: Categorical | Bernoulli

    def __post_init__(self) -> None:
        logits = precise(check_outputs(self.logits))
        if not self.exclusive:
            logits = without_last_one(logits)
        elif logits.ndim < 3:
            raise ValueError(
                f"logits: expected (num_samples, batch, classes, ...), got {tuple(logits.shape)}; "
                "a network with one logit an example wants livi.Bernoulli()."
            )
        object.__setattr__(self, "logits", logits)

    @classmethod
    def from_probabilities(cls, samples: Tensor, *, exclusive: bool) -> ClassificationPrediction:
        """From each sample's probabilities: of classes (S, B, C, ...) if `exclusive`, else of labels (S, B, ...)."""
        if not bool(((samples >= 0) & (samples <= 1)).all()):
            raise ValueError(f"samples: expected probabilities, got {samples.min().item()} to {samples.max().item()}.")
        if exclusive and not sum_to_one(samples):
            raise ValueError(
                f"samples: expected a sum of one over classes, axis 2 of {tuple(samples.shape)}; "
                "use exclusive=False for independent labels."
            )
        return cls(samples.log(), Categorical()) if exclusive else cls(samples.logit(), Bernoulli())

    @property
    def exclusive(self) -> bool:
        return isinstance(self.likelihood, Categorical)

    @property
    def ignore_index(self) -> int | None:
        """The target that counts for nothing; None for labels."""
        return self.likelihood.ignore_index if isinstance(self.likelihood, Categorical) else None

    @property
    def num_samples(self) -> int:
        return self.logits.shape[0]

    @property
    def samples(self) -> Tensor:  # (S, B, C, ...) or (S, B, ...)
        """Each sample's probabilities."""
        return self.likelihood.probabilities(self.logits)

    @property
    def probabilities(self) -> Tensor:  # (B, C, ...) or (B, ...)
        return self.samples.mean(0)

    @property
    def label(self) -> Tensor:  # (B, ...) of integers
        """The most probable class, or 1 where a label is more probable than not. Ties go to the lower."""
        return log_mean_exp(self._logs).argmax(1)

    @property
    def confidence(self) -> Tensor:  # (B, ...)
        """The probability of `label`."""
        return log_mean_exp(self._logs).amax(1).exp()

    @property
    def entropy(self) -> Tensor:  # (B, ...)
        """H[E p]: all the uncertainty of the prediction."""
        terms: Tensor = torch.special.entr(log_mean_exp(self._logs).exp())
        return terms.sum(1)

    @property
    def aleatoric_entropy(self) -> Tensor:  # (B, ...)
        """E H[p]: the uncertainty within each weight sample."""
        terms: Tensor = torch.special.entr(self._logs.exp())
        return terms.sum(2).mean(0)

    @property
    def mutual_information(self) -> Tensor:  # (B, ...)
        """H[E p] - E H[p], between label and weights: how much samples disagree. Rounding below 0 is cut off."""
        return (self.entropy - self.aleatoric_entropy).clamp_min(0.0)

    def monte_carlo_error(self) -> Tensor:  # (B, ...)
        """How far S weight samples leave the probabilities open: the largest standard error, as a share of the spread.

        The spread is that of being in a class or not, sqrt(p (1 - p)). So it is no more than 1 / sqrt(S).
        """
        samples = self._logs.exp()
        if len(samples) < 2:
            return torch.full_like(samples[0, :, 0], math.inf)
        mean = samples.mean(0)
        spread = (mean * (1.0 - mean)).sqrt()
        shares = torch.where(spread > 0, samples.std(0) / spread, torch.zeros_like(mean))
        return shares.amax(1) / math.sqrt(len(samples))

    def log_prob(self, targets: Targets) -> Tensor:  # (B, ...) -> (B,)
        """Log probability of each example's target; several targets of one example are one event, summed within a
        sample before samples are averaged. Raises what the likelihood raises."""
        found = check_targets(targets, self.logits.device)
        if self.exclusive and found.shape == (self.logits.shape[1], *self.logits.shape[3:], 1):
            found = found.squeeze(-1)
        return log_mean_exp(self.likelihood.log_prob(self.logits, found))

    def __repr__(self) -> str:
        kind = "classes" if self.exclusive else "labels"
        return f"ClassificationPrediction(num_samples={self.num_samples}, {kind}, shape={tuple(self.logits.shape[1:])})"

    @property
    def _logs(self) -> Tensor:  # (S, B, C, ...), where labels have the two classes 0 and 1
        if self.exclusive:
            return F.log_softmax(self.logits, 2)
        return torch.stack([F.logsigmoid(-self.logits), F.logsigmoid(self.logits)], 2)


def sum_to_one(samples: Tensor) -> bool:
    """Whether these are probabilities of classes on axis 2."""
    if samples.ndim < 3:
        return False
    return bool(((samples.sum(2) - 1.0).abs() <= math.sqrt(torch.finfo(samples.dtype).eps)).all())
