"""`Family`: a posterior that can be learned on the bound, because it draws weights and knows its entropy.

`WeightSampler` is what prediction, storage and diagnostics know: anything that draws weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from livi.family.entropy import EntropyEstimate, EntropyEstimator, EntropyReport
from livi.family.latents import Latents
from livi.family.share import Share
from livi.model.priors import Prior
from livi.network import Layout, as_layout
from livi.spec import Specified


@runtime_checkable
class WeightSampler(Protocol):
    """Anything that draws weight vectors for a layout: an implicit posterior, an ensemble, a Markov chain.

    To be saved it is also an nn.Module and a `livi.spec.Specified` with an argument `layout`.
    """

    @property
    def layout(self) -> Layout: ...

    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor: ...  # (S, m)


@runtime_checkable
class Centred(Protocol):
    """A sampler that has one network for a quick, deterministic answer."""

    def centre(self) -> Tensor: ...  # (m,)


class Draw(NamedTuple):
    """Weights and, for a family that has them, the latents they came from, component by component in equal shares."""

    theta: Tensor  # (S, m)
    latents: tuple[Tensor, ...] = ()  # K of (S / K, d)


class Estimation(NamedTuple):
    """How to estimate an entropy that has no closed form: the estimator, from how many draws, with which `rng`.

    The prior is for families that know KL(q || p) rather than H[q].
    """

    estimator: EntropyEstimator
    num_samples: int
    rng: torch.Generator | None = None
    prior: Prior | None = None


class Rates(NamedTuple):
    """A family's parameters by the learning rate that suits them; those it trains itself are in none."""

    affine: list[nn.Parameter]  # locations, linear maps
    nonlinear: list[nn.Parameter]
    hyper: list[nn.Parameter]  # scales


class Family(Specified, nn.Module, ABC):
    """q(theta) with parameters to learn: `livi.fit(..., family=MyFamily)` fits one of your own.

    A subclass defines `draw`, `entropy`, `centre` and `begin_around`; its constructor takes the layout. Parameters are
    learned on the bound, at `rates`. One that learns a density ratio as well, with an optimiser of its own, takes
    those steps in `prepare_step`, leaves those parameters out of `rates`, and keeps the optimiser's state through
    `get_extra_state` and `set_extra_state`.

    Args:
        layout: which weights, in which order. Moving or converting the family moves its module along.
    """

    num_components = 1
    learns_spread = True  # whether weights that hardly vary are worth a warning
    capturable = False  # whether `draw` and `entropy` read no value back, so that a step can be a CUDA graph
    entropy_apart = False  # whether `entropy` has an autograd graph of its own, which shares nothing with the draw's

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = as_layout(layout)

    @property
    def num_params(self) -> int:
        return self.layout.num_params

    @abstractmethod
    def draw(self, num_samples: int, rng: torch.Generator | None = None, *, latents: Latents | None = None) -> Draw:
        """Weights, differentiable in the parameters. `latents` is how to draw latents, for families that have any."""

    @abstractmethod
    def entropy(self, draw: Draw, how: Estimation) -> tuple[EntropyEstimate, ...]:
        """H[q] in nats with every constant, one estimate per component, whose mean counts; see `exactly`.

        Where only KL(q || p) can be estimated, -KL - E log p(theta) serves, the mean taken over `draw.theta`, with the
        prior p in `how.prior`.
        """

    def draw_share(
        self, share: Share, num_samples: int, rng: torch.Generator | None = None, *, latents: Latents | None = None
    ) -> Draw:
        """This rank's share of the weights of `draw`, from the same random numbers on every rank.

        Here all weights are drawn and a share is kept; a family with costly draws computes its share only.
        """
        draw = self.draw(num_samples, rng, latents=latents)
        own = torch.cat([part[share.samples] for part in draw.theta.chunk(self.num_components)])
        return Draw(own, tuple(z[share.samples] for z in draw.latents))

    def entropy_share(self, share: Share, draw: Draw, how: Estimation) -> tuple[tuple[EntropyEstimate, ...], float]:
        """This rank's estimates of the entropy and their weight; the weighted means of all ranks add up to H[q].

        Every rank must draw as many random numbers as the others, so that `how.rng` stays the same on all of them.
        """
        return self.entropy(draw, how), 1.0 / share.ranks

    @abstractmethod
    def centre(self) -> Tensor:  # (m,)
        """One network for a quick, deterministic answer."""

    @abstractmethod
    def begin_around(self, rows: Tensor, spread: float, *, relative: bool = False) -> None:  # (K, m)
        """Put each component around its row, with this standard deviation: absolute, or relative to the weights."""

    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (S, m)
        """Weight vectors from q."""
        return self.draw(num_samples, rng).theta

    def rates(self) -> Rates:
        return Rates(list(self.parameters()), [], [])

    def prepare_step(self, prior: Prior, rng: torch.Generator | None) -> None:
        """Called before every step on the bound, for parameters that the family trains itself."""

    def title(self) -> str:
        """A short name for display."""
        return type(self).__name__

    def facts(self) -> dict[str, Any]:
        """What a plan says about the family, as JSON-able values."""
        return {"family": type(self).__name__, "components": self.num_components}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # `.to`, `.cuda`, `.double` reach the network too: theta must always match it in dtype and device.
        self.layout.module._apply(fn, recurse)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]


def exactly(nats: Tensor) -> tuple[EntropyEstimate, ...]:
    """An entropy in closed form, as an estimate without error."""
    values = nats.reshape(1)
    return (EntropyEstimate(values, EntropyReport(torch.ones_like(values, dtype=torch.bool), products=0)),)
