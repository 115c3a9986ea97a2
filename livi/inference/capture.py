"""Steps as CUDA graphs: recorded once and replayed, without the CPU's cost of launching every kernel again.

A small network leaves a GPU idle between kernels; replaying a recorded step is then several times quicker than taking
it. Recordings are verified: a step is tried first for operations that cannot be recorded; a recording is used only if
it gives the same result as the step itself in less time; and a recording that fails half-way invalidates all others.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from livi.inference.parameters import ASIDE
from livi.inference.recordable import CaptureError, try_step
from livi.model.data import Batch

T = TypeVar("T")

_Kind = tuple[Hashable, tuple[Hashable, ...]]  # the shapes of a batch, and how to step

WARM_UP = 3  # steps before a recording, in which optimisers and libraries allocate what they keep
COMPARED = 3  # steps timed and compared, eager and replayed
DIFFERENCE = 5e-2  # between the two, as a share of the distance that a tensor moved, that is always accepted
MOST_DIFFERENCE = 0.3  # and above this, never
GAIN = 0.9  # a recording must take at most this share of a step's time, to be worth its memory
MOST_SHAPES = 4  # recordings of batches of different shapes
RARE = 20  # times that a second shape must come before it is worth a recording: an epoch's last batch is often smaller


class _BrokenOffError(CaptureError):
    """A recording that failed half-way, which leaves the generators of other recordings unusable."""


class Stepper(Generic[T]):
    """Calls `step`, or replays a recording of it on a GPU where that is quicker and gives the same.

    Args:
        step: takes a batch and how to step, changes tensors in place, and returns tensors without a graph. To be
            recorded it must not read a value back; a step that does is never recorded.
        state: the tensors that a step changes, the same ones at every call.
        rng: where the step draws from.
        capture: None records where that pays, False never records, True raises where it cannot.
        prepare: called before every recording with how to step, to bring the step into a form that can be recorded.
        release: called whenever recordings are forgotten, to bring it back.

    Attributes:
        captured: whether the last step was replayed.
    """

    def __init__(
        self,
        step: Callable[..., T],
        state: Callable[[], Sequence[Tensor]],
        rng: torch.Generator | None = None,
        *,
        capture: bool | None = None,
        prepare: Callable[..., None] = lambda *_: None,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self.step, self.state, self.rng, self.capture = step, state, rng, capture
        self.prepare, self.release = prepare, release
        self.refused: dict[Hashable, str] = {}  # ways to step that are not recorded, and why
        self.reason = ""  # the last of these
        self.captured = False
        self.taken = Counter[_Kind]()
        self.recordings: dict[_Kind, _Recording[T]] = {}
        self.pool: Any = None
        self.reset()

    def reset(self, outdated: Callable[..., bool] = lambda *_: True) -> None:
        """Drop recordings, after tensors that a step changes were replaced or the step itself was changed.

        Args:
            outdated: called with how to step, says whether its recordings are dropped; by default all are.
        """
        self.taken = Counter({kind: times for kind, times in self.taken.items() if not outdated(*kind[1])})
        self.recordings = {kind: kept for kind, kept in self.recordings.items() if not outdated(*kind[1])}
        if not self.recordings:
            self.pool = None
        self.release()

    def refuse(self, how: tuple[Hashable, ...], reason: str) -> None:
        """Never record steps taken this way; steps taken otherwise may still be recorded."""
        self.refused[how] = self.reason = reason
        if not self.recordings:
            self.release()

    def __call__(self, batch: Batch, *how: Hashable) -> T:
        """One step. There is a recording for every way to step, and every shape of batch."""
        self.captured = False
        shapes = _shapes(batch)
        if (shapes, how) in self.recordings:
            self.captured = True
            return self.recordings[shapes, how].replay(batch)
        self.taken[shapes, how] += 1
        if self._ready(shapes, how):
            try:
                self.recordings[shapes, how] = self._record(batch, how)
            except (CaptureError, RuntimeError) as error:  # torch names a forbidden operation by a RuntimeError
                if isinstance(error, _BrokenOffError):
                    self.reset()
                if self.capture:
                    raise CaptureError(f"capture: expected a step that can be recorded, got {error}") from error
                self.refuse(how, (str(error).splitlines() or [type(error).__name__])[0])
            return self(batch, *how)
        return self.step(batch, *how)

    def _ready(self, shapes: Hashable, how: tuple[Hashable, ...]) -> bool:
        others = sum(way == how for _, way in self.recordings)
        warm = self.taken.total() > WARM_UP and self.taken[shapes, how] > (RARE if others else 1)
        wanted = self.capture is not False and how not in self.refused and shapes is not None and warm
        return wanted and others < MOST_SHAPES

    def _record(self, batch: Batch, how: tuple[Hashable, ...]) -> _Recording[T]:
        """A verified recording; all state is put back as it was.

        Some kernels sum in no fixed order, so that a step taken twice gives two results. A recording may differ from
        the step by three times as much as the step differs from itself.
        """
        self.prepare(*how)
        gc.collect()  # graphs of earlier steps that only a cycle keeps alive would tie the recording to their stream
        before = _clones(self.state())
        draws = None if self.rng is None else self.rng.get_state()

        @torch.no_grad()
        def restore() -> None:
            for tensor, value in zip(self.state(), before, strict=True):
                tensor.copy_(value)
            if self.rng is not None and draws is not None:
                self.rng.set_state(draws)

        def step(own: Batch) -> T:
            return self.step(own, *how)

        with torch.cuda.device(_device(batch)):
            try:
                with _on_recording_stream():
                    try_step(lambda: step(batch))
                    restore()
                    eager = _seconds(lambda: step(batch))
                    expected = _clones(self.state())
                    restore()
                    _seconds(lambda: step(batch))
                    itself = _difference(before, self.state(), expected)
                    restore()
                self.pool = self.pool or torch.cuda.graph_pool_handle()
                recording = _Recording(step, batch, self.rng, self.pool)
                replayed = _seconds(lambda: recording.replay(batch))
                difference = _difference(before, self.state(), expected)
            finally:
                restore()
        if not difference <= max(DIFFERENCE, min(MOST_DIFFERENCE, 3.0 * itself)):
            raise CaptureError(
                f"a recording that differs from the step by {difference:.3g} of the distance moved, and the step from "
                f"itself by {itself:.3g}"
            )
        if self.capture is None and replayed > GAIN * eager:
            raise CaptureError(f"a recording that is not quicker: {1e3 * replayed:.2f} ms against {1e3 * eager:.2f} ms")
        return recording


class _Recording(Generic[T]):
    """A step on batches of one shape, as a CUDA graph with its own copy of the batch.

    Recordings share the memory of `pool`: what a replay returns is overwritten by the next one, of whichever recording.
    """

    def __init__(self, step: Callable[[Batch], T], batch: Batch, rng: torch.Generator | None, pool: Any) -> None:
        self.batch = pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch)
        self.graph = torch.cuda.CUDAGraph()
        if rng is not None:
            self.graph.register_generator_state(rng)
        # A recording that fails leaves the stream as the current one, and the generators that it uses unusable; torch's
        # own is always among them. Threads that pin memory for a DataLoader may do so meanwhile.
        used = [torch.cuda.default_generators[torch.cuda.current_device()], *([] if rng is None else [rng])]
        kept, stream = [generator.clone_state() for generator in used], torch.cuda.current_stream()
        try:
            with torch.cuda.graph(self.graph, pool=pool, stream=recording_stream(), capture_error_mode="thread_local"):
                self.outputs = step(self.batch)
        except BaseException as error:
            torch.cuda.set_stream(stream)
            for generator, state in zip(used, kept, strict=True):
                generator.graphsafe_set_state(state)
            if isinstance(error, RuntimeError):
                raise _BrokenOffError(str(error)) from error
            raise

    def replay(self, batch: Batch) -> T:
        for mine, given in zip(pytree.tree_leaves(self.batch), pytree.tree_leaves(batch), strict=True):
            if isinstance(mine, Tensor) and mine is not given:
                mine.copy_(given)
        self.graph.replay()
        return self.outputs


def replay_seconds(
    step: Callable[[Batch], T],
    batch: Batch,
    rng: torch.Generator,
    *,
    clock: Callable[[Callable[[], Any]], float] | None = None,
) -> float | None:
    """Seconds of a replayed step; None where it cannot be recorded, for instance because it reads a value back.

    Args:
        clock: measures the seconds of a call; by default the quickest of a few.
    """
    gc.collect()
    with torch.cuda.device(_device(batch)):
        try:
            with _on_recording_stream():
                try_step(lambda: step(batch))
            recording = _Recording(step, batch, rng, torch.cuda.graph_pool_handle())
        except RuntimeError:
            return None
        return (clock or _seconds)(lambda: recording.replay(batch))


@contextmanager
def _on_recording_stream() -> Iterator[None]:
    """Switch to the stream for recordings. It waits for the current stream first, and the current one then for it."""
    recording, current = recording_stream(), torch.cuda.current_stream()
    recording.wait_stream(current)
    try:
        with torch.cuda.stream(recording):
            yield
    finally:
        current.wait_stream(recording)


def recording_stream() -> torch.cuda.Stream:
    """A stream for recordings, into which the default stream's unfinished work cannot leak. One for each device: on
    every stream torch's linear algebra keeps tens of megabytes to work in."""
    return _stream(torch.cuda.current_device())


