"""A posterior made of finitely many networks: the members of an ensemble, or draws that were kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from livi import checks
from livi.network import Layout
from livi.spec import Specified


class Ensemble(Specified, nn.Module):
    """K weight vectors, each as likely as the others.

    Args:
        layout: which weights, in which order. Moving or converting the ensemble moves its module along.
        theta: the members, one per row.

    >>> members = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> Ensemble(Layout(nn.Linear(2, 1)), members).sample(4, torch.Generator().manual_seed(0)).sum(0)
    tensor([10., 14., 18.])
    """

    def __init__(self, layout: Layout, theta: Tensor) -> None:  # (K, m)
        super().__init__()
        checks.matrix("theta", theta, layout.num_params)
        self.layout = layout
        self.theta: Tensor
        self.register_buffer("theta", theta.detach().clone().to(layout.device, layout.dtype))

    @property
    def num_members(self) -> int:
        return self.theta.shape[0]

    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (S, m)
        """Members in equal shares; a remainder goes to randomly chosen ones."""
        return self.theta[self.choose(num_samples, rng)]

    def choose(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (S,)
        """The members' numbers in a random order, repeated as often as needed."""
        checks.positive_int("num_samples", num_samples)
        order = torch.randperm(self.num_members, generator=rng, device=rng.device if rng else None)
        return order.repeat(-(-num_samples // self.num_members))[:num_samples].to(self.theta.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self.layout.module._apply(fn, recurse)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
