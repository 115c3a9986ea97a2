"""Predictions of regression by a likelihood with a density of its own, such as a Student-t."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from livi.draws import uniform
from livi.model.likelihoods import RegressionLikelihood, aligned
from livi.posterior.prediction.mixture import (
    Numbers,
    Targets,
    check_outputs,
    check_targets,
    differentiable_in,
    interpolated,
    log_mean_exp,
    precise,
    probabilities,
    stepped,
    without_last_one,
)
from livi.posterior.prediction.moments import Moments, Quantiles, random_rows

NUM_DRAWS = 2000
"""Targets drawn of each example for its quantiles, at least: those at 0.05 are then good to 0.005 in probability."""

_AT_ONCE = 2**22  # numbers of draws held at a time
_LEAST_MASS = 1e-300  # where no draw lies


@runtime_checkable
class Drawable(Protocol):
    """A likelihood that targets can be drawn from: one at each sample's outputs for an example."""

    def sample(self, outputs: Tensor, rng: torch.Generator | None = None) -> Tensor: ...  # (S, B, ...)


@dataclass(frozen=True, eq=False, repr=False)
class DensityPrediction(Moments):
    """p(y | x, D) ~ 1/S sum_s p(y | outputs_s), by the likelihood's own log_prob.

    Means and standard deviations are those of the likelihood's `moments`. There are no quantiles and no intervals: from
    a density alone they are not known, and a Gaussian's would be others. A likelihood with `sample(outputs, rng)` has
    them (`DrawnPrediction`). The likelihood is kept, not copied. A last axis of one behind the examples is dropped.
    """

    outputs: Tensor  # (S, B, ...)
    likelihood: RegressionLikelihood
    seed: int = 0  # of the draws behind quantiles

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", precise(check_outputs(self.outputs)))
        given = self._moments()[1]
        if not bool((given >= 0).all()):
            raise ValueError(
                f"moments: expected standard deviations of at least 0, got {given.min().item()}; check the "
                "likelihood's moments, and the network's outputs for NaN."
            )

    @property
    def num_samples(self) -> int:
        return self.outputs.shape[0]

    @property
    def means(self) -> Tensor:  # (S, B, ...)
        return self._moments()[0]

    @property
    def each_output(self) -> list[Self]:
        """The prediction of each output by itself: k of them for a `mean` of shape (B, k), one for (B,).

        Raises:
            NotImplementedError: the likelihood does not say what it is for one output alone (`of_output`).
        """
        if self.means.ndim < 3:
            return [self]
        parts = enumerate(self.outputs.unbind(-1))
        return [type(self)(part, self.likelihood.of_output(index), self.seed + index) for index, part in parts]

    def log_prob(self, targets: Targets) -> Tensor:  # (B, ...) -> (B,)
        """log 1/S sum_s p(y | outputs_s) for each example, its targets together."""
        with differentiable_in(self.outputs):
            return log_mean_exp(self.likelihood.log_prob(self.outputs, self._as_outputs(targets)))

    def __repr__(self) -> str:
        shape, kind = tuple(self.means.shape[1:]), type(self.likelihood).__name__
        return f"{type(self).__name__}(num_samples={self.num_samples}, shape={shape}, {kind})"

    def _moments(self) -> tuple[Tensor, Tensor]:  # (S, B, ...), (S, B, ...)
        with differentiable_in(self.outputs):
            means, stds = self.likelihood.moments(self.outputs)
            return without_last_one(means), without_last_one(stds.to(means).broadcast_to(means.shape))

    def _as_outputs(self, targets: Targets) -> Tensor:
        found = check_targets(targets, self.outputs.device)
        return found.to(self.outputs.dtype) if found.is_floating_point() else found


