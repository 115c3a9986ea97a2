"""What a step of a fit costs in seconds and peak memory, measured by taking a few steps before the fit."""

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
from livi.family.moments import bytes_of_moments
from livi.family.objective import Bound, BoundTerms, EntropyPart
from livi.inference.capture import replay_seconds
from livi.inference.optimiser import make_optimiser, set_rate
from livi.inference.parameters import ASIDE
from livi.inference.recipe import Recipe
from livi.model.data import Batch
from livi.network.evaluation import out_of_memory, synchronise

REPEATS = 3  # of a step, of which the quickest counts


@dataclass(frozen=True)
class Cost:
    """The cost of one step of a fit."""

    seconds: float  # on average
    memory: int  # peak bytes, beside network and data
    replayed: bool  # whether it was timed as a CUDA graph


def measure_step(bound: Bound, batch: Batch, recipe: Recipe, *, capture: bool | None = None) -> Cost:
    """The mean cost of steps with and without an entropy, in the recipe's proportions. Gradients are left empty.

    On a GPU the memory is torch's own peak, whose statistics this resets; elsewhere it is the most that autograd keeps
    at once. What a fit holds besides is added: its state, copies of that, and the batches of its recordings.

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
        self.bound, self.batch, self.device = bound, batch, bound.family.layout.device
        self.rng = torch.Generator(device=self.device).manual_seed(0)
        self.products = 0

    def step(self, batch: Batch, part: EntropyPart) -> BoundTerms:
        self.bound.zero_grad(set_to_none=True)
        return self.bound.accumulate(*batch, self.rng, entropy=part)

    def take(self, part: EntropyPart) -> Cost:
        quickest, memory = float("inf"), _Peak(self.device)
        for _ in range(REPEATS):
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
        if not self.bound.family.capturable or not isinstance(entropy, Capturable):
            return None
        try:
            self.bound.entropy = entropy.captured(self.products)
            return replay_seconds(lambda batch: self.step(batch, part).log_likelihood, self.batch, self.rng)
        finally:
            self.bound.entropy = entropy


class _Saved:
    """A tensor saved for the backward pass. It is freed with the graph, even where the tensor itself lives on."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class _Peak:
    """The most memory held at once: a GPU's own count, or else what autograd saves, and the gradients."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.users, self.now, self.most = device, Counter[int](), 0, 0  # users: by address of a storage
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self.before = torch.cuda.memory_allocated(device)

    def watched(self) -> torch.autograd.graph.saved_tensors_hooks:
        return torch.autograd.graph.saved_tensors_hooks(self._save, lambda saved: saved.tensor)

    def bytes(self, gradients: int) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) - self.before
        return self.most + gradients

    def _save(self, tensor: Tensor) -> _Saved:
        try:
            storage = tensor.untyped_storage()
            address, size = storage.data_ptr(), storage.nbytes()  # several tensors may be views of one
        except RuntimeError:  # inside of torch.func, whose tensors have no storage of their own
            address, size = id(tensor), tensor.nbytes
        self.now += 0 if self.users[address] else size
        self.users[address] += 1
        self.most = max(self.most, self.now)
        saved = _Saved(tensor.detach())  # undetached, a result would hold the graph that holds it
        weakref.finalize(saved, self._free, address, size)
        return saved

    def _free(self, address: int, size: int) -> None:
        self.users[address] -= 1
        self.now -= 0 if self.users[address] else size


def _adam_seconds(bound: Bound, recipe: Recipe) -> float:
    """Seconds of the optimiser's update, at the rate 0 and with zero gradients, so that parameters stay as they are.

    0 where its moments do not fit into memory as a whole; a fit may divide them among ranks.
    """
    for parameter in bound.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser, quickest = make_optimiser(bound, recipe), float("inf")
    for group in optimiser.param_groups:
        set_rate(group, 0.0)
    device = bound.family.layout.device
    on_device = torch.empty(0, device=device)
    try:
        for _ in range(REPEATS):
            synchronise(on_device)
            started = time.perf_counter()
            optimiser.step()
            synchronise(on_device)
            quickest = min(quickest, time.perf_counter() - started)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        return 0.0
    return quickest


def _state_bytes(bound: Bound, *, recorded: bool) -> int:
    """Bytes of the network's copy, of parameters and Adam's moments, and of copies of those that stay on the device.

    One copy is kept to roll back to, and recording a step takes two more, to compare it with a step that is not.
    """
    state = 3 * sum(parameter.nbytes for parameter in bound.parameters())
    aside = bound.family.layout.device.type == "cuda" and state > ASIDE
    network = sum(parameter.nbytes for parameter in bound.family.layout.module.parameters())
    copies = 0 if aside else 3 if recorded else 1
    return network + (1 + copies) * state


def _start_bytes(bound: Bound) -> int:
    """Bytes held while the posterior is put around its start: its parameters, and draws to measure its spread."""
    posterior = bound.family
    parameters = sum(parameter.nbytes for parameter in bound.parameters())
    if not isinstance(posterior, ImplicitPosterior):
        return parameters
    return parameters + bytes_of_moments(posterior.num_params, posterior.layout.dtype.itemsize)


def _batch_bytes(batch: Batch) -> int:
    return sum(leaf.nbytes for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor))


def _too_large(bound: Bound, batch: Batch) -> str:
    device = bound.family.layout.device
    free = f", with {torch.cuda.mem_get_info(device)[0] / 1e9:.1f} GB free on {device}" if device.type == "cuda" else ""
    halved = "" if bound.likelihood.needs_all_examples else ", or pass autocast=torch.bfloat16"
    return (
        f"expected one step to fit into memory, got {bound.family.num_params:,} stochastic weights, "
        f"{bound.num_samples} samples and a batch of {len(batch[1])}{free}; lower batch_size or the Recipe's "
        f"num_samples{halved}."
    )
