"""The likelihood of the features that enter a last layer under Gaussian noise, that layer integrated out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from livi.draws import normal
from livi.family.last_layer.evidence import Conditional, Problem, by_noise, by_output, conditional, log_evidence
from livi.family.last_layer.marginal import Marginal
from livi.model.likelihoods import Gaussian, GuardedGaussian, HeteroscedasticGaussian
from livi.model.priors import Normal, Relevance


class LinearGaussian(Marginal):
    """log p(y | features) of y ~ N(W features + b, noise^2) with the normal prior of W, b integrated out.

    Several targets have their own W, and share the noise where there is one.

    Args:
        noise: `Gaussian`, or `HeteroscedasticGaussian`, whose raw scale is then the last of the features, for one
            target.
        scale, learn_scale, counts, prior: see `Marginal`.

    >>> features, targets = torch.zeros(1, 2, 3), torch.zeros(2)
    >>> LinearGaussian(Gaussian(0.5), scale=1e-6).log_prob(features, targets)  # no features: noise alone
    tensor([[-0.2258, -0.2258]])
    """

    def __init__(
        self,
        noise: Gaussian | HeteroscedasticGaussian,
        *,
        scale: float = 1.0,
        learn_scale: bool = False,
        counts: Tensor | None = None,
        prior: Normal | Relevance | None = None,
    ) -> None:
        super().__init__(scale, learn_scale, counts, prior)
        self.noise = noise
        self.beside = isinstance(noise, HeteroscedasticGaussian)

    @property
    def observed(self) -> Gaussian | HeteroscedasticGaussian:
        return self.noise

    def lower_limits(self) -> list[tuple[nn.Parameter, float | Tensor]]:
        return self.noise.lower_limits()

    def log_prob_of_scales(self) -> Tensor | float:
        """Of the last layer's prior, and of a noise that has one."""
        own = super().log_prob_of_scales()
        return own + self.noise.log_prob_of_noise() if isinstance(self.noise, GuardedGaussian) else own

    def joint(self, outputs: Tensor, targets: Tensor) -> Tensor:  # (S,)
        return log_evidence(self._problem(outputs, targets)) - self._log_volume(targets)

    def conditional(self, outputs: Tensor, targets: Tensor) -> Conditional:  # (S, N, H), (N,) or (N, T)
        """The last layer's posterior and evidence, in double precision and without a gradient."""
        return conditional(self._problem(outputs, targets))

    @torch.no_grad()
    def draw(self, posterior: Conditional, rng: torch.Generator | None) -> Tensor:  # (S, H + 1, T)
        mean, factor, scale, _ = posterior
        eps = normal(tuple(mean.shape), rng, mean.dtype, mean.device)
        spread: Tensor = torch.linalg.solve_triangular(factor.mT, by_noise(eps, factor.shape[1]), upper=True)
        return mean + scale[:, None] * by_output(spread)

    def _problem(self, outputs: Tensor, targets: Tensor) -> Problem:
        columns = self.noise.natural(targets.to(outputs.dtype)).reshape(len(targets), -1)
        if isinstance(self.noise, Gaussian):
            log_std = self.noise.natural_log_std()
            log_std = log_std.reshape(()) if log_std.numel() == 1 else log_std.expand(targets.shape[1:]).reshape(-1)
            return Problem(outputs, log_std, self._log_scales(outputs, columns), columns, self.counts)
        if columns.shape[1] != 1:
            raise ValueError(f"targets: expected one for each example whose noise varies, got {columns.shape[1]}.")
        features, raw = outputs[..., :-1], outputs[..., -1]
        log_std = (self.noise.std(raw) / self.noise.unit()).log()
        return Problem(features, log_std, self._log_scales(features, columns), columns, self.counts)

    def _log_scales(self, features: Tensor, columns: Tensor) -> Tensor:  # (H + 1,)
        return self.log_scales(features.shape[-1], columns.shape[1])

    def _log_volume(self, targets: Tensor) -> Tensor | float:
        """Log density of all natural targets minus that of the targets in their own units: the change of variables."""
        if self.noise.log_unit is None:
            return 0.0
        examples = float(len(targets)) if self.counts is None else self.counts.sum()
        each: Tensor = self.noise.log_unit.expand(targets.shape[1:]).sum() if targets.ndim > 1 else self.noise.log_unit
        return examples * each.sum()
