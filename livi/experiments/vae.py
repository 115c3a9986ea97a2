"""A variational autoencoder whose decoder is a livi generator, so that its encoder is a proposal for the latents."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from livi.family.generators import MLP

BATCH, RATE = 128, 1e-3


class VAE(nn.Module):
    """p(x) = E_z N(x; decoder(z), noise^2 I), trained on the ELBO with a Gaussian encoder (Kingma and Welling 2014).

    Args:
        noise: fixed, small standard deviation of the outputs. The decoder with this noise is a density of the same
            form as `livi.ImplicitPosterior`.
    """

    def __init__(self, size: int, latent_dim: int, hidden: int, noise: float) -> None:
        super().__init__()
        self.noise: Tensor
        self.register_buffer("noise", torch.tensor(noise))
        self.encoder = nn.Sequential(nn.Linear(size, hidden), nn.ELU(), nn.Linear(hidden, 2 * latent_dim))
        self.decoder = MLP(latent_dim, size, hidden=(hidden,))

    def encoded(self, x: Tensor) -> tuple[Tensor, Tensor]:  # (n, d), (n, d)
        """Mean and standard deviation of the encoder's q(z | x)."""
        mean, log_std = self.encoder(x).chunk(2, 1)
        return mean, log_std.exp()

    def elbo(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:  # (n,)
        """The bound on log p(x) in nats, from one draw of the latents for each x."""
        mean, std = self.encoded(x)
        z = mean + std * torch.randn(mean.shape, generator=rng)
        unit = (x - self.decoder(z)) / self.noise
        fit = -0.5 * unit.square().sum(1) - x.shape[1] * (self.noise.log() + 0.5 * math.log(2.0 * math.pi))
        divergence = 0.5 * (mean.square() + std.square() - 1.0).sum(1) - std.log().sum(1)
        bound: Tensor = fit - divergence
        return bound


def train(vae: VAE, rows: Tensor, epochs: int, rng: torch.Generator) -> Iterator[int]:
    """Train by Adam, yielding the number of epochs done: 0 before the first one, then after each."""
    optimiser = torch.optim.Adam(vae.parameters(), RATE)
    yield 0
    for epoch in range(1, epochs + 1):
        for batch in torch.randperm(len(rows), generator=rng).split(BATCH):
            loss = -vae.elbo(rows[batch], rng).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        yield epoch