@cache
def _stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _device(batch: Batch) -> torch.device:
    """The GPU that the batch is on."""
    return next(leaf.device for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.is_cuda)


def _shapes(batch: Batch) -> Hashable:
    """What a recording depends on: shapes, dtypes, and all that is not a tensor. None where nothing can be recorded."""
    leaves, structure = pytree.tree_flatten(batch)
    if not all(leaf.is_cuda for leaf in leaves if isinstance(leaf, Tensor)):
        return None
    key = (str(structure), *((leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else repr(leaf) for leaf in leaves))
    return key if any(isinstance(leaf, Tensor) for leaf in leaves) else None


def _seconds(step: Callable[[], Any]) -> float:
    """Seconds of the quickest of a few steps; others may be slowed down by other work on the GPU."""
    taken = []
    torch.cuda.synchronize()
    for _ in range(COMPARED):
        started = time.perf_counter()
        step()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
    return min(taken)


def _clones(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies; on the CPU where they are large, since the GPU's memory is needed by the step."""
    aside = sum(tensor.numel() * tensor.element_size() for tensor in tensors) > ASIDE
    return [tensor.detach().cpu() if aside and tensor.is_cuda else tensor.detach().clone() for tensor in tensors]


def _difference(before: Sequence[Tensor], after: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest relative error of any tensor: its distance from what was expected over the distance it moved."""
    shares = [torch.zeros(())]
    for start, end, goal in zip(before, after, expected, strict=True):
        end, start = end.detach().to(goal.device), start.to(goal.device)
        missed, moved = (torch.linalg.vector_norm((goal - other).double()) for other in (end, start))
        rounding = 1e-6 * torch.linalg.vector_norm(goal.double())
        shares.append((missed / (moved + rounding).clamp_min(1e-30)).cpu())
    return float(torch.stack([share.double() for share in shares]).max())
