"""Ranks: the processes that share a fit, and what they divide, add up and agree on, by torch.distributed.

A fit is the same fit on any number of ranks. All ranks keep the same parameters, optimiser state and random stream,
each computes its `Share` of a step's bound, and terms and gradients are added up before they are used.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from livi.family.objective import Bound, BoundTerms
from livi.family.share import Share
from livi.inference.options import PlanOptions
from livi.model.data import Data, Part
from livi.model.problem import Problem

if TYPE_CHECKING:  # torch may come without it
    from torch.distributed.distributed_c10d import Store

T = TypeVar("T")

SHARDED_FROM = 0.25  # of a GPU's memory: parameters, gradients and moments larger than this are sharded
PACKED_UP_TO = 2**20  # bytes of a tensor that is summed together with others, in one message
_apart: ContextVar[bool] = ContextVar("apart", default=False)


class Alone:
    """A fit in one process: nothing to divide, to add up, or to agree on."""

    rank, count = 0, 1

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes files and prints."""
        return self.rank == 0

    def placed(self, options: PlanOptions, net: nn.Module) -> PlanOptions:  # noqa: ARG002
        """The options of a plan, with this rank's own device."""
        return options

    def shards(self, bound: Bound, asked: bool | None) -> bool:  # noqa: ARG002
        """Whether each rank keeps a part of the optimiser's state."""
        if asked:
            raise ValueError("shard: expected several processes, got one; start the script by torchrun, or drop shard.")
        return False

    def part(self, data: Data, bound: Bound | None = None, *, fewest: int = 1) -> Any:  # noqa: ARG002
        """This rank's examples of every batch: an equal part, or with a bound those of its `Share`.

        Args:
            fewest: examples that are needed at once; see `Problem.fewest`.
        """
        return data

    def accumulate(self, bound: Bound, batch: Any, rng: torch.Generator, **how: Any) -> BoundTerms:
        """`bound.accumulate` by all ranks together; each gets the sums of terms and gradients."""
        inputs, targets = batch
        return bound.accumulate(inputs, targets, rng, **how)

    def on_batch(self, problem: Problem, theta: Tensor, batch: Any) -> tuple[Tensor, Tensor]:  # (S,), (S,)
        """This rank's part of `problem.on_batch`."""
        return problem.on_batch(theta, batch)

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Give every rank the sum of all ranks' gradients."""

    def sums(self, *values: Tensor) -> tuple[Tensor, ...]:
        """The sums of all ranks' values."""
        return values

    def total(self, numbers: list[float]) -> list[float]:
        """The sums of all ranks' numbers."""
        return numbers

    def equal(self, *modules: nn.Module) -> None:
        """Give every rank the first one's parameters and buffers."""

    def agreed(self, value: T) -> T:
        """The first rank's value."""
        return value

    def any_of(self, text: str) -> str:
        """The first non-empty text of any rank."""
        return text

    def wait(self) -> None:
        """Wait until the first rank calls this too."""

    def check_same(self, what: str, facts: dict[str, Any]) -> None:
        """Raise where these facts are not the same on every rank."""


