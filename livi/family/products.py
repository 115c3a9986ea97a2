"""Jacobians written out: products J v and J^T u as plain matrix products, from values stored by one evaluation of g.

A generator is a chain of few kinds of layers, and at one z each of them is a matrix of a known structure. A `Piece` is
such a matrix: `push` applies it to the last axis of a tensor and `pull` its transpose, whatever axes come before, so
that a stack of vectors (P, S, d) takes one call. `Products` makes a `LinearMap` of a piece. Nothing here reads a value
back, so that all of it can be part of a CUDA graph.

Pieces hold gates (an activation's slopes at the pre-activations) with their graph. Differentiating a pushed vector once
therefore gives the whole gradient of J v, second derivatives of the activation included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F


class Piece(Protocol):
    """A matrix for each of S rows: (..., S, a) -> (..., S, b), and its transpose back."""

    def push(self, v: Tensor) -> Tensor: ...

    def pull(self, u: Tensor) -> Tensor: ...


class Linearised(NamedTuple):
    """A function at one z: its value, evaluated when asked for (products need no last layer), and its Jacobian."""

    value: Callable[[], Tensor]
    piece: Piece


class Products:
    """A piece as a `LinearMap`: `matvec` and `rmatvec` record nothing, `bilinear` is differentiable."""

    def __init__(self, function: Linearised, shape: tuple[int, int, int]) -> None:
        self.shape = shape  # (S, m, d)
        self._function = function

    @property
    def value(self) -> Tensor:  # (S, m)
        return self._function.value()

    @torch.no_grad()
    def matvec(self, v: Tensor) -> Tensor:  # (S, d) -> (S, m), or (P, S, d) -> (P, S, m)
        return self._function.piece.push(v)

    @torch.no_grad()
    def rmatvec(self, u: Tensor) -> Tensor:  # (S, m) -> (S, d), or (P, S, m) -> (P, S, d)
        return self._function.piece.pull(u)

    @torch.no_grad()
    def gram(self, weights: Tensor) -> Callable[[Tensor], Tensor]:  # () or (m,)
        """v -> J^T W J v, with as few passes over the m weights as possible."""
        piece, weights = _absorbed(self._function.piece, weights.detach())
        shared = weights.ndim == 0  # then it is cheaper to weigh the d numbers of v

        @torch.no_grad()
        def product(v: Tensor) -> Tensor:
            return piece.pull(piece.push(v * weights) if shared else piece.push(v) * weights)

        return product

    def bilinear(self, u: Tensor, v: Tensor) -> Tensor:  # (S, m), (S, d) -> (S,), or with P in front of all
        """<u, J v> with v held fixed, by differentiating the written-out J v once."""
        return (u * self._function.piece.push(v.detach())).sum(-1)


@dataclass(frozen=True)
class Chain:
    """The pieces of a composition, the first to be applied first."""

    pieces: tuple[Piece, ...]

    def push(self, v: Tensor) -> Tensor:
        for piece in self.pieces:
            v = piece.push(v)
        return v

    def pull(self, u: Tensor) -> Tensor:
        for piece in reversed(self.pieces):
            u = piece.pull(u)
        return u


@dataclass(frozen=True)
class Sum:
    """Two pieces side by side, their results added."""

    first: Piece
    second: Piece

    def push(self, v: Tensor) -> Tensor:
        return self.first.push(v) + self.second.push(v)

    def pull(self, u: Tensor) -> Tensor:
        return self.first.pull(u) + self.second.pull(u)


@dataclass(frozen=True)
class Gate:
    """A diagonal matrix: the slopes of an elementwise activation, (S, k), or a factor for each output, (k,)."""

    slope: Tensor

    def push(self, v: Tensor) -> Tensor:
        return v * self.slope

    def pull(self, u: Tensor) -> Tensor:
        return u * self.slope


@dataclass(frozen=True)
class Dense:
    """One (b, a) matrix for all rows."""

    weight: Tensor

    def push(self, v: Tensor) -> Tensor:
        return v @ self.weight.mT

    def pull(self, u: Tensor) -> Tensor:
        return u @ self.weight


@dataclass(frozen=True)
class Zero:
    """The Jacobian of a constant, a inputs to b outputs."""

    inputs: int
    outputs: int

    def push(self, v: Tensor) -> Tensor:
        return v.new_zeros((*v.shape[:-1], self.outputs))

    def pull(self, u: Tensor) -> Tensor:
        return u.new_zeros((*u.shape[:-1], self.inputs))


@dataclass(frozen=True)
class Matrix:
    """X -> L X R for (p, q) matrices X in the last axis; for n of them side by side where L and R have n in front.

    The order of the two products is the cheaper one: it matters where p' : p is unlike q' : q.
    """

    left: Tensor  # (p', p) or (n, p', p)
    right: Tensor  # (q, q') or (n, q, q')

    def push(self, v: Tensor) -> Tensor:
        return self._between(v, self.left, self.right, self._right_first())

    def pull(self, u: Tensor) -> Tensor:
        return self._between(u, self.left.mT, self.right.mT, not self._right_first())

    def _right_first(self) -> bool:
        (p_out, p), (q, q_out) = self.left.shape[-2:], self.right.shape[-2:]
        return p * q * q_out + p_out * p * q_out < p_out * p * q + p_out * q * q_out

    def _between(self, x: Tensor, left: Tensor, right: Tensor, right_first: bool) -> Tensor:
        number = left.shape[:-2]
        x = x.unflatten(-1, (*number, left.shape[-1], right.shape[-2]))
        left = left.expand(*x.shape[:-2], -1, -1)  # else matmul transposes x to have one product, which costs a copy
        x = left @ (x @ right) if right_first else left @ x @ right
        return x.flatten(-2 - len(number))


@dataclass(frozen=True)
class Cut:
    """The first `kept` of `size` outputs."""

    size: int
    kept: int

    def push(self, v: Tensor) -> Tensor:
        return v if self.kept == self.size else v[..., : self.kept]

    def pull(self, u: Tensor) -> Tensor:
        return u if self.kept == self.size else F.pad(u, (0, self.size - self.kept))


class Share(NamedTuple):
    """How many inputs one block of a block-diagonal matrix takes, and how many of its outputs are kept."""

    inputs: int
    outputs: int
    kept: int


class Blocks:
    """A block-diagonal matrix. One piece may stand for several blocks, whose inputs and outputs are neighbours."""

    def __init__(self, shares: Sequence[Share], groups: Sequence[tuple[tuple[int, ...], Piece]]) -> None:
        self.inputs, self.kept = [share.inputs for share in shares], [share.kept for share in shares]
        self.cuts = [Cut(share.outputs, share.kept) for share in shares]
        self.groups = tuple(groups)

    def push(self, v: Tensor) -> Tensor:
        shares, results = v.split(self.inputs, -1), dict[int, Tensor]()
        for members, piece in self.groups:
            image = piece.push(in_a_row([shares[i] for i in members]))
            parts = image.split([self.cuts[i].size for i in members], -1)
            results.update({i: self.cuts[i].push(part) for i, part in zip(members, parts, strict=True)})
        return in_a_row([results[i] for i in range(len(shares))])

    def pull(self, u: Tensor) -> Tensor:
        shares, results = u.split(self.kept, -1), dict[int, Tensor]()
        for members, piece in self.groups:
            image = piece.pull(in_a_row([self.cuts[i].pull(shares[i]) for i in members]))
            results.update(zip(members, image.split([self.inputs[i] for i in members], -1), strict=True))
        return in_a_row([results[i] for i in range(len(shares))])


def _absorbed(piece: Piece, weights: Tensor) -> tuple[Piece, Tensor]:
    """J^T W J = K^T V K: the diagonal factors and cuts that J ends with are moved into the weights."""
    while isinstance(piece, Chain):
        *before, last = piece.pieces
        if not before:
            if not isinstance(last, Chain):
                break
            piece = last
            continue
        if isinstance(last, Gate):
            weights = last.slope.square() * weights
        elif isinstance(last, Cut):
            weights = last.pull(weights.expand(last.kept) if weights.ndim == 0 else weights)
        elif isinstance(last, Chain):
            before = [*before, *last.pieces]
        else:
            break
        piece = Chain(tuple(before))
    return piece, weights


def in_a_row(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors), -1)
