"""What a step costs, found by taking a few of them before a fit: seconds, and the most memory that is held at once."""

from __future__ import annotations

import time
import weakref
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from livi.family.entropy import Capturable
from livi.family.implicit import ImplicitPosterior
from livi.family.last_layer import Marginal
from livi.family.moments import bytes_of_moments
from livi.family.objective import Bound, BoundTerms, EntropyPart
from livi.inference.capture import replay_seconds
from livi.inference.optimiser import make_optimiser, set_rate
from livi.inference.parameters import ASIDE
from livi.inference.recipe import Recipe
from livi.model.data import Batch
from livi.network.evaluation import out_of_memory, synchronise

TIMES = 3  # that a step is taken, of which the quickest counts


@dataclass(frozen=True)
class Cost:
    """Of one step of a fit: seconds on average, the most bytes held beside network and data, and how it was timed."""

    seconds: float
    memory: int
    replayed: bool  # as a CUDA graph


def measure_step(bound: Bound, batch: Batch, recipe: Recipe, *, capture: bool | None = None) -> Cost:
    """Of steps with and without an entropy, as often as the recipe takes either, and Adam's. Gradients are left empty.

    On a GPU the memory is torch's own peak, whose statistics this resets; elsewhere it is what autograd says it keeps
    at once. Added is what a fit holds besides: its state, copies of that, and the batches of its recordings.

    Raises:
        MemoryError: a step needs more memory than there is.
    """
    share = 1.0 / recipe.entropy_every
    shares: dict[EntropyPart, float] = {"gradient": share, "none": 1.0 - share}
    trial, costs = _Trial(bound, batch), []
    try:
        for part in [part for part, weight in shares.items() if weight > 0.0]:
            eager = trial.take(part)
            replay = trial.replay(part) if capture is not False and batch[1].is_cuda else None
            quickest = eager.seconds if replay is None else min(eager.seconds, replay)
            costs.append((shares[part] * quickest, eager.memory, replay is not None))
        moving = _adam_seconds(bound, recipe)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        raise MemoryError(_too_large(bound, batch)) from error
    finally:
        bound.zero_grad(set_to_none=True)
    seconds, memory, replayed = zip(*costs, strict=True)
    recordings = sum(replayed) + any(replayed)  # and one of steps that compute the entropy's value
    besides = _state_bytes(bound, recorded=recordings > 0) + (1 + recordings) * _batch_bytes(batch)
    return Cost(sum(seconds) + moving, max(max(memory) + besides, _start_bytes(bound)), all(replayed))


class _Trial:
    """Steps on one batch that change no parameter."""

    def __init__(self, bound: Bound, batch: Batch) -> None:
        self.bound, self.batch, self.device = bound, batch, bound.posterior.layout.device
        self.rng = torch.Generator(device=self.device).manual_seed(0)
        self.products = 0

    def step(self, batch: Batch, part: EntropyPart) -> BoundTerms:
        self.bound.zero_grad(set_to_none=True)
        return self.bound.accumulate(*batch, self.rng, entropy=part)

    def take(self, part: EntropyPart) -> Cost:
        quickest, memory = float("inf"), _Peak(self.device)
        for _ in range(TIMES):
            synchronise(self.batch[1])
            started = time.perf_counter()
            with memory.watched():
                terms = self.step(self.batch, part)
            synchronise(terms.log_likelihood)
            quickest = min(quickest, time.perf_counter() - started)
        self.products = max((report.products for report in terms.reports), default=0)
        gradients = sum(p.grad.nbytes for p in self.bound.parameters() if p.grad is not None)
        return Cost(quickest, memory.bytes(gradients), replayed=False)

    def replay(self, part: EntropyPart) -> float | None:
        """Seconds of a step as a CUDA graph; None where it cannot be one."""
        entropy = self.bound.entropy
        if not self.bound.posterior.capturable or not isinstance(entropy, Capturable):
            return None
        try:
            self.bound.entropy = entropy.captured(self.products)
            return replay_seconds(lambda batch: self.step(batch, part).log_likelihood, self.batch, self.rng)
        finally:
            self.bound.entropy = entropy


