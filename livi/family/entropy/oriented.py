"""L' of a generator with as many latents as dimensions, which must not fold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from livi.family.entropy.estimate import EntropyEstimate
from livi.family.entropy.exact import Exact
from livi.family.jacobian import RowFunction, dense_jacobian


@dataclass(frozen=True)
class Oriented:
    """`Exact` where det J > 0; where g reverses orientation, the term of its narrowest direction changes its sign.

    The linearised entropy is exact for an injective g, but rewards one that folds: it is too large by the entropy of
    which of several z gave a theta. For g(z) = b + W z + branch(z) with det W > 0 and a bounded branch, g is
    proper and of degree one, and injective if det J > 0 everywhere (Hadamard); a fold has z with det J < 0. There, with
    s the smallest singular value of the whitened Jacobian A, that direction's 1/2 log(1 + s^2) is subtracted instead of
    added, which is continuous at s = 0 and drives s back through it:

        H_z = Exact - log(1 + s^2) [det J < 0].

    So without a fold the value is that of `Exact`, and with one it is lower.

    Cost: that of `Exact`, an LU factorisation for the sign, and an SVD of each Jacobian with det J < 0.
    """

    def __call__(
        self,
        generator: RowFunction,
        z: Tensor,  # (S, d)
        noise_std: Tensor,  # () or (d,)
        rng: torch.Generator | None = None,
    ) -> EntropyEstimate:
        jacobian = dense_jacobian(generator, z)
        estimate = Exact()(_Known(generator, jacobian), z, noise_std, rng)
        turned = reversed_orientation(jacobian)
        if not bool(turned.any()):
            return estimate
        a = jacobian[turned] / noise_std.expand(z.shape[1])[:, None]
        smallest = torch.linalg.svdvals(a)[:, -1]
        nats = estimate.nats.index_add(0, turned.nonzero()[:, 0], -torch.log1p(smallest.square()))
        return EntropyEstimate(nats, estimate.report)


@torch.no_grad()
def reversed_orientation(jacobian: Tensor) -> Tensor:  # (S, d, d) -> (S,)
    """Which Jacobians have det J < 0."""
    if jacobian.shape[1] != jacobian.shape[2]:
        raise ValueError(
            f"generator: expected as many latents as dimensions, got {jacobian.shape[2]} and {jacobian.shape[1]}; "
            "set latent_dim, or take Exact()."
        )
    turned: Tensor = torch.linalg.slogdet(jacobian).sign < 0
    return turned


class _Known:
    """A generator whose Jacobian at the latents at hand has been computed."""

    def __init__(self, generator: RowFunction, jacobian: Tensor) -> None:
        self.generator, self._jacobian = generator, jacobian

    def __call__(self, z: Tensor) -> Tensor:
        return self.generator(z)

    def jacobian(self, z: Tensor) -> Tensor:  # noqa: ARG002 - those at hand
        return self._jacobian
