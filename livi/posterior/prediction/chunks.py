"""Evaluating many weight vectors on many examples within a memory limit.

How the limit is kept. The module is run at one weight vector on one example and on four, while every operation is
watched: a tensor's storage counts from the operation that made it until it is freed. The bytes alive after each
operation are a constant plus a multiple of the number of examples, so two runs give both, and their maximum over
operations at any number of examples is the peak of one weight vector. It is doubled, since vmap puts some activations
in another order (a copy) when there are several weight vectors, and kernels take scratch space that cannot be
watched. Then as many weight vectors as fit are evaluated at once; where not even one fits, one at a time on as many
examples as fit. On a CPU several take 32 MB together and no more, whatever the limit: that is as much as the C library
keeps for the next operation, and larger blocks come from the system anew, page by page, which takes longer than the
arithmetic. What was measured of a network is kept for further inputs of the same kind, since for few of them
measuring takes longer than answering.

What is not counted: the weight vectors themselves and the outputs that are returned.
"""

from __future__ import annotations

import bisect
import itertools
import math
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from livi import checks
from livi.network import Layout, Strategy, apply_many, as_call, record_statistics

DEFAULT_MEMORY_LIMIT = 2**30
"""One GiB of activations; on a CPU it is for one weight vector, and several take at most 32 MB."""

_QUICK = 2**25  # bytes of activations of several weight vectors on a CPU
_PROBE = 4  # examples
_MARGIN = 2
_MOST_KINDS = 64  # of inputs, of which costs are kept: texts may have any length

Call = tuple[tuple[Any, ...], dict[str, Any]]
Evaluation = Callable[[slice, Call], Any]  # rows of theta, inputs -> outputs


def evaluate(
    layout: Layout,
    theta: Tensor,  # (S, m)
    inputs: Any,
    *,
    buffers: Mapping[str, Tensor] | None = None,
    memory_limit: int | None = None,
    strategy: Strategy | None = None,
) -> Any:
    """`livi.apply_many` in chunks: the module's outputs (S, B, ...) at every theta, the same up to rounding.

    Inputs are split along their first axis only if all of them are tensors (or plain numbers, words and None) of one
    leading size, and a trial on four examples shows that the module treats them one by one. A batch that cannot be
    split, or an example that is too big, is evaluated whole, one weight vector at a time, whatever the limit.

    Args:
        inputs: a tensor, a tuple of positional or a dict of keyword arguments.
        buffers: as in `apply_many`; one with S rows in front is per sample.
        memory_limit: bytes of activations, DEFAULT_MEMORY_LIMIT where not given.

    Raises:
        TypeError: an input is a numpy array.
        ValueError: an input is on another device, or of a floating dtype that the module does not have.

    Cost: that of `apply_many`, and, of the first inputs of their kind or where examples have to be split, up to seven
    passes at one weight vector on four or fewer examples.
    """
    checks.matrix("theta", theta, layout.num_params)
    limit = checks.positive_int("memory_limit", DEFAULT_MEMORY_LIMIT if memory_limit is None else memory_limit)
    num_samples = theta.shape[0]
    call = _checked(layout, as_call(inputs))
    layout.check_buffers(buffers or {}, num_samples)

    def outputs(rows: slice, part: Call) -> Any:
        own = rows_of(layout, buffers or {}, rows)
        return apply_many(layout, theta[rows], *part[0], buffers=own, strategy=strategy, **part[1])

    with layout.turn:
        costs = _COSTS.setdefault(layout, {})
        own = tuple((name, buffer.ndim) for name, buffer in (buffers or {}).items())
        kind = (strategy, theta.dtype, theta.device, theta.requires_grad, torch.is_grad_enabled(), own)
        chunks = in_chunks(outputs, call, num_samples, limit, known=_Known(costs, kind))
        return joined([joined(list(parts), 1) for parts in chunks], 0)


def in_chunks(
    outputs: Evaluation,
    call: Call,
    num_samples: int,
    memory_limit: int | None = None,
    *,
    divisible: bool = True,
    known: _Known | None = None,
) -> Iterator[Iterator[Any]]:
    """Call `outputs` on some weight vectors and some examples at a time, and join what it returns.

    Whatever `outputs` takes of a call is split in the same way, such as targets among its arguments; limit and splits
    are those of `evaluate`.

    Args:
        divisible: False keeps all examples together.
        known: what was measured before, if anything.
    """
    num_examples = _num_examples(call) if divisible else None
    limit = DEFAULT_MEMORY_LIMIT if memory_limit is None else memory_limit
    known = _Known({}, ()) if known is None else known
    samples, examples = _chunk_sizes(outputs, call, num_samples, num_examples, limit, known)
    parts = [call]
    if num_examples is not None and examples is not None:
        parts = [_take(call, some) for some in _even_slices(num_examples, examples)]
    for rows in _even_slices(num_samples, samples):
        yield (outputs(rows, part) for part in parts)


