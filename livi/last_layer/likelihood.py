"""The likelihood of the features that enter a last layer, that layer integrated out."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from livi import checks
from livi.last_layer.evidence import Conditional, Problem, conditional, log_evidence
from livi.latents import normal
from livi.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood


class LinearGaussian(Likelihood):
    """log p(y | features) of y ~ N(W features + b, noise^2) with W, b ~ N(0, scale^2) integrated out.

    The examples depend on each other through W, so a batch must be the whole data set: `log_prob` gives each example
    an equal share of the joint log density. Several targets have their own W and share the noise.

    Args:
        noise: `Gaussian`, or `HeteroscedasticGaussian`, whose raw scale is then the last of the features, for one
            target.
        scale: prior standard deviation of the last layer's weights.
        learn_scale: learn it too.
        counts: how often each example counts; once without.

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
    ) -> None:
        super().__init__()
        self.noise = noise
        start = torch.tensor(math.log(checks.positive_float("scale", scale)))
        self.log_scale: Tensor
        if learn_scale:
            self.log_scale = nn.Parameter(start)
        else:
            self.register_buffer("log_scale", start)
        self.counts: Tensor | None
        self.register_buffer("counts", counts)

    def start_from(self, targets: Tensor) -> None:
        self.noise.start_from(targets)

    def lower_limits(self) -> list[tuple[nn.Parameter, float]]:
        return self.noise.lower_limits()

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Equal shares of the log evidence; once differentiable."""
        shares = log_evidence(self._problem(outputs, targets)) / len(targets)
        return shares[:, None].expand(-1, len(targets))

    def conditional(self, outputs: Tensor, targets: Tensor) -> Conditional:  # (S, N, H), (N,) or (N, T)
        """The last layer's posterior and evidence, in double precision and without a gradient."""
        return conditional(self._problem(outputs, targets))

    @torch.no_grad()
    def draw(self, posterior: Conditional, rng: torch.Generator | None) -> Tensor:  # (S, H + 1, T)
        """Weights of the last layer, one draw for each sample of the earlier ones."""
        mean = posterior.mean
        eps = normal(tuple(mean.shape), rng, mean.dtype, mean.device)
        spread: Tensor = torch.linalg.solve_triangular(posterior.factor.mT, eps, upper=True)
        return mean + self.log_scale.double().exp() * spread

    def _problem(self, outputs: Tensor, targets: Tensor) -> Problem:
        if outputs.ndim != 3 or outputs.shape[1] != len(targets):
            raise ValueError(
                f"features: expected (S, {len(targets)}, H), all examples at once, got {tuple(outputs.shape)}."
            )
        columns = targets.to(outputs.dtype).reshape(len(targets), -1)
        if isinstance(self.noise, Gaussian):
            return Problem(outputs, self.noise.log_std, self.log_scale, columns, self.counts)
        if columns.shape[1] != 1:
            raise ValueError(f"targets: expected one for each example whose noise varies, got {columns.shape[1]}.")
        features, raw = outputs[..., :-1], outputs[..., -1]
        return Problem(features, self.noise.std(raw).log(), self.log_scale, columns, self.counts)
