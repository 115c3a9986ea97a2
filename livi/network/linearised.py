"""The first-order expansion of a network in its weights, as a layout that evaluates like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from livi.network.parameters import Layout


class Linearised(Layout):
    """f(x, centre) + J(x) (theta - centre): the network around one weight vector, linear in theta.

    A Gaussian over theta is then a Gaussian over the outputs, f(x, centre) and J S J^T, without J ever being formed: an
    evaluation is one product with J, by forward differentiation, about two passes through the network.

    Args:
        layout: of the network itself.
        centre: gives the weights to expand around, at every evaluation anew.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Tanh())
    >>> flat = Linearised(Layout(net), lambda: torch.tensor([0.5]))
    >>> flat.apply(torch.tensor([10.0]), torch.tensor([[1.0]]))  # tanh(0.5) + 9.5 / cosh(0.5)^2
    tensor([[7.9334]])
    """

    def __init__(self, layout: Layout, centre: Callable[[], Tensor]) -> None:
        super().__init__(layout.module, layout.include, layout.exclude, forward=layout.forward, scaling=layout.scaling)
        self.centre = centre

    def call(
        self,
        theta: Tensor,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        buffers: Mapping[str, Tensor] | None,
    ) -> Any:
        centre = self.centre()

        def outputs(weights: Tensor) -> Any:
            return super(Linearised, self).call(weights, args, kwargs, buffers)

        values, change = torch.func.jvp(outputs, (centre,), (theta - centre,))  # type: ignore[misc]
        return torch.utils._pytree.tree_map(torch.add, values, change)
