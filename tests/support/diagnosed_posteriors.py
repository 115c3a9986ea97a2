"""Posteriors for tests of the diagnosis, some known in closed form."""

from dataclasses import dataclass, field

import torch

from livi.family.generators import Affine
from livi.family.implicit import ImplicitPosterior
from livi.family.noise import DiagonalNoise
from livi.model.likelihoods import Gaussian, Likelihood
from livi.model.priors import Normal, Prior
from livi.posterior.diagnostics import Effort

CHEAP = Effort(num_densities=24, num_importance=32, num_starts=1, num_latents=2, num_prior=16, mean_field_steps=20)


@dataclass
class Fitted:
    """A stand-in for what livi.fit returns."""

    sampler: object
    likelihood: Likelihood = field(default_factory=lambda: Gaussian(0.5))
    prior: Prior | None = field(default_factory=Normal)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)


class Members:
    """An ensemble: draws with replacement from fixed weight vectors."""

    def __init__(self, layout, members):
        self.layout, self.members = layout, members

    def sample(self, num_samples, rng=None):
        return self.members[torch.randint(len(self.members), (num_samples,), generator=rng)]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed))


def affine(layout, latent_dim=None, noise=0.3, seed=0):
    generator = Affine(latent_dim or layout.num_params, layout.num_params)
    with torch.no_grad():
        generator.skip.copy_(0.4 * gaussian(*generator.skip.shape, seed=seed))
        generator.offset.copy_(gaussian(layout.num_params, seed=seed + 1))
    return ImplicitPosterior(layout, generator, DiagonalNoise(layout.num_params, noise))


def covariance(posterior):
    generator, noise = posterior.generators[0], posterior.noises[0]
    return (generator.skip @ generator.skip.T + torch.diag(noise.std().square())).detach()


def close(estimate, truth, errors=4.5):
    return abs(estimate.value - truth) < errors * estimate.standard_error + 1e-9