@dataclass(frozen=True, eq=False, repr=False)
class DrawnPrediction(Quantiles, DensityPrediction):
    """A `DensityPrediction` whose likelihood can be drawn from: with quantiles, estimated from NUM_DRAWS draws or more.

    They are drawn anew, from `seed`, whenever they are asked for: the same prediction gives the same answer. Quantiles
    of counts are counts: the smallest that at least a share q of the draws does not exceed.
    """

    def quantile(self, q: Numbers) -> Tensor:  # (B, ...), or (Q, B, ...) for several
        """Quantiles of the drawn targets."""
        levels = probabilities(q)
        between = stepped if self.likelihood.whole_numbers else interpolated
        parts = [between(draws.sort(0).values, levels) for _, draws in self._draws()]
        return torch.cat(parts, 1 if isinstance(levels, list) else 0)

    def cdf(self, targets: Targets) -> Tensor:  # the targets' shape
        """P(Y <= y) for every target: the share of draws that are no larger."""
        return self._shares(self._as_outputs(targets))[0]

    def log_mass(self, low: Targets, high: Targets) -> Tensor:  # the targets' shape
        """log P(low < Y <= high) for every target, by the share of draws in between."""
        below, above = self._shares(self._as_outputs(low), self._as_outputs(high))
        return (above - below).clamp_min(_LEAST_MASS).log()

    def pit(self, targets: Targets) -> Tensor:  # the targets' shape
        """Probability integral transforms, uniform on [0, 1] over new data if the prediction is calibrated.

        That is `cdf`, except for counts, of which it is not uniform: theirs are randomised, P(Y < y) + U P(Y = y) with
        U uniform, from `seed` and the rows: those of another block of them are others.
        """
        if not self.likelihood.whole_numbers:
            return self.cdf(targets)
        found = self._as_outputs(targets).to(self.outputs.dtype)  # bytes would wrap at 0 - 1
        highest, lowest = self._shares(found, found - 1)
        known = zlib.crc32(torch.stack([lowest, highest]).cpu().numpy().tobytes())
        rng = torch.Generator().manual_seed(self.seed + 1 + known)
        return lowest + uniform(tuple(found.shape), rng, highest.dtype).to(highest) * (highest - lowest)

    def crps(self, targets: Targets) -> Tensor:  # (B, ...)
        """Continuous ranked probability score of each target, E|Y - y| - E|Y - Y'| / 2, of the draws."""
        found = self._as_outputs(targets).to(self.outputs.dtype)
        parts = []
        for rows, draws in self._draws():
            ordered, count = draws.sort(0).values, len(draws)
            weights = (2.0 * torch.arange(1, count + 1, device=draws.device) - count - 1.0).to(ordered)  # of the pairs
            apart = 2.0 * torch.tensordot(weights, ordered, 1) / count**2
            parts.append((aligned(draws, found[rows]) - found[rows]).abs().mean(0) - 0.5 * apart)
        return torch.cat(parts)

    @torch.no_grad()
    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (num_samples, B, ...)
        """Targets drawn from the prediction, each draw with one weight sample for all examples."""
        rows = random_rows(num_samples, self.num_samples, rng, self.outputs.device)
        return self._drawn(self.outputs[rows], rng)

    def _shares(self, *places: Tensor) -> list[Tensor]:
        """The share of draws up to each of these places, for every target."""
        parts: list[list[Tensor]] = [[] for _ in places]
        for rows, draws in self._draws():
            for found, place in zip(parts, places, strict=True):
                below = aligned(draws, place[rows]) <= place[rows]
                found.append(below.to(self.outputs.dtype).mean(0))
        return [torch.cat(found) for found in parts]

    def _drawn(self, outputs: Tensor, rng: torch.Generator | None) -> Tensor:
        assert isinstance(self.likelihood, Drawable)
        drawn = self.likelihood.sample(outputs, rng)
        if drawn.shape[:2] != outputs.shape[:2]:
            raise ValueError(
                f"sample: expected targets of shape {tuple(outputs.shape[:2])} and one example's axes, got "
                f"{tuple(drawn.shape)}; draw one target for each sample and example."
            )
        return without_last_one(drawn)

    @torch.no_grad()
    def _draws(self) -> Iterator[tuple[slice, Tensor]]:  # examples, (n, b, ...)
        """Equally many draws at every weight sample, some examples at a time.

        Every example is drawn by itself and from the same random numbers, so that its answer does not depend on those
        beside it.
        """
        rng, repeats = torch.Generator(), math.ceil(NUM_DRAWS / self.num_samples)
        examples = self.outputs.shape[1]
        each = repeats * self.outputs[:, :1].numel()
        step = max(1, _AT_ONCE // each)
        for start in range(0, examples, step):
            rows = slice(start, min(examples, start + step))
            drawn = []
            for outputs in self.outputs[:, rows].split(1, 1):
                rng.manual_seed(self.seed)
                drawn.append(self._drawn(outputs.repeat(repeats, *[1] * (outputs.ndim - 1)), rng))
            yield rows, torch.cat(drawn, 1)
