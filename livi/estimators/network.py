"""The networks behind the estimators, and the threads they run on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from livi import checks

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}


def build_network(
    inputs: int, hidden: Sequence[int], outputs: int, activation: str, *, seed: int = 0, dtype: torch.dtype
) -> nn.Sequential:
    """Linear layers of these widths with activations between them; without hidden layers, a linear model.

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
            layers += [nn.Linear(wide, next_wide, dtype=dtype), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


def network_facts(net: nn.Module) -> dict[str, Any]:
    """The arguments of `build_network` that make another like this one, without a seed.

    >>> network_facts(build_network(3, (5,), 1, "tanh", dtype=torch.float32))
    {'inputs': 3, 'hidden': (5,), 'outputs': 1, 'activation': 'tanh', 'dtype': torch.float32}
    """
    linear = [layer for layer in net.children() if isinstance(layer, nn.Linear)]
    others = {type(layer) for layer in net.children()} - {nn.Linear}
    return {
        "inputs": linear[0].in_features,
        "hidden": tuple(layer.in_features for layer in linear[1:]),
        "outputs": linear[-1].out_features,
        "activation": next((name for name, kind in ACTIVATIONS.items() if kind in others), "relu"),
        "dtype": linear[0].weight.dtype,
    }


def widths(hidden: object) -> tuple[int, ...]:
    """The hidden layers' widths as plain integers; one integer is one layer.

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
    """Let torch run on so many threads inside; -1 is as many as there are processors, None leaves things alone."""
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
