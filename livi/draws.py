"""Random numbers: a seed gives the same ones on every device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def normal(
    shape: tuple[int, ...],
    rng: torch.Generator | None,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Standard normal numbers, drawn on the device of `rng` and then moved: a seed gives the same on every device."""
    return torch.randn(shape, generator=rng, dtype=dtype, device=_source(rng, device)).to(device)


def rademacher(
    shape: tuple[int, ...],
    rng: torch.Generator | None,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Independent fair signs, drawn like `normal`."""
    signs = torch.randint(0, 2, shape, generator=rng, device=_source(rng, device)).to(device)
    return signs.to(dtype).mul_(2).sub_(1)


def uniform(shape: tuple[int, ...], rng: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Numbers uniform on [0, 1), on the device of `rng`."""
    return torch.rand(shape, generator=rng, dtype=dtype, device=rng.device)


def permutation(count: int, seed: int) -> Tensor:  # (count,), on the CPU
    """A random permutation of 0, ..., count - 1, always the same for a seed."""
    rng = torch.Generator().manual_seed(seed)
    return torch.randperm(count, generator=rng, device=rng.device)


def gamma(shape: Tensor, rng: torch.Generator | None) -> Tensor:
    """Gamma variables with these shape parameters and scale 1, drawn like `normal`."""
    source = _source(rng, shape.device)
    return torch._standard_gamma(shape.to(source), generator=rng).to(shape.device)


def poisson(rate: Tensor, rng: torch.Generator | None) -> Tensor:
    """Poisson counts of these rates, in their dtype, drawn like `normal`."""
    source = _source(rng, rate.device)
    return torch.poisson(rate.to(source), generator=rng).to(rate.device)


@contextmanager
def global_stream(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators of the CPU and of this device; on leaving, restore their previous states.

    For code that can draw only from them. Other GPUs are left alone, since reading their generators takes memory there.
    """
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        yield


def _source(rng: torch.Generator | None, device: torch.device) -> torch.device:
    return device if rng is None else rng.device
