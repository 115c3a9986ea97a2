"""The likelihood of the features that enter a last layer, that layer integrated out."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from livi import checks
from livi.draws import normal
from livi.family.last_layer.evidence import Conditional, Problem, by_noise, by_output, conditional, log_evidence
from livi.model.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from livi.model.priors import Normal, Relevance


class LinearGaussian(Likelihood):
    """log p(y | features) of y ~ N(W features + b, noise^2) with the normal prior of W, b integrated out.

    The examples depend on each other through W, so a batch must be the whole data set: `log_prob` gives each example
    an equal share of the joint log density. Several targets have their own W, and share the noise where there is one.
    Where the prior's scales have a density of their own, that is counted too.

    Args:
        noise: `Gaussian`, or `HeteroscedasticGaussian`, whose raw scale is then the last of the features, for one
            target.
        scale: prior standard deviation of the last layer's weights, where `prior` is not given.
        learn_scale: learn it too.
        counts: how often each example counts; once without.
        prior: of the last layer's weights, W by rows and then b; see `check_columns`.

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
        super().__init__()
        self.noise = noise
        self.prior = prior
        self.log_scale: Tensor | None
        start = torch.tensor(math.log(checks.positive_float("scale", scale)))
        if prior is not None:
            self.register_buffer("log_scale", None)
        elif learn_scale:
            self.log_scale = nn.Parameter(start)
        else:
            self.register_buffer("log_scale", start)
        self.counts: Tensor | None
        self.register_buffer("counts", counts)

    def lower_limits(self) -> list[tuple[nn.Parameter, float | Tensor]]:
        return self.noise.lower_limits()

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Equal shares of the log evidence; once differentiable."""
        joint = log_evidence(self._problem(outputs, targets)) - self._log_volume(targets)
        joint = joint if self.prior is None else joint + self.prior.log_prob_of_scales()
        return (joint / len(targets))[:, None].expand(-1, len(targets))

    def conditional(self, outputs: Tensor, targets: Tensor) -> Conditional:  # (S, N, H), (N,) or (N, T)
        """The last layer's posterior and evidence, in double precision and without a gradient."""
        return conditional(self._problem(outputs, targets))

    @torch.no_grad()
    def draw(self, posterior: Conditional, rng: torch.Generator | None) -> Tensor:  # (S, H + 1, T)
        """Weights of the last layer, one draw for each sample of the earlier ones."""
        mean, factor, scale, _ = posterior
        eps = normal(tuple(mean.shape), rng, mean.dtype, mean.device)
        spread: Tensor = torch.linalg.solve_triangular(factor.mT, by_noise(eps, factor.shape[1]), upper=True)
        return mean + scale[:, None] * by_output(spread)

    def _problem(self, outputs: Tensor, targets: Tensor) -> Problem:
        if outputs.ndim != 3 or outputs.shape[1] != len(targets):
            raise ValueError(
                f"features: expected (S, {len(targets)}, H), all examples at once, got {tuple(outputs.shape)}."
            )
        columns = self.noise.natural(targets.to(outputs.dtype)).reshape(len(targets), -1)
        if isinstance(self.noise, Gaussian):
            log_std = self.noise.natural_log_std()
            log_std = log_std.reshape(()) if log_std.numel() == 1 else log_std.expand(targets.shape[1:]).reshape(-1)
            return Problem(outputs, log_std, self._log_scale(outputs, columns), columns, self.counts)
        if columns.shape[1] != 1:
            raise ValueError(f"targets: expected one for each example whose noise varies, got {columns.shape[1]}.")
        features, raw = outputs[..., :-1], outputs[..., -1]
        log_std = (self.noise.std(raw) / self.noise.unit()).log()
        return Problem(features, log_std, self._log_scale(features, columns), columns, self.counts)

    def _log_volume(self, targets: Tensor) -> Tensor | float:
        """By how much the density of all natural targets is above that of the targets in their own units."""
        if self.noise.log_unit is None:
            return 0.0
        examples = float(len(targets)) if self.counts is None else self.counts.sum()
        each: Tensor = self.noise.log_unit.expand(targets.shape[1:]).sum() if targets.ndim > 1 else self.noise.log_unit
        return examples * each.sum()

    def _log_scale(self, features: Tensor, columns: Tensor) -> Tensor:  # (H + 1,)
        width, outputs = features.shape[-1], columns.shape[1]
        if self.prior is None:
            assert self.log_scale is not None
            return self.log_scale.expand(width + 1)
        scale = self.prior.scale()
        if scale.ndim == 0:
            return scale.log().expand(width + 1)
        if len(scale) != outputs * (width + 1):
            raise ValueError(
                f"prior: expected scales for {outputs * (width + 1)} weights of the last layer, got {len(scale)}."
            )
        return torch.cat([scale[:width], scale[outputs * width : outputs * width + 1]]).log()


def check_columns(prior: Normal | Relevance, width: int, outputs: int) -> None:
    """That all outputs have the same scale for one feature, and for the bias, now and after it is learned.

    Raises:
        ValueError: they have not; the message says so.
    """
    groups = prior.groups_of(outputs * (width + 1))
    weights, biases = groups[: outputs * width].reshape(outputs, width), groups[outputs * width :]
    for part in (weights, biases[:, None]):
        scales = part if prior.learned else prior.log_scale.detach().reshape(-1)[part]
        if not bool((scales == scales[0]).all()):
            raise ValueError("the prior has other scales for one output of the last layer than for another")
