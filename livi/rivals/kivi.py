"""Kernel implicit variational inference (Shi, Sun and Zhu 2018): kernel regression estimates the density ratio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from livi import checks
from livi.family.entropy import EntropyEstimate
from livi.family.family import Draw, Estimation
from livi.family.generators import Generator
from livi.family.noise import Noise
from livi.model.likelihoods import Likelihood
from livi.model.priors import Prior
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.rivals.contrast import Contrast, Moments, as_entropy, prior_contrast
from livi.rivals.sampler import Sampler, fit_sampler

WIDTH = 0.5  # kernel width, relative to the median distance between draws
LEAST_RATIO = 1e-8  # lower limit of estimated ratios: unlike densities, the regression can be negative


class KernelRatio:
    """The ratio r / q, from Q draws of q and R draws of r, by kernel regression.

    The kernel k is squared-exponential, with half the median distance between draws as its width. The estimate f
    minimises 1/2 E_q (f - r/q)^2 + lambda/2 |f|^2 over the kernel's function space (Kanamori, Hido and Sugiyama 2009).
    Up to a constant this is 1/2 E_q f^2 - E_r f + lambda/2 |f|^2; with the expectations replaced by means over the
    draws, the minimum is

        f(x) = 1/(lambda R) sum_j k(x, r_j) + sum_i alpha_i k(x, q_i),
        (K_qq / Q + lambda I) alpha = -K_qr 1 / (lambda Q R).

    Estimating r / q and not q / r is the *reverse ratio trick* of Shi et al.: it weights the squared error by q, and
    KL(q || r) = -E_q log r/q needs the ratio at draws of q. A regression for q / r would weight it by r.
    """

    def __init__(self, ours: Tensor, theirs: Tensor, ridge: float) -> None:  # (Q, m) of q, (R, m) of r
        self.centres = torch.cat([theirs, ours])
        self.width = WIDTH * torch.pdist(self.centres).median().clamp_min(1e-12)
        num_q, num_r = len(ours), len(theirs)
        gram = self._kernel(ours, ours) / num_q
        right = -self._kernel(ours, theirs).sum(1) / (ridge * num_q * num_r)
        alpha = torch.linalg.solve(gram + ridge * torch.eye(num_q, dtype=gram.dtype, device=gram.device), right)
        self.weights = torch.cat([alpha.new_full((num_r,), 1.0 / (ridge * num_r)), alpha])

    def __call__(self, points: Tensor) -> Tensor:  # (S, m) -> (S,)
        return self._kernel(points, self.centres) @ self.weights

    def _kernel(self, left: Tensor, right: Tensor) -> Tensor:
        squares = (left[:, None] - right[None]).square().sum(-1) if left.shape[1] <= 64 else _squares(left, right)
        return torch.exp(-0.5 * squares / self.width.square())


def _squares(left: Tensor, right: Tensor) -> Tensor:
    """Squared distances by one matrix product, for vectors so long that all differences would not fit in memory."""
    cross = left @ right.T
    return (left.square().sum(1)[:, None] + right.square().sum(1) - 2.0 * cross).clamp_min(0.0)


class KernelImplicit(Sampler):
    """The implicit posterior, with log q(theta) / r(theta) from a `KernelRatio` of fresh draws at every step.

    The ratio is held fixed while the bound is differentiated, as in adversarial variational Bayes, but has no
    parameters to train. With more than a few dozen weights, the distances between any two draws are nearly equal and
    the kernel can hardly tell draws apart; the estimate is then too large or too small.

    Args:
        adaptive: contrast q with the independent Gaussian that has q's moments. False contrasts it with the prior, as
            Shi et al. do, with errors of nats where q is a third as wide as the prior, already for three weights.
        num_contrast: draws of q, and of r, for each ratio.
        ridge: lambda.
    """

    def __init__(
        self,
        layout: Layout,
        generators: Generator | Sequence[Generator],
        noises: Noise | Sequence[Noise] | None = None,
        *,
        adaptive: bool = True,
        num_contrast: int = 200,
        ridge: float = 5e-3,
    ) -> None:
        super().__init__(layout, generators, noises)
        self.num_contrast = checks.positive_int("num_contrast", num_contrast)
        if self.num_contrast < 2:
            raise ValueError("num_contrast: expected at least 2, for distances between draws, got 1.")
        self.ridge = checks.positive_float("ridge", ridge)
        self.adaptive = adaptive

    def entropy(self, draw: Draw, how: Estimation) -> tuple[EntropyEstimate, ...]:
        with torch.no_grad():
            theta = self.sample(self.num_contrast, how.rng)
            contrast = self._contrast(theta, how.prior)
            theirs = contrast.draw(self.num_contrast, how.rng)
            ratio = KernelRatio(contrast.coordinates(theta), theirs, self.ridge)
        log_ratio = ratio(contrast.coordinates(draw.theta)).clamp_min(LEAST_RATIO).log()
        return as_entropy(contrast.log_prob(draw.theta) - log_ratio)

    def title(self) -> str:
        return f"KIVI, {super().title()}"

    def facts(self) -> dict[str, Any]:
        return {"family": "KIVI", "adaptive_contrast": self.adaptive} | super().facts()

    def _contrast(self, theta: Tensor, prior: Prior | None) -> Contrast:
        if self.adaptive:
            moments = Moments(theta[0])
            moments.follow(theta, memory=0.0)
            return moments.contrast()
        if prior is None:
            raise ValueError("prior: expected one, with which this posterior is contrasted, got None; or set adaptive.")
        return prior_contrast(prior, self.num_params)


def fit_kivi(
    net: nn.Module,
    data: Any,
    likelihood: Likelihood,
    *,
    adaptive: bool = True,
    num_contrast: int = 200,
    ridge: float = 5e-3,
    **options: Any,
) -> Posterior:
    """Livi's generator and noise, with the entropy from a kernel estimate of a density ratio; see `KernelImplicit`.

    Shi et al. assume independent layers and estimate a ratio for each. Here one ratio is estimated for all weights
    together, which needs no such assumption but is harder, and the default contrast is adaptive.

    Args:
        **options: as in `livi.inference.fit`, except for entropy and family. Without adaptive contrast, the prior must
            have a `sample` method.
    """

    def make(layout: Layout, generators: list[Generator], noises: list[Noise]) -> KernelImplicit:
        return KernelImplicit(layout, generators, noises, adaptive=adaptive, num_contrast=num_contrast, ridge=ridge)

    return fit_sampler("fit_kivi", make, net, data, likelihood, options)
