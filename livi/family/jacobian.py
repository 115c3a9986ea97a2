"""The Jacobian of a row-wise function as a linear map that is never formed.

For g: (S, d) -> (S, m) acting on each row by itself, J is one (m, d) matrix for each of the S rows. A generator that
knows its own structure has its products written out (`products.py`). For any other function, both products reuse one
recorded evaluation of g:

- the adjoint J^T u is an ordinary backward pass;
- the product J v is the backward pass of u -> J^T u, which is linear in u (a transposed transpose). It costs about one
  evaluation of g. Forward mode would evaluate g again for every product, and takes three to four times as long.

Products accept a stack of vectors, (P, S, d) or (P, S, m), and share the recorded evaluation among them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.func import jvp, vmap

RowFunction = Callable[[Tensor], Tensor]  # (S, d) -> (S, m), each row by itself
LARGE = 2**13  # numbers in a vector; on a CPU, batching products with larger ones gains nothing


class LinearMap(Protocol):
    """J_g(z) as estimators use it. Every method also takes a stack of vectors, with one more axis in front."""

    @property
    def value(self) -> Tensor:  # (S, m)
        ...

    @property
    def shape(self) -> tuple[int, int, int]:
        """(S, m, d)."""
        ...

    def matvec(self, v: Tensor) -> Tensor:  # (S, d) -> (S, m)
        """J v, without a graph."""
        ...

    def rmatvec(self, u: Tensor) -> Tensor:  # (S, m) -> (S, d)
        """J^T u, without a graph."""
        ...

    def gram(self, weights: Tensor) -> Callable[[Tensor], Tensor]:  # () or (m,)
        """v -> J^T diag(weights) J v, without a graph: (S, d) -> (S, d)."""
        ...

    def bilinear(self, u: Tensor, v: Tensor) -> Tensor:  # (S, m), (S, d) -> (S,)
        """<u, J v> with v held fixed, differentiable in everything that g depends on, and in u."""
        ...


def linearised(function: RowFunction, z: Tensor) -> LinearMap:
    """J_g(z): by the function's own `linearised(z)` where it has one, else by autograd."""
    own = getattr(function, "linearised", None)
    found: LinearMap = Jacobian(function, z) if own is None else own(z)
    return found


class Jacobian:
    """J_g(z) by autograd: products, adjoint products and a differentiable bilinear form.

    Args:
        function: g, twice differentiable almost everywhere, acting on each row by itself.
        z: (S, d).

    >>> weights = torch.arange(6.0).reshape(3, 2)
    >>> jacobian = Jacobian(lambda z: z @ weights.T, torch.zeros(1, 2))
    >>> jacobian.matvec(torch.tensor([[1.0, 0.0]]))
    tensor([[0., 2., 4.]])
    >>> jacobian.rmatvec(torch.tensor([[1.0, 0.0, 0.0]]))
    tensor([[0., 1.]])
    """

    def __init__(self, function: RowFunction, z: Tensor) -> None:
        self.function = function
        with torch.enable_grad():
            self._z = z.detach().requires_grad_()
            self.value = function(self._z)  # (S, m)
            self._u = torch.zeros_like(self.value, requires_grad=True)
            used = self.value.requires_grad
            (adjoint,) = (
                torch.autograd.grad(self.value, self._z, self._u, create_graph=True, allow_unused=True)
                if used
                else (None,)
            )
            self._adjoint = torch.zeros_like(self._z) if adjoint is None else adjoint  # zeros: g ignores z
            self._constant = adjoint is None

    @property
    def shape(self) -> tuple[int, int, int]:
        """(S, m, d)."""
        return self.value.shape[0], self.value.shape[1], self._z.shape[1]

    def matvec(self, v: Tensor) -> Tensor:  # (S, d) -> (S, m), or (P, S, d) -> (P, S, m)
        if self._constant or not self._adjoint.requires_grad:  # J^T u does not depend on u: g ignores z
            return v.new_zeros((*v.shape[:-1], self.value.shape[1]))
        return self._product(self._adjoint, self._u, v)

    def rmatvec(self, u: Tensor) -> Tensor:  # (S, m) -> (S, d), or (P, S, m) -> (P, S, d)
        if self._constant:
            return u.new_zeros((*u.shape[:-1], self._z.shape[1]))
        return self._product(self.value, self._z, u)

    def gram(self, weights: Tensor) -> Callable[[Tensor], Tensor]:  # () or (m,)
        return lambda v: self.rmatvec(self.matvec(v) * weights.detach())

    def bilinear(self, u: Tensor, v: Tensor) -> Tensor:  # (S, m), (S, d) -> (S,), or with P in front of all
        """<u, J v> with v held fixed, differentiable in everything that g depends on, and in u.

        One double backward pass; its gradient is that of a Jacobian product at half the cost of differentiating one.
        """
        if u.ndim == 3:
            return torch.stack([self.bilinear(*pair) for pair in zip(u, v, strict=True)])
        if self._constant:
            return (0.0 * u).sum(-1)
        with torch.enable_grad():
            (pulled,) = torch.autograd.grad(self.value, self._z, u, create_graph=True)
            return (pulled * v.detach()).sum(-1)

    def _product(self, outputs: Tensor, inputs: Tensor, weights: Tensor) -> Tensor:
        batched = weights.ndim == outputs.ndim + 1
        if batched and goes_one_by_one(weights, self.shape):
            return torch.stack([self._product(outputs, inputs, row) for row in weights])
        (product,) = torch.autograd.grad(outputs, inputs, weights, retain_graph=True, is_grads_batched=batched)
        return product


def goes_one_by_one(vectors: Tensor, shape: tuple[int, int, int]) -> bool:
    """Whether a stack of vectors is better multiplied one by one with a map of shape (S, m, d)."""
    samples, m, d = shape
    return vectors.shape[0] == 1 or (not vectors.is_cuda and samples * max(m, d) > LARGE)


def dense_jacobian(function: RowFunction, z: Tensor) -> Tensor:  # (S, m, d)
    """All of J_g(z), differentiable: by the function's own `jacobian(z)` where it has one, else by forward mode.
    O(S m d) memory."""
    own = getattr(function, "jacobian", None)
    jacobian: Tensor = forward_mode_jacobian(function, z) if own is None else own(z)
    return jacobian


def forward_mode_jacobian(function: RowFunction, z: Tensor) -> Tensor:  # (S, m, d)
    """J_g(z) column by column, over the d unit directions."""
    directions = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)

    def column(direction: Tensor) -> Tensor:
        tangent: Tensor = jvp(function, (z,), (direction.expand_as(z),))[1]
        return tangent

    columns: Tensor = vmap(column, out_dims=-1)(directions)
    return columns
