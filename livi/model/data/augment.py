"""Augmentation of batches on their device: other versions of the same examples at every epoch.

What is fitted is then no longer a likelihood of N examples, but one of N examples whose versions are averaged over;
it is scaled by N all the same, as everybody does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Augment = Callable[[Any, torch.Generator], Any]  # a batch of inputs, random numbers on its device -> such a batch


def check_augment(augment: Any) -> None:
    """Raise for what is no function of a batch and a generator."""
    expected = "augment: expected a function of a batch of inputs and a torch.Generator, such as livi.CropFlip(), got"
    if not callable(augment) or isinstance(augment, type):
        raise TypeError(f"{expected} {augment!r}.")
    try:
        signature = inspect.signature(augment)
    except (TypeError, ValueError):  # of some functions written in C nothing is known
        return
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise TypeError(f"{expected} one of {signature}; random numbers come from the generator.") from error


@dataclass(frozen=True)
class CropFlip:
    """Images moved by up to `padding` pixels each way, zeros moving in, and mirrored left to right half of the time.

    The usual augmentation of CIFAR: `livi.fit(net, (images, labels), livi.Categorical(), augment=livi.CropFlip())`.
    Zero should mean grey, so standardise images first. Draws and indexing are tensor operations of fixed shapes that
    wait for no result, on any device: they can be part of a CUDA graph.

    >>> images = torch.arange(8.0).reshape(1, 1, 2, 4)
    >>> CropFlip(padding=0)(images, torch.Generator().manual_seed(0)).shape
    torch.Size([1, 1, 2, 4])
    """

    padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.padding, int) or self.padding < 0:
            raise ValueError(f"padding: expected a whole number of pixels, 0 or more, got {self.padding!r}.")

    def __call__(self, images: Tensor, rng: torch.Generator) -> Tensor:  # (B, c, h, w)
        if not isinstance(images, Tensor) or images.ndim != 4:
            got = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
            raise ValueError(f"images: expected a tensor (batch, channels, height, width), got {got}.")
        count, _, height, width = images.shape
        offsets = torch.randint(0, 2 * self.padding + 1, (2, count), generator=rng, device=rng.device)
        mirrored = torch.randint(0, 2, (count,), generator=rng, device=rng.device)
        down, right = offsets.to(images.device)
        rows = down[:, None] + torch.arange(height, device=images.device)  # (B, h) of the padded image
        columns = torch.arange(width, device=images.device).expand(count, -1)
        if self.flip:
            columns = torch.where(mirrored.to(images.device)[:, None] == 1, width - 1 - columns, columns)
        places = rows[:, :, None] * (width + 2 * self.padding) + (right[:, None] + columns)[:, None, :]  # (B, h, w)
        padded = F.pad(images, 4 * (self.padding,)).flatten(2)
        moved = padded.gather(2, places.flatten(1)[:, None].expand(-1, images.shape[1], -1)).view(images.shape)
        last = images.is_contiguous(memory_format=torch.channels_last)
        return moved.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