@torch.no_grad()
def measure_statistics(
    layout: Layout,
    theta: Tensor,  # (S, m)
    inputs: Any,
    *,
    memory_limit: int | None = None,
    strategy: Strategy | None = None,
) -> dict[str, Tensor]:
    """`livi.network.record_statistics` on all of these inputs, for as many weight vectors at once as are allowed."""
    checks.matrix("theta", theta, layout.num_params)
    limit = checks.positive_int("memory_limit", DEFAULT_MEMORY_LIMIT if memory_limit is None else memory_limit)
    call = _checked(layout, as_call(inputs))

    def statistics(rows: slice, part: Call) -> Any:
        return record_statistics(layout, theta[rows], *part[0], strategy=strategy, **part[1])

    if not layout.batch_norms:
        return {}
    whole = _levels(statistics, call)
    size = _fitting(_at_once(limit, call), _Bytes(whole, (0,) * len(whole)).peak(1), theta.shape[0])
    found: dict[str, Tensor] = joined([statistics(rows, call) for rows in _even_slices(theta.shape[0], size)], 0)
    return found


def rows_of(layout: Layout, buffers: Mapping[str, Tensor], rows: slice | Tensor) -> dict[str, Tensor]:
    """The buffers for some of the weight vectors: their rows of those with one row per vector, the others whole."""
    known = {name: buffer.shape for name, buffer in layout.module.named_buffers()}
    return {name: buffer if buffer.shape == known[name] else buffer[rows] for name, buffer in buffers.items()}


@dataclass(frozen=True)
class _Bytes:
    """Bytes alive after each operation of a pass: for one example, and what each further example adds."""

    first: tuple[int, ...]
    further: tuple[int, ...]

    def peak(self, num_examples: int) -> int:
        levels = zip(self.first, self.further, strict=True)
        return _MARGIN * max((first + further * (num_examples - 1) for first, further in levels), default=0)


class _Known(NamedTuple):
    """Memory that one weight vector takes, remembered by the kind of evaluation and of inputs."""

    costs: dict[Any, _Bytes]
    evaluation: tuple[Any, ...]

    def of(self, outputs: Evaluation, call: Call, num_examples: int) -> _Bytes | None:
        """The remembered result of `_measured`, which is called the first time."""
        args, kwargs = call
        values = [
            (value.shape[1:], value.dtype, value.requires_grad) if isinstance(value, Tensor) else value
            for value in (*args, *kwargs.values())
        ]
        kind = (*self.evaluation, min(num_examples, _PROBE), tuple(kwargs), *values)
        if kind not in self.costs:
            found = _measured(outputs, call, num_examples)
            if found is None:
                return None
            if len(self.costs) == _MOST_KINDS:
                del self.costs[next(iter(self.costs))]
            self.costs[kind] = found
        return self.costs[kind]


_COSTS: WeakKeyDictionary[Layout, dict[Any, _Bytes]] = WeakKeyDictionary()


