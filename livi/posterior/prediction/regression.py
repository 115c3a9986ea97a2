"""Predictions of regression: for each target a mixture of S Gaussians, one a weight sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from livi import checks
from livi.model.likelihoods import aligned
from livi.posterior.prediction.mixture import (
    Numbers,
    Targets,
    check_outputs,
    check_targets,
    log_mean_exp,
    precise,
    probabilities,
    without_last_one,
)
from livi.posterior.prediction.moments import Moments, Quantiles, random_rows
from livi.posterior.prediction.shapes import NORMAL, NoiseShape, below

_ACCURACY = 1e-7  # of a quantile, in units of the total standard deviation
_NEWTON_STEPS = 6


@dataclass(frozen=True, eq=False)
class RegressionPrediction(Quantiles, Moments):
    """p(y | x, D) ~ 1/S sum_s N(y; mean_s, std_s^2) for every target.

    Everything is a property of this mixture and exact for it; what is estimated is the mixture itself, with an error
    of order 1/sqrt(S). So `epistemic_std` is the spread of these S means, 0 for one sample.

    A last axis of one behind the examples is dropped: outputs (S, B, 1) have a `mean` of shape (B,), and k outputs
    one of (B, k). Targets may come with or without that axis, as in the likelihoods. Half precision becomes float32.

    Args:
        means: each sample's means.
        stds: each sample's standard deviations of the observation noise, or anything broadcastable to the means.
        noise_shape: of the noise, in these deviations, where it is not normal: N is then another distribution.

    >>> prediction = RegressionPrediction(torch.tensor([[[-3.0]], [[3.0]]]), torch.tensor(4.0))
    >>> prediction.mean, prediction.epistemic_std, prediction.aleatoric_std, prediction.total_std
    (tensor([0.]), tensor([3.]), tensor([4.]), tensor([5.]))
    """

    means: Tensor  # (S, B, ...)
    stds: Tensor  # (S, B, ...), a view where it was broadcast
    noise_shape: NoiseShape = NORMAL

    def __post_init__(self) -> None:
        means = precise(check_outputs(self.means))
        given = self.stds if isinstance(self.stds, Tensor) else means.new_tensor(self.stds)
        try:
            stds = given.to(means).broadcast_to(means.shape)
        except RuntimeError as error:
            raise ValueError(
                f"stds: expected a shape broadcastable to that of means, {tuple(means.shape)}, "
                f"got {tuple(given.shape)}."
            ) from error
        if not bool((given > 0).all()):
            raise ValueError(
                f"stds: expected positive numbers, got {given.min().item()}; check the likelihood's moments, "
                "and the network's outputs for NaN."
            )
        object.__setattr__(self, "means", without_last_one(means))
        object.__setattr__(self, "stds", without_last_one(stds))

    @property
    def num_samples(self) -> int:
        return self.means.shape[0]

    @property
    def outputs(self) -> list[RegressionPrediction]:
        """The prediction of each output by itself: k of them for a `mean` of shape (B, k), one for (B,).

        >>> several = RegressionPrediction(torch.zeros(10, 4, 3), torch.tensor([0.1, 0.3, 1.0]))
        >>> [round(float(each.total_std[0]), 1) for each in several.outputs]
        [0.1, 0.3, 1.0]
        """
        if self.means.ndim < 3:
            return [self]
        pairs = zip(self.means.unbind(-1), self.stds.unbind(-1), strict=True)
        return [RegressionPrediction(*pair, self.noise_shape) for pair in pairs]

    def quantile(self, q: Numbers) -> Tensor:  # (B, ...), or (Q, B, ...) for several
        """Quantiles of the mixture to 1e-7 of the total std, or as precisely as its dtype allows.

        By Newton's method, or by bisection where that does not settle, within the range of the components' own
        quantiles, which holds the mixture's.

        Cost: about 4 evaluations of S normal distribution functions and densities for each target and quantile; about
        30 where the samples disagree by more than their noise.

        Raises:
            ValueError: a q is not strictly between 0 and 1.
        """
        levels = probabilities(q)
        return torch.stack(list(map(self._quantile, levels))) if isinstance(levels, list) else self._quantile(levels)

    def cdf(self, targets: Targets) -> Tensor:  # the targets' shape
        """P(Y <= y) for every target: uniform on [0, 1] over new data if the prediction is calibrated (PIT)."""
        means, stds, found = self._aligned(targets)
        return self.noise_shape.below((found - means) / stds).mean(0)

    def log_mass(self, low: Targets, high: Targets) -> Tensor:  # the targets' shape
        """log P(low < Y <= high) for every target, as precise far above the means as far below them.

        Where that is so narrow that differences are lost, by the density in its middle.
        """
        means, stds, low = self._aligned(low)
        high = self._aligned(high)[2]
        return log_mean_exp(self.noise_shape.log_mass((low - means) / stds, (high - means) / stds))

    def log_prob(self, targets: Targets) -> Tensor:  # (B, ...) -> (B,)
        """Log density of the mixture for each example.

        Axes behind the examples are one event: given the weights its targets are independent, so their log densities
        are summed for each sample before samples are averaged.
        """
        means, stds, found = self._aligned(targets)
        density = self.noise_shape.log_density((found - means) / stds) - stds.log()
        return log_mean_exp(density.flatten(2).sum(2) if density.ndim > 2 else density)

    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (num_samples, B, ...)
        """Targets drawn from the prediction: each draw takes one weight sample for all examples, and adds noise.

        So a draw is jointly plausible across examples, and every single target has the mixture as its distribution.
        """
        rows = random_rows(num_samples, self.num_samples, rng, self.means.device)
        means = self.means[rows]
        return means + self.stds[rows] * self.noise_shape.draw(means, rng)

    def spread_by(self, factor: float) -> RegressionPrediction:
        """The same overall mean, with the spread of the samples' means and the noise multiplied by a factor.

        >>> wide = RegressionPrediction(torch.tensor([[-3.0], [5.0]]), torch.tensor(4.0))
        >>> wide.spread_by(0.5).means, wide.spread_by(0.5).mean, wide.spread_by(0.5).aleatoric_std
        (tensor([[-1.],
                [ 3.]]), tensor([1.]), tensor([2.]))
        """
        mean, factor = self.means.mean(0), checks.positive_float("factor", factor)
        return RegressionPrediction(mean + factor * (self.means - mean), factor * self.stds, self.noise_shape)

    def rescaled(self, shift: float, scale: float) -> RegressionPrediction:
        """The prediction of shift + scale * y, scale > 0: in other units, in double precision.

        >>> metres = RegressionPrediction(torch.tensor([[[1.0]]]), torch.tensor(0.5))
        >>> metres.rescaled(0.0, 100.0).total_std
        tensor([50.], dtype=torch.float64)
        """
        factor = checks.positive_float("scale", scale)
        return RegressionPrediction(shift + factor * self.means.double(), factor * self.stds.double(), self.noise_shape)

    def __repr__(self) -> str:
        return f"RegressionPrediction(num_samples={self.num_samples}, shape={tuple(self.means.shape[1:])})"

    def _moments(self) -> tuple[Tensor, Tensor]:
        return self.means, self.stds

    def _quantile_errors(self, q: Sequence[float]) -> list[Tensor]:
        """Errors from the distributions of a smoother mixture, at quantiles of a normal with its moments.

        Where the samples are further apart than their noise, the mixture's own density is a row of peaks that says
        nothing about the quantile of another S samples; so it is smoothed, by Silverman's rule for the means. The noise
        is taken to be normal.
        """
        spread = 1.06 * self.num_samples**-0.2 * self.epistemic_std
        stds = torch.hypot(self.stds, spread)
        offsets, total = self.means - self.mean, self.total_std
        errors = []
        for level in q:
            units = (NormalDist().inv_cdf(level) * total - offsets) / stds
            density = ((-0.5 * units.square()).exp() / stds).mean(0) / math.sqrt(2.0 * math.pi)
            errors.append(below(units).std(0) / density)
        return errors

    def _aligned(self, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
        found = check_targets(targets, self.means.device).to(self.means.dtype)
        return aligned(self.means, found), aligned(self.stds, found), found

    def _quantile(self, q: float) -> Tensor:
        mean = self.mean
        offsets = self.means - mean  # of which rounding is relative to the spread, not to the mean
        samples = self.num_samples
        flat = (offsets.reshape(samples, -1), self.stds.reshape(samples, -1))
        found = _differentiable_quantile(*flat, self.noise_shape, q)
        return mean + found.reshape(mean.shape)


def _differentiable_quantile(means: Tensor, stds: Tensor, shape: NoiseShape, q: float) -> Tensor:  # -> (n,)
    """`_mixture_quantile` with its gradient, -dF / f by the implicit function theorem, F(quantile) = q."""
    with torch.no_grad():
        place = _mixture_quantile(means, stds, shape, q)
        density = (shape.log_density((place - means) / stds).exp() / stds).mean(0)
    if not (torch.is_grad_enabled() and (means.requires_grad or stds.requires_grad)):
        return place
    side = -1.0 if q > 0.5 else 1.0
    tail = side * shape.below(side * (place - means) / stds).mean(0)
    return place + (tail.detach() - tail) / density.clamp_min(torch.finfo(density.dtype).tiny)


def _mixture_quantile(means: Tensor, stds: Tensor, shape: NoiseShape, q: float) -> Tensor:  # (S, n), (S, n) -> (n,)
    """Quantiles by Newton's method, which takes few steps for a nearly normal mixture; else by bisection."""
    unit = NormalDist().inv_cdf(q)
    side, mass = (-1.0, 1.0 - q) if q > 0.5 else (1.0, q)  # the smaller tail, which does not round to 1
    spread = (means.var(0, correction=0) + stds.square().mean(0)).sqrt()
    accuracy = max(_ACCURACY, 4.0 * torch.finfo(means.dtype).eps) * spread
    own_unit = unit if shape.is_normal else shape.quantile(q)
    ends = means + own_unit * stds
    low, high = ends.amin(0), ends.amax(0)
    place = (means.mean(0) + own_unit * spread).clamp(low, high)
    done = torch.zeros_like(place, dtype=torch.bool)
    for _ in range(_NEWTON_STEPS):
        units = side * (place - means) / stds
        tail = shape.below(units).mean(0)
        # On the normal quantile of the distribution function, which is a straight line for one normal distribution.
        own = torch.special.ndtri(tail)
        slope = (shape.log_density(units).exp() / stds).mean(0) / NORMAL.log_density(own).exp()
        step = (unit - side * own) / slope
        done = step.abs() <= accuracy
        place = torch.where(done | ((place + step > low) & (place + step < high)), place + step, 0.5 * (low + high))
        if bool(done.all()):
            return place
    left = ~done
    place[left] = _bisected(means[:, left], stds[:, left], shape, side, mass, low[left], high[left], accuracy[left])
    return place


def _bisected(
    means: Tensor,
    stds: Tensor,
    shape: NoiseShape,
    side: float,
    mass: float,
    low: Tensor,
    high: Tensor,
    accuracy: Tensor,
) -> Tensor:  # (S, n), (S, n), (n,), (n,), (n,) -> (n,)
    """The point beyond which a tail of the mixture, the lower for `side` 1 and the upper for -1, has this mass."""
    halvings = ((high - low) / accuracy).nan_to_num(0.0, 0.0).amax().clamp_min(1.0).log2()
    for _ in range(math.ceil(halvings.item())):
        middle = low + 0.5 * (high - low)
        too_low = side * (mass - shape.below(side * (middle - means) / stds).mean(0)) > 0
        low, high = torch.where(too_low, middle, low), torch.where(too_low, high, middle)
    return low + 0.5 * (high - low)
