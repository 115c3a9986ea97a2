"""Semi-implicit variational inference (Yin and Zhou 2018): an entropy bound from draws of the mixing distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from livi import checks
from livi.family.entropy import EntropyEstimate, EntropyReport
from livi.family.entropy.estimate import gaussian_constants
from livi.family.family import Draw, Estimation
from livi.family.generators import Generator
from livi.family.latents import Independent
from livi.family.noise import DiagonalNoise, Noise
from livi.model.likelihoods import Likelihood
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.rivals.sampler import Sampler, fit_sampler


class SemiImplicit(Sampler):
    """The implicit posterior q(theta) = E_psi N(theta; psi, D) with psi = g(z), and a lower bound of its entropy:

        H_K = -E log 1/(K+1) sum_{k=0..K} N(theta; psi_k, D) <= H[q],

    where theta is drawn around psi_0, and psi_1, ..., psi_K are independent draws of psi. H_K rises with K, from the
    entropy of the noise at K = 0 to that of q, so that the variational bound is a lower bound for every K. It is
    differentiated with respect to all psi and D. H_K exceeds the entropy of the noise by at most log(K+1), and
    H[q] by far more where there are many weights and little noise.

    Args:
        num_mixing: K.
    """

    def __init__(
        self,
        layout: Layout,
        generators: Generator | Sequence[Generator],
        noises: Noise | Sequence[Noise] | None = None,
        *,
        num_mixing: int = 100,
    ) -> None:
        super().__init__(layout, generators, noises)
        self.num_mixing = checks.positive_int("num_mixing", num_mixing)

    def entropy(self, draw: Draw, how: Estimation) -> tuple[EntropyEstimate, ...]:
        """H_K of each component, with psi_1, ..., psi_K shared by all its draws."""
        shares = draw.theta.split([len(z) for z in draw.latents])
        parts = zip(self._generators(), self._noises(), shares, draw.latents, strict=True)
        return tuple(self._surrogate(*part, how.rng) for part in parts)

    def _surrogate(
        self, generator: Generator, noise: Noise, theta: Tensor, z: Tensor, rng: torch.Generator | None
    ) -> EntropyEstimate:
        others = Independent().draw(self.num_mixing, generator.latent_dim, rng, dtype=z.dtype, device=z.device)
        psi, std = generator(torch.cat([z, others])), noise.std().expand(self.num_params)
        own = ((theta - psi[: len(z)]) / std).square().sum(1, keepdim=True)  # (S, 1)
        # Not with a matrix product, whose rounding errors are those of |theta / sigma|^2.
        far = torch.cdist(theta / std, psi[len(z) :] / std, compute_mode="donot_use_mm_for_euclid_dist").square()
        mixture = torch.logsumexp(-0.5 * torch.cat([own, far], 1), 1) - math.log(self.num_mixing + 1)
        # -log of the noise's density at its mode: its entropy without the expected square.
        constant = gaussian_constants(noise.std(), self.num_params) - 0.5 * self.num_params
        report = EntropyReport(torch.ones_like(mixture, dtype=torch.bool), products=0)
        return EntropyEstimate((constant - mixture.double()).to(z.dtype), report)

    def title(self) -> str:
        return f"SIVI, {super().title()}"

    def facts(self) -> dict[str, Any]:
        return {"family": "SIVI", "num_mixing": self.num_mixing} | super().facts()


def fit_sivi(net: nn.Module, data: Any, likelihood: Likelihood, *, num_mixing: int = 100, **options: Any) -> Posterior:
    """Livi's generator with a learned noise for each weight, trained on the semi-implicit bound; see `SemiImplicit`.

    Args:
        num_mixing: K, the number of draws of the mixing distribution.
        **options: as in `livi.inference.fit`, except for entropy and family.
    """
    options.setdefault("noise", lambda layout: DiagonalNoise(layout.num_params, 0.01))

    def make(layout: Layout, generators: list[Generator], noises: list[Noise]) -> SemiImplicit:
        return SemiImplicit(layout, generators, noises, num_mixing=num_mixing)

    return fit_sampler("fit_sivi", make, net, data, likelihood, options)