class _Watch(TorchDispatchMode):
    """Records the bytes alive after every operation, counting storages that were allocated inside this context."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.levels: list[int] = []
        self._alive: dict[int, weakref.ref[Any]] = {}
        self._bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {id(leaf.untyped_storage()) for leaf in _tensors((args, kwargs))}
        made = func(*args, **(kwargs or {}))
        for leaf in _tensors(made):
            storage = leaf.untyped_storage()
            if id(storage) not in given and id(storage) not in self._alive:
                self._count(storage)
        self.levels.append(self._bytes)
        return made

    def _count(self, storage: Any) -> None:
        key, size = id(storage), storage.nbytes()

        def freed(_: weakref.ref[Any]) -> None:
            del self._alive[key]
            self._bytes -= size

        self._alive[key] = weakref.ref(storage, freed)
        self._bytes += size


def _chunk_sizes(
    outputs: Evaluation, call: Call, num_samples: int, num_examples: int | None, limit: int, known: _Known
) -> tuple[int, int | None]:
    """Weight vectors and examples to evaluate at once; None is all examples as they came."""
    cost, at_once = None if num_examples is None else known.of(outputs, call, num_examples), _at_once(limit, call)
    if num_examples is None or cost is None:
        whole = _levels(outputs, call)
        return _fitting(at_once, _Bytes(whole, (0,) * len(whole)).peak(1), num_samples), None
    if cost.peak(num_examples) <= limit:
        return _fitting(at_once, cost.peak(num_examples), num_samples), None
    examples = max(1, bisect.bisect_right(range(1, num_examples + 1), limit, key=cost.peak))
    return 1, examples if num_examples > 1 and _one_by_one(outputs, call, num_examples) else None


def _at_once(limit: int, call: Call) -> int:
    """Bytes for several weight vectors together."""
    return limit if any(leaf.device.type != "cpu" for leaf in _tensors(call)) else min(limit, _QUICK)


def _fitting(limit: int, each: int, at_most: int) -> int:
    return at_most if each * at_most <= limit else max(1, limit // each)


def _measured(outputs: Evaluation, call: Call, num_examples: int) -> _Bytes | None:
    """The bytes of one weight vector on some examples; None where the module refuses fewer than it was given."""
    several = min(num_examples, _PROBE)
    try:
        one = _take(call, slice(0, 1))
        outputs(slice(0, 1), one)  # a network's first pass may have operations that no other has
        first, last = _levels(outputs, one), _levels(outputs, _take(call, slice(0, several)))
    except Exception:  # whatever the module's forward may raise; an error of its own comes again with the whole batch
        return None
    if several == 1:
        return _Bytes(first, (0,) * len(first))
    if len(first) != len(last):  # other operations for other sizes: all in proportion, which is at least enough
        share = math.ceil(max(last) / several)
        return _Bytes((share,), (share,))
    slopes = tuple(max(0, math.ceil((b - a) / (several - 1))) for a, b in zip(first, last, strict=True))
    return _Bytes(first, slopes)


def _levels(outputs: Evaluation, call: Call) -> tuple[int, ...]:
    with _Watch() as watch:
        outputs(slice(0, 1), call)
    return tuple(watch.levels)


@torch.no_grad()
def _one_by_one(outputs: Evaluation, call: Call, num_examples: int) -> bool:
    """Whether examples give the same outputs together as one by one.

    Not so for attention across the batch, nor for inputs whose first axis is time.
    """
    count = min(num_examples, _PROBE)
    spread = torch.linspace(0, num_examples - 1, count, device="cpu").round().long().tolist()
    alone = [_take(call, slice(i, i + 1)) for i in spread]
    together = _gathered(alone)
    joint = _tensors(outputs(slice(0, 1), together))
    single = [_tensors(outputs(slice(0, 1), part)) for part in alone]
    for i, leaf in enumerate(joint):
        parts = [leaves[i] for leaves in single]
        if leaf.ndim < 2 or leaf.shape[1] != count or any(p.ndim < 2 or p.shape[1] != 1 for p in parts):
            return False
        apart = torch.cat(parts, 1)
        if apart.shape != leaf.shape or not _close(apart, leaf):
            return False
    return True


def _close(a: Tensor, b: Tensor) -> bool:
    if not b.is_floating_point():
        return torch.equal(a, b)
    tolerance = math.sqrt(torch.finfo(b.dtype).eps)
    scale = b.abs().nan_to_num(0.0, 0.0).max().item()
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def _checked(layout: Layout, call: Call) -> Call:
    dtypes = {parameter.dtype for parameter in layout.module.parameters()}
    devices = {parameter.device for parameter in layout.module.parameters()}
    for leaf in pytree.tree_leaves(call):
        if isinstance(leaf, np.ndarray):
            raise TypeError(
                f"inputs: expected tensors, got a numpy array of {leaf.dtype}; "
                f"convert with `torch.as_tensor(inputs, dtype={layout.dtype})`."
            )
        if not isinstance(leaf, Tensor):
            continue
        if leaf.device not in devices or (leaf.is_floating_point() and leaf.dtype not in dtypes):
            expected = f"{layout.dtype} on {layout.device}" if leaf.is_floating_point() else str(layout.device)
            raise ValueError(
                f"inputs: expected {expected} as the module, got {leaf.dtype} on {leaf.device}; convert with "
                f"`inputs.to({str(layout.device)!r}{f', {layout.dtype}' if leaf.is_floating_point() else ''})`."
            )
    return call


def _num_examples(call: Call) -> int | None:
    """The leading size that all tensors share, None where the inputs cannot be split along it."""
    values = [*call[0], *call[1].values()]
    if not all(isinstance(value, (Tensor, int, float, str, type(None))) for value in values):
        return None
    sizes = {value.shape[:1] for value in values if isinstance(value, Tensor)}
    if len(sizes) != 1:
        return None
    (size,) = sizes
    if size == (0,):
        raise ValueError("inputs: expected at least one example, got an empty first axis.")
    return size[0] if size else None


def _take(call: Call, examples: slice) -> Call:
    args, kwargs = call
    return (
        tuple(value[examples] if isinstance(value, Tensor) else value for value in args),
        {name: value[examples] if isinstance(value, Tensor) else value for name, value in kwargs.items()},
    )


def _gathered(calls: list[Call]) -> Call:
    """Calls joined along the examples: the inverse of several `_take`s."""
    together: Call = pytree.tree_map(lambda *v: torch.cat(v) if isinstance(v[0], Tensor) else v[0], *calls)
    return together


def _even_slices(total: int, at_most: int) -> list[slice]:
    """Consecutive slices of nearly equal length."""
    pieces = math.ceil(total / at_most)
    bounds = [total * i // pieces for i in range(pieces + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(bounds)]


def joined(parts: list[Any], axis: int) -> Any:
    """Outputs put together again along an axis."""
    return parts[0] if len(parts) == 1 else pytree.tree_map(lambda *leaves: torch.cat(leaves, axis), *parts)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
