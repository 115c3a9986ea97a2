"""The likelihood of the features that enter a last layer of logits, that layer integrated out by a bound."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from livi.draws import normal
from livi.family.last_layer.evidence import Conditional, by_noise, by_output
from livi.family.last_layer.logits import Logits, conditional, log_evidence
from livi.family.last_layer.marginal import Marginal
from livi.model.likelihoods import Bernoulli, Categorical
from livi.model.priors import Normal, Relevance


class LinearLogits(Marginal):
    """A lower bound of log p(y | features) for logits W features + b with a normal prior; see `logits`.

    Its q(W, b | features) is the best of the Gaussians with one covariance for all contrasts between classes, or with
    one for each independent label, under the tilted bound of the normaliser.

    Args:
        labels: `Categorical` or `Bernoulli`, one label or several.
        scale, learn_scale, counts, prior: see `Marginal`.

    >>> features, targets = torch.zeros(1, 2, 3), torch.tensor([0, 1])
    >>> LinearLogits(Categorical(), classes=2, scale=1e-6).log_prob(features, targets)  # no features: even odds
    tensor([[-0.6931, -0.6931]])
    """

    word = "conditional"

    def __init__(
        self,
        labels: Categorical | Bernoulli,
        *,
        classes: int,
        scale: float = 1.0,
        learn_scale: bool = False,
        counts: Tensor | None = None,
        prior: Normal | Relevance | None = None,
    ) -> None:
        super().__init__(scale, learn_scale, counts, prior)
        self.labels, self.classes = labels, classes

    @property
    def observed(self) -> Categorical | Bernoulli:
        return self.labels

    def joint(self, outputs: Tensor, targets: Tensor) -> Tensor:  # (S,)
        return log_evidence(self._problem(outputs, targets))

    def conditional(self, outputs: Tensor, targets: Tensor) -> Conditional:
        return conditional(self._problem(outputs, targets))

    @torch.no_grad()
    def draw(self, posterior: Conditional, rng: torch.Generator | None) -> Tensor:  # (S, H + 1, T)
        """Draws of the last layer given the earlier ones; what all classes have in common comes from the prior."""
        mean, factor, scale, _ = posterior
        eps = normal(tuple(mean.shape), rng, mean.dtype, mean.device)
        common = eps.mean(2, keepdim=True) if isinstance(self.labels, Categorical) else torch.zeros_like(eps[..., :1])
        contrasts = by_noise(eps - common, factor.shape[1])
        spread: Tensor = torch.linalg.solve_triangular(factor.mT, contrasts, upper=True)
        return mean + scale[:, None] * (by_output(spread) + common)

    def _problem(self, outputs: Tensor, targets: Tensor) -> Logits:
        exclusive = isinstance(self.labels, Categorical)
        shares = F.one_hot(targets.long(), self.classes) if exclusive else targets.reshape(len(targets), -1)
        log_scale = self.log_scales(outputs.shape[-1], self.classes)
        return Logits(outputs, log_scale, shares.to(outputs.dtype), exclusive, self.counts)
