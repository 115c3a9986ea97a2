"""Whole functions drawn from a posterior, evaluated jointly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, overload

from torch import Tensor
from torch.utils import _pytree as pytree

from livi import checks
from livi.model.data import as_tensors
from livi.network import Layout, Strategy
from livi.network.turns import in_turn
from livi.posterior.prediction.chunks import evaluate, rows_of


class FunctionDraws:
    """S networks with fixed weights: the same functions at any inputs, as often as needed.

    Evaluating at x1 and then at x2 is the same as evaluating at both together, so joint questions can be asked: where
    is the maximum, how do values at two places vary together. Outputs are the network's own, no axis is dropped.
    Inputs are tensors, arrays or lists of numbers; they are moved to the network's device and dtype. Gradients flow to
    those that require them, as for optimising a drawn function; the weights are constants.

    Args:
        theta: one row for each function.
        buffers: BatchNorm statistics, shared or with S rows in front.
        memory_limit, strategy: as in `livi.posterior.prediction.evaluate`, which does the work in chunks.

    >>> import torch
    >>> from torch import nn
    >>> layout = Layout(nn.Linear(1, 1))
    >>> draws = FunctionDraws(layout, torch.tensor([[1.0, 0.0], [2.0, 1.0]]))
    >>> draws(torch.tensor([[3.0]])).squeeze()
    tensor([3., 7.])
    >>> draws[1](torch.tensor([[3.0]]))
    tensor([[7.]])
    """

    def __init__(
        self,
        layout: Layout,
        theta: Tensor,  # (S, m)
        buffers: Mapping[str, Tensor] | None = None,
        *,
        memory_limit: int | None = None,
        strategy: Strategy | None = None,
    ) -> None:
        checks.matrix("theta", theta, layout.num_params)
        checks.same_kind("theta", theta, layout.dtype, layout.device)
        layout.check_buffers(buffers or {}, theta.shape[0])
        self.layout = layout
        self.theta = theta.detach()
        self.buffers = dict(buffers or {})
        self.memory_limit = memory_limit
        self.strategy = strategy

    @in_turn
    def __call__(self, inputs: Any) -> Any:  # (S, B, ...)
        return evaluate(
            self.layout,
            self.theta,
            as_tensors(inputs, self.layout.device, self.layout.dtype),
            buffers=self.buffers,
            memory_limit=self.memory_limit,
            strategy=self.strategy,
        )

    def __len__(self) -> int:
        return self.theta.shape[0]

    @overload
    def __getitem__(self, index: int) -> FunctionDraw: ...
    @overload
    def __getitem__(self, index: slice) -> FunctionDraws: ...
    def __getitem__(self, index: int | slice) -> FunctionDraw | FunctionDraws:
        if isinstance(index, slice):
            return self._rows(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index: expected -{len(self)} to {len(self) - 1}, got {index}.")
        return FunctionDraw(self._rows(slice(index % len(self), index % len(self) + 1)))

    def __iter__(self) -> Iterator[FunctionDraw]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"FunctionDraws({len(self)} of {self.layout!r})"

    def _rows(self, rows: slice) -> FunctionDraws:
        return FunctionDraws(
            self.layout,
            self.theta[rows],
            rows_of(self.layout, self.buffers, rows),
            memory_limit=self.memory_limit,
            strategy=self.strategy,
        )


class FunctionDraw:
    """One of several `FunctionDraws`, without the sample axis: inputs -> (B, ...)."""

    def __init__(self, draws: FunctionDraws) -> None:
        self.draws = draws

    @property
    def theta(self) -> Tensor:  # (m,)
        return self.draws.theta[0]

    def __call__(self, inputs: Any) -> Any:  # (B, ...)
        return pytree.tree_map(lambda leaf: leaf[0], self.draws(inputs))