class _Kept:
    """A tensor as a graph keeps it: gone with the graph, where the tensor may be a parameter, which stays."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class _Peak:
    """The most memory held at once: what a GPU counts itself, or else what autograd keeps, with the gradients."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.kept, self.now, self.most = device, Counter[int](), 0, 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self.before = torch.cuda.memory_allocated(device)

    def watched(self) -> torch.autograd.graph.saved_tensors_hooks:
        return torch.autograd.graph.saved_tensors_hooks(self._keep, lambda kept: kept.tensor)

    def bytes(self, gradients: int) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) - self.before
        return self.most + gradients

    def _keep(self, tensor: Tensor) -> _Kept:
        try:
            storage = tensor.untyped_storage()
            place, size = storage.data_ptr(), storage.nbytes()  # several tensors may be views of one
        except RuntimeError:  # inside of torch.func, whose tensors have no storage of their own
            place, size = id(tensor), tensor.nbytes
        self.now += 0 if self.kept[place] else size
        self.kept[place] += 1
        self.most = max(self.most, self.now)
        kept = _Kept(tensor.detach())  # a result would hold the graph that holds it
        weakref.finalize(kept, self._free, place, size)
        return kept

    def _free(self, place: int, size: int) -> None:
        self.kept[place] -= 1
        self.now -= 0 if self.kept[place] else size


def _adam_seconds(bound: Bound, recipe: Recipe) -> float:
    """Of the optimiser's own part of a step, taken at the rate 0 and with gradients of 0: parameters stay as they are.

    0 where its moments do not fit into memory as a whole; a fit may keep them in parts.
    """
    for parameter in bound.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser, quickest = make_optimiser(bound, recipe), float("inf")
    for group in optimiser.param_groups:
        set_rate(group, 0.0)
    device = bound.posterior.layout.device
    clocked = torch.empty(0, device=device)
    try:
        for _ in range(TIMES):
            synchronise(clocked)
            started = time.perf_counter()
            optimiser.step()
            synchronise(clocked)
            quickest = min(quickest, time.perf_counter() - started)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        return 0.0
    return quickest


def _state_bytes(bound: Bound, *, recorded: bool) -> int:
    """Parameters and Adam's moments, and the network's copy; copies of that state where they are not put aside.

    One copy is kept to go back to, and recording a step takes two more, which it is compared by.
    """
    state = 3 * sum(parameter.nbytes for parameter in bound.parameters())
    aside = bound.posterior.layout.device.type == "cuda" and state > ASIDE
    network = sum(parameter.nbytes for parameter in bound.posterior.layout.module.parameters())
    copies = 0 if aside else 3 if recorded else 1
    return network + (1 + copies) * state


def _start_bytes(bound: Bound) -> int:
    """What is held while the posterior is put around its start: its parameters, and draws to measure them by."""
    posterior = bound.posterior
    parameters = sum(parameter.nbytes for parameter in bound.parameters())
    if not isinstance(posterior, ImplicitPosterior):
        return parameters
    return parameters + bytes_of_moments(posterior.num_params, posterior.layout.dtype.itemsize)


def _batch_bytes(batch: Batch) -> int:
    return sum(leaf.nbytes for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor))


def _too_large(bound: Bound, batch: Batch) -> str:
    device = bound.posterior.layout.device
    free = f", with {torch.cuda.mem_get_info(device)[0] / 1e9:.1f} GB free on {device}" if device.type == "cuda" else ""
    halved = "" if isinstance(bound.likelihood, Marginal) else ", or pass autocast=torch.bfloat16"
    return (
        f"expected one step to fit into memory, got {bound.posterior.num_params:,} stochastic weights, "
        f"{bound.num_samples} samples and a batch of {len(batch[1])}{free}; lower batch_size or the Recipe's "
        f"num_samples{halved}."
    )
