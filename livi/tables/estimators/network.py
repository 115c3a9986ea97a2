"""The networks of the estimators, and the threads they run on."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from livi import checks
from livi.network import Layout

Block = TypeVar("Block")
Found = TypeVar("Found")

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}


class WithNoise(nn.Module):
    """A network whose second output, the raw scale of a varying noise, is a linear function of the inputs."""

    def __init__(self, mean: nn.Sequential, inputs: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.mean = mean
        self.noise = _Flat(inputs, 1, dtype=dtype)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([self.mean(inputs), self.noise(inputs)], -1)


class _Spread(nn.Linear):
    """A linear layer that starts with weights of variance 1 / fan-in and biases 0, from which chains mix well."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.in_features**-0.5)
        nn.init.zeros_(self.bias)


class _Flat(nn.Linear):
    """A linear layer that starts at zero, so that the noise is constant at first."""

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


def build_network(
    inputs: int,
    hidden: Sequence[int],
    outputs: int,
    activation: str,
    *,
    varying: bool = False,
    spread: bool = False,
    seed: int = 0,
    dtype: torch.dtype,
) -> nn.Sequential | WithNoise:
    """Linear layers of these widths with activations between them; without hidden layers, a linear model.

    Args:
        varying: add an output for the raw scale of a noise that varies with the inputs.
        spread: start with larger weights than torch's, and biases 0.

    >>> build_network(3, (5,), 1, "tanh", dtype=torch.float32)
    Sequential(
      (0): Linear(in_features=3, out_features=5, bias=True)
      (1): Tanh()
      (2): Linear(in_features=5, out_features=1, bias=True)
    )
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        layers: list[nn.Module] = []
        for wide, next_wide in pairwise((inputs, *hidden, outputs)):
            layers += [(_Spread if spread else nn.Linear)(wide, next_wide, dtype=dtype), ACTIVATIONS[activation]()]
    net = nn.Sequential(*layers[:-1])
    return WithNoise(net, inputs, dtype) if varying else net


def network_facts(net: nn.Module) -> dict[str, Any]:
    """The arguments of `build_network` for another network like this one, except the seed.

    >>> network_facts(build_network(3, (5,), 1, "tanh", dtype=torch.float32))
    {'inputs': 3, 'hidden': (5,), ..., 'activation': 'tanh', 'varying': False, 'spread': False, 'dtype': torch.float32}
    """
    varying = isinstance(net, WithNoise)
    net = net.mean if isinstance(net, WithNoise) else net
    linear = [layer for layer in net.children() if isinstance(layer, nn.Linear)]
    others = {type(layer) for layer in net.children()} - {nn.Linear}
    return {
        "inputs": linear[0].in_features,
        "hidden": tuple(layer.in_features for layer in linear[1:]),
        "outputs": linear[-1].out_features,
        "activation": next((name for name, kind in ACTIVATIONS.items() if kind in others), "relu"),
        "varying": varying,
        "spread": isinstance(linear[0], _Spread),
        "dtype": linear[0].weight.dtype,
    }


def widths(hidden: object) -> tuple[int, ...]:
    """The widths of the hidden layers as a tuple of ints; a single integer is one layer.

    >>> widths(50), widths([20, 10]), widths(())
    ((50,), (20, 10), ())
    """
    try:
        listed = [hidden] if hasattr(hidden, "__index__") else list(hidden)  # type: ignore[call-overload]
        return tuple(checks.positive_int("hidden", width.__index__()) for width in listed)
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"hidden: expected positive integers such as (50, 50), got {hidden!r}.") from error


@contextmanager
def threads(n_jobs: int | None) -> Iterator[None]:
    """Set torch's number of threads inside the context; -1 is the number of processors, None changes nothing."""
    if n_jobs is None:
        yield
        return
    wanted = n_jobs if n_jobs > 0 else (os.cpu_count() or 1) + 1 + n_jobs
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, wanted))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_all_threads(act: Callable[[Layout, Block], Found], layout: Layout, blocks: Sequence[Block]) -> list[Found]:
    """Call `act` for each block of work, on as many threads as torch may use.

    The networks are too small to keep several threads busy with one matrix product. So every thread works on a block of
    its own, with one thread of torch and a copy of the network, since threads would have to take turns with one.
    """
    workers = min(torch.get_num_threads(), len(blocks))
    if workers < 2 or layout.device.type != "cpu":
        with layout.turn:
            return [act(layout, block) for block in blocks]
    free: SimpleQueue[Layout] = SimpleQueue()
    with layout.turn:
        for _ in range(workers):
            free.put(Layout(copy.deepcopy(layout.module)))

    def with_free_copy(block: Block) -> Found:
        copied = free.get()
        try:
            return act(copied, block)
        finally:
            free.put(copied)

    with threads(1), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(with_free_copy, blocks))
