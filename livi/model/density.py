"""An unnormalised density as a `Problem`: theta is the vector itself, the density its prior, and there are no data."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from livi import checks
from livi.model.data import TensorData
from livi.model.likelihoods import Likelihood
from livi.model.priors import FunctionPrior
from livi.model.problem import Problem
from livi.network import Layout, Vmap

LogProb = Callable[[Tensor], Tensor]  # (S, dim) -> (S,)


class Point(nn.Module):
    """A network that is nothing but its weights: the same vector for every input."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(dim))

    def forward(self, inputs: Tensor) -> Tensor:  # (B, ...) -> (B, dim)
        return self.theta.expand(len(inputs), -1)


class NoData(Likelihood):
    """log p(D | theta) of no data: zero, whatever theta."""

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # (S, B, dim), (B,) -> (S, B)
        return outputs.new_zeros(len(outputs), len(targets))


def density_problem(
    log_prob: LogProb, dim: int, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Problem:
    """The problem whose posterior is proportional to exp(log_prob), so that every bound is one on its normaliser.

    >>> problem = density_problem(lambda x: -0.5 * x.square().sum(1), 2)
    >>> log_likelihood, log_prior = problem.on_data(torch.ones(3, 2))
    >>> log_likelihood, log_prior
    (tensor([0., 0., 0.]), tensor([-1., -1., -1.]))
    """
    with checks.has_doubles("device", checks.device(device)):
        point = Point(checks.positive_int("dim", dim)).to(dtype)
    layout = Layout(point)
    nothing = torch.zeros(1, dtype=layout.dtype, device=layout.device)
    return Problem(layout, TensorData(nothing[:, None], nothing), NoData(), FunctionPrior(log_prob), Vmap())
