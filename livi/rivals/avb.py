"""Adversarial variational Bayes (Mescheder, Nowozin and Geiger 2017): a classifier estimates the density ratio."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

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

LARGE = 5000  # weights from which on the LIVI paper's discriminator for MNIST replaces the one for its toy problem


class Adversarial(Sampler):
    """The implicit posterior, with log q(theta) / r(theta) from a discriminator T instead of livi's entropy estimate.

    Before every step on the bound, T takes `epochs` steps on the logistic loss, over `num_contrast` draws from q and as
    many from the contrast r (Algorithm 1 of Mescheder et al. 2017; s is the sigmoid):

        max_T  E_q log s(T(theta)) + E_r log s(-T(theta)),  attained by T = log q / r.

    The entropy in the bound is then H = -E_q [T + log r]. T is held fixed while the bound is differentiated, since the
    gradient of log q / r with respect to the parameters of q is zero on average. Errors of T can make the value larger
    or smaller, so that it is no longer a lower bound.

    Args:
        adaptive: take for r the independent Gaussian with the moments of q ("adaptive contrast"), not the prior.
        hidden: widths of T's hidden layers. The defaults are those of the LIVI paper: one layer of 100 units, 20 draws
            and 10 epochs; from 5,000 weights on, layers of 2,500 and 4,500 units, 300 draws and 5 epochs.
        num_contrast: draws from q, and from r, that T is trained on before each step; the default as for `hidden`.
        epochs: steps of T before each step on the bound; the default as for `hidden`.
        rate: Adam's learning rate for T.
    """

    def __init__(
        self,
        layout: Layout,
        generators: Generator | Sequence[Generator],
        noises: Noise | Sequence[Noise] | None = None,
        *,
        adaptive: bool = False,
        hidden: Sequence[int] | None = None,
        num_contrast: int | None = None,
        epochs: int | None = None,
        rate: float = 3e-3,
    ) -> None:
        super().__init__(layout, generators, noises)
        large = layout.num_params > LARGE
        widths = ((2500, 4500) if large else (100,)) if hidden is None else tuple(hidden)
        num_contrast = (300 if large else 20) if num_contrast is None else num_contrast
        epochs = (5 if large else 10) if epochs is None else epochs
        self.num_contrast = checks.positive_int("num_contrast", num_contrast)
        self.epochs = checks.positive_int("epochs", epochs)
        if self.num_contrast < 2:
            raise ValueError("num_contrast: expected at least 2, for a variance, got 1.")
        self.moments = Moments(layout.flatten()) if adaptive else None
        self.discriminator = _discriminator(layout.num_params, widths).to(layout.device, layout.dtype)
        self.optimiser = torch.optim.Adam(self.discriminator.parameters(), checks.positive_float("rate", rate))

    def prepare_step(self, prior: Prior, rng: torch.Generator | None) -> None:
        """Train the discriminator on draws from the current q and from the contrast."""
        with torch.no_grad():
            theta = self.sample(self.num_contrast, rng)
            if self.moments is not None:
                self.moments.follow(theta)
            contrast = self._contrast(prior)
            ours, theirs = contrast.coordinates(theta), contrast.draw(self.num_contrast, rng)
        for _ in range(self.epochs):
            loss = softplus(-self.discriminator(ours)).mean() + softplus(self.discriminator(theirs)).mean()
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
        self.optimiser.zero_grad()  # these are no gradients of the bound

    def entropy(self, draw: Draw, how: Estimation) -> tuple[EntropyEstimate, ...]:
        contrast = self._contrast(how.prior)
        learning = [parameter.requires_grad for parameter in self.discriminator.parameters()]
        self.discriminator.requires_grad_(False)
        ratio = self.discriminator(contrast.coordinates(draw.theta))[:, 0]
        for parameter, learns in zip(self.discriminator.parameters(), learning, strict=True):
            parameter.requires_grad_(learns)
        return as_entropy(ratio + contrast.log_prob(draw.theta))

    def begin_around(self, rows: Tensor, spread: float, *, relative: bool = False) -> None:  # (K, m)
        super().begin_around(rows, spread, relative=relative)
        if self.moments is not None:
            rng = torch.Generator(self.layout.device).manual_seed(0)
            with torch.no_grad():
                self.moments.follow(self.sample(256, rng), memory=0.0)

    def title(self) -> str:
        return f"AVB, {super().title()}"

    def facts(self) -> dict[str, Any]:
        return {"family": "AVB", "adaptive_contrast": self.moments is not None} | super().facts()

    def get_extra_state(self) -> dict[str, Any]:
        return self.optimiser.state_dict()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.optimiser.load_state_dict(copy.deepcopy(state))  # else two families would share Adam's moments

    def _contrast(self, prior: Prior | None) -> Contrast:
        if self.moments is not None:
            return self.moments.contrast()
        if prior is None:
            raise ValueError("prior: expected one, with which this posterior is contrasted, got None; or set adaptive.")
        return prior_contrast(prior, self.num_params)


def _discriminator(num_params: int, hidden: Sequence[int]) -> nn.Sequential:
    """An MLP whose output is 0 at first, so that both classes begin equally likely."""
    widths = [num_params, *(checks.positive_int("each of hidden", width) for width in hidden)]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ELU()]
    last = nn.Linear(widths[-1], 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)


def fit_avb(
    net: nn.Module,
    data: Any,
    likelihood: Likelihood,
    *,
    adaptive: bool = False,
    hidden: Sequence[int] | None = None,
    num_contrast: int | None = None,
    epochs: int | None = None,
    rate: float = 3e-3,
    **options: Any,
) -> Posterior:
    """Livi's generator and noise, with the entropy estimated by a discriminator; see `Adversarial`.

    Args:
        **options: as in `livi.inference.fit`, except for entropy and family. Without adaptive contrast, the prior must
            have a `sample` method.
    """

    def make(layout: Layout, generators: list[Generator], noises: list[Noise]) -> Adversarial:
        return Adversarial(
            layout,
            generators,
            noises,
            adaptive=adaptive,
            hidden=hidden,
            num_contrast=num_contrast,
            epochs=epochs,
            rate=rate,
        )

    return fit_sampler("fit_avb", make, net, data, likelihood, options)
