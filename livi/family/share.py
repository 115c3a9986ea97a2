"""How one bound is divided among several processes: each computes a share, and the shares add up to the whole."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Share:
    """What one of several ranks computes of a step's bound.

    Weight samples are divided first, since that divides the work of network, generator and entropy alike, and is exact
    for every network (BatchNorm sees whole batches). Ranks beyond that divide the examples. The entropy, whose latents
    cost the same wherever they are, is divided among all.

    Args:
        rank, ranks: the number of this process, and of all.
        groups: parts of equal size into which the samples of each component are divided; ranks of one group evaluate
            the same samples on different examples.

    >>> [Share.of(rank, 4, num_samples=2).examples for rank in range(4)]
    [(0, 2), (0, 2), (1, 2), (1, 2)]
    >>> list(range(8))[Share.of(1, 4, num_samples=8).samples]
    [1, 5]
    """

    rank: int
    ranks: int
    groups: int = 1

    @classmethod
    def of(cls, rank: int, ranks: int, *, num_samples: int) -> Share:
        """The share of a rank, for so many samples of each component."""
        return cls(rank, ranks, math.gcd(ranks, num_samples))

    @property
    def samples(self) -> slice:
        """Which samples of each component."""
        return slice(self.rank % self.groups, None, self.groups)

    @property
    def examples(self) -> tuple[int, int]:
        """Which part of the examples, of how many."""
        return self.rank // self.groups, self.ranks // self.groups

    def latents(self, count: int) -> tuple[range, float]:
        """Which of the first `count` latents of each component to estimate the entropy at, and their weight.

        A rank that gets none takes the first with weight 0, so that all ranks draw the same random numbers.

        >>> Share.of(1, 4, num_samples=8).latents(6), Share.of(3, 4, num_samples=8).latents(2)
        ((range(1, 6, 4), 0.3333333333333333), (range(0, 2, 2), 0.0))
        """
        rows = range(self.rank, count, self.ranks)
        return (rows, len(rows) / count) if rows else (range(0, count, count), 0.0)

    def stream(self, rng: torch.Generator | None) -> torch.Generator | None:
        """A random stream of this rank's own. The common stream advances by one draw, the same on every rank."""
        if rng is None:
            return None
        seed = int(torch.randint(2**62, (), generator=rng, device=rng.device))
        return torch.Generator(rng.device).manual_seed(seed + self.rank)
