"""Mean-field Gaussian variational inference: a Gaussian with independent weights, by `livi.fit`."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn

from livi.family.entropy import Exact
from livi.family.generators import Generator
from livi.family.noise import DiagonalNoise, RelativeNoise
from livi.inference import Recipe, fit
from livi.inference.rules import BySize, Size, default_recipe
from livi.model.likelihoods import Likelihood
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.rivals.options import refuse


class Constant(Generator):
    """The generator g(z) = b. With a `DiagonalNoise`, theta = b + s * eps is a mean-field Gaussian.

    Its one latent has no effect: the Jacobian is zero, and the entropy is exactly that of the noise.

    >>> Constant(3)(torch.zeros(2, 1))
    tensor([[0., 0., 0.],
            [0., 0., 0.]], grad_fn=<AddBackward0>)
    """

    def __init__(self, num_params: int) -> None:
        super().__init__(1, num_params, offset=True)

    @classmethod
    def for_layout(cls, layout: Layout) -> Self:
        return cls(layout.num_params).to(layout.device, layout.dtype)

    def branch(self, z: Tensor) -> Tensor:
        # A function of z, with respect to which matrix-free estimators differentiate.
        return (0.0 * z).expand(-1, self.num_params)

    def jacobian(self, z: Tensor) -> Tensor:  # (S, m, 1)
        return z.new_zeros(z.shape[0], self.num_params, 1)

    def _rescale_branch(self, factor: float) -> None:
        pass  # there is no branch to rescale

    def _shift_branch(self, delta: Tensor) -> None:
        raise AssertionError(f"the offset takes every shift, got {torch.Size(delta.shape)}")


def fit_mean_field(net: nn.Module, data: Any, likelihood: Likelihood, **options: Any) -> Posterior:
    """Mean field: q(theta) = N(b, diag(s^2)), with the MAP start, spread and schedule of `livi.inference.fit`.

    A spread relative to the size of the weights is relative to the network's weights before the fit.

    Args:
        **options: as in `livi.inference.fit`, except for generator, noise and entropy. `components` = K trains a
            mixture of K mean-field Gaussians.
    """
    refuse("fit_mean_field", options, "generator", "noise", "entropy")
    given, components = options.get("recipe") or Recipe(), options.get("components") or 1

    @torch.no_grad()
    def noise(size: Size) -> DiagonalNoise:
        layout, recipe = size.layout, given.over(default_recipe(size, components))
        made = DiagonalNoise(layout.num_params, recipe.spread)
        if recipe.relative_spread:
            relative = RelativeNoise([slot.numel for slot in layout.slots], recipe.spread, floors=0.01)
            relative.init_around(layout.flatten())
            made.log_std.copy_(relative.std().log())
        return made

    own = {"generator": Constant.for_layout, "noise": BySize(noise), "entropy": Exact()}
    return fit(net, data, likelihood, **({"last_layer": "sampled"} | options | own))