class Group(Alone):
    """A fit in several processes, those of torch's default process group."""

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()

    def placed(self, options: PlanOptions, net: nn.Module) -> PlanOptions:
        """The options with a GPU for each rank, if a GPU was asked for or the network is on one, and no recordings."""
        if options.get("capture"):
            raise ValueError("capture: expected None or False where several processes fit together, got True.")
        asked = options.get("device")
        device = torch.device(asked) if asked is not None else next((p.device for p in net.parameters()), None)
        if device is not None and device.type == "cuda":
            asked = torch.device("cuda", _local_rank() % torch.cuda.device_count())
        return {**options, "device": asked, "capture": False}

    def shards(self, bound: Bound, asked: bool | None) -> bool:
        device = bound.family.layout.device
        if asked is not None or device.type != "cuda":
            return bool(asked)
        held = 4 * sum(parameter.nbytes for parameter in bound.parameters())  # with gradients and two moments
        return self.agreed(held > SHARDED_FROM * torch.cuda.get_device_properties(device).total_memory)

    def part(self, data: Data, bound: Bound | None = None, *, fewest: int = 1) -> Part:
        index, count = (self.rank, self.count) if bound is None else self._share(bound).examples
        return Part(data, index, count, fewest=fewest)

    def accumulate(self, bound: Bound, batch: Any, rng: torch.Generator, **how: Any) -> BoundTerms:
        inputs, targets, weight, _ = batch
        terms = bound.accumulate(inputs, targets, rng, share=self._share(bound), weight=weight, **how)
        parts = [terms.log_likelihood, terms.log_prior, terms.entropy]
        missed = [(~report.converged).sum().to(parts[0]) for report in terms.reports]
        values = torch.stack(parts + missed)
        _add([values, *_gradients(bound.parameters())])
        converged = [(count == 0).reshape(1) for count in values[len(parts) :]]
        reports = [replace(report, converged=all_did) for report, all_did in zip(terms.reports, converged, strict=True)]
        return BoundTerms(values[0], values[1], values[2], tuple(reports))

    def on_batch(self, problem: Problem, theta: Tensor, batch: Any) -> tuple[Tensor, Tensor]:
        inputs, targets, weight, _ = batch
        fit, penalty = problem.on_batch(theta, (inputs, targets))
        return weight * fit, penalty / self.count

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        _add(_gradients(parameters))

    def sums(self, *values: Tensor) -> tuple[Tensor, ...]:
        own = [value.detach().clone() for value in values]
        _add(own)
        return tuple(own)

    def total(self, numbers: list[float]) -> list[float]:
        return [sum(values) for values in zip(*self._from_all(numbers), strict=True)]

    @torch.no_grad()
    def equal(self, *modules: nn.Module) -> None:
        found = {id(tensor): tensor for one in modules for tensor in (*one.parameters(), *one.buffers())}
        for tensor in found.values():
            value = tensor.detach().contiguous()
            dist.broadcast(value, 0)
            tensor.copy_(value)

    def agreed(self, value: T) -> T:
        values = [value]
        dist.broadcast_object_list(values, 0)
        return values[0]

    def any_of(self, text: str) -> str:
        return next(filter(None, self._from_all(text)), "")

    def wait(self) -> None:
        self.agreed(None)

    def check_same(self, what: str, facts: dict[str, Any]) -> None:
        for rank, other in enumerate(self._from_all(facts)):
            differing = [name for name in facts if facts[name] != other.get(name)]
            if differing:
                name = differing[0]
                raise ValueError(
                    f"{what}: expected the same on every rank, but {name} is {facts[name]} on rank {self.rank} and "
                    f"{other.get(name)} on rank {rank}; let every process read the same data in the same order, "
                    "seed numpy and random alike where they augment it, and pass the same arguments; or fit in this "
                    "process alone with distributed=False."
                )

    def store(self, name: str) -> Store:
        """A key-value store that all ranks share, under a common name."""
        from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

        return PrefixStore(name, _get_default_store())

    def _share(self, bound: Bound) -> Share:
        samples = bound.num_samples // bound.family.num_components
        return Share.of(self.rank, self.count, num_samples=samples)

    def _from_all(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values


def joined(distributed: bool | None = None) -> Alone:
    """The ranks of this fit: all processes that torchrun started or that share torch's default process group.

    Args:
        distributed: False for this process alone, True for an error where there are no others.

    Raises:
        ValueError: several processes are asked for and there is one.
    """
    if distributed is not False and not _apart.get():
        _join()
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            return Group()
    if distributed:
        raise ValueError(
            "distributed: expected several processes, got one; start the script by torchrun --nproc-per-node 2 ..."
        )
    return Alone()


@contextmanager
def apart() -> Iterator[None]:
    """Fits inside this context are fits of this process alone, even where there are other ranks."""
    before = _apart.set(True)
    try:
        yield
    finally:
        _apart.reset(before)


def _join() -> None:
    """Become a rank where torchrun started this process; Gloo serves tensors on the CPU, NCCL those on a GPU.

    NCCL wants a GPU for every rank. Where a machine has fewer of them than ranks, which then share one or fit on the
    CPU, Gloo serves all.
    """
    if not dist.is_available() or dist.is_initialized() or not dist.is_torchelastic_launched():
        return
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    backend = None  # by the tensors' device
    if torch.cuda.is_available():
        gpus = torch.cuda.device_count()
        torch.cuda.set_device(_local_rank() % gpus)
        backend = "gloo" if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > gpus else None
    store, rank, count = next(iter(rendezvous("env://")))
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
        # torchrun's store outlives its workers: those that it starts again would find the addresses of the dead there
        # (pytorch/pytorch#135712). Only launchers of one machine count its restarts alike.
        store = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=count)
    atexit.register(_leave)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def _gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """The gradients of all learned parameters; zeros where one was not used here, as other ranks may have used it."""
    found = []
    for parameter in parameters:
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.contiguous()
            found.append(parameter.grad)
    return found


def _add(tensors: Sequence[Tensor]) -> None:
    """Sum over all ranks, in place: small tensors packed into one message, all messages sent before any is awaited."""
    small = [tensor for tensor in tensors if tensor.nbytes <= PACKED_UP_TO]
    packed = [torch.cat([tensor.reshape(-1) for tensor in small])] if small else []
    large = [tensor for tensor in tensors if tensor.nbytes > PACKED_UP_TO]
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in (*packed, *large)]:
        work.wait()
    for sums in packed:
        for tensor, total in zip(small, sums.split([tensor.numel() for tensor in small]), strict=True):
            tensor.copy_(total.view_as(tensor))
