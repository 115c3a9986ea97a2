"""Numbers with Gaussian noise: the same for every example, or given by the network."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from livi import checks
from livi.model.likelihoods.base import (
    Likelihood,
    aligned,
    counts_of,
    log_positive,
    other_last_axis,
    summed,
    weighted_moments,
)
from livi.model.likelihoods.located import Located, Numbers

LEAST = 0.01  # standard deviation of order-one targets
HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)


class Gaussian(Located):
    """y ~ N(centre + unit output, obs_std^2), the same noise for every example.

    Args:
        obs_std: the known noise: one number, or one per output, along the last axis of the outputs. None learns it with
            the rest of the bound (type-II maximum likelihood), from the spread of the targets: one noise per output for
            targets (B, k), else one for all.
        learned: learn a given obs_std too, from its value.
        centre, unit: of the targets: one number, or one per output. `fit(standardise=...)` chooses them.

    >>> Gaussian(0.5).log_prob(torch.zeros(1, 2, 1), torch.zeros(2))
    tensor([[-0.2258, -0.2258]])
    >>> Gaussian([0.5, 1.0]).log_prob(torch.zeros(1, 1, 2), torch.zeros(1, 2))
    tensor([[-1.1447]])
    """

    def __init__(
        self,
        obs_std: float | Sequence[float] | Tensor | None = None,
        *,
        learned: bool | None = None,
        centre: Numbers = 0.0,
        unit: Numbers = 1.0,
    ) -> None:
        super().__init__()
        self._keep_location(centre, unit)
        start = log_positive("obs_std", 1.0 if obs_std is None else obs_std)
        self.log_std: Tensor  # () or (k,)
        self.given = obs_std is not None
        if not self.given if learned is None else learned:
            self.log_std = nn.Parameter(start)
        else:
            self.register_buffer("log_std", start)

    def obs_std(self) -> Tensor:  # () or (k,)
        return self.log_std.exp()

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        std, location = self.obs_std(), self.location(outputs)
        if std.numel() == 1:
            return location, std.reshape(())
        if outputs.ndim < 3 or outputs.shape[-1] != len(std):
            raise other_last_axis(outputs, len(std), "value of obs_std", "obs_std one value")
        return location, std.expand_as(outputs)

    @torch.no_grad()
    def started_from(self, targets: Tensor) -> Self:
        """This likelihood with its learned noise, if it has no value yet, at the spread of the targets.

        Targets (B, k) give each of k outputs a noise of its own. Otherwise there is one, the root mean square spread
        over all targets of an example. Constant targets leave a noise at 1.
        """
        open_yet = not self.given and isinstance(self.log_std, nn.Parameter) and not bool(self.log_std.any())
        if not open_yet or len(targets) < 2:
            return self
        spread = targets.cpu().double().std(0)
        if targets.ndim != 2 or targets.shape[1] == 1:
            spread = spread.square().mean().sqrt()
        spread = torch.where((spread > 0) & (spread < math.inf), spread, 1.0)
        started = copy.deepcopy(self)
        started.log_std = nn.Parameter(spread.log().to(self.log_std))
        if spread.ndim:
            started._remember(obs_std=spread, learned=True)
        return started

    def natural_log_std(self) -> Tensor:  # () or (k,)
        """The logarithm of the noise of `natural` targets."""
        return self.log_std if self.log_unit is None else self.log_std - self.log_unit

    def constant_log_prob(self, targets: Tensor, weights: Tensor | None = None) -> float | None:
        """log p(targets) at their means, with the given noise unless it is learned."""
        if isinstance(self.log_std, nn.Parameter):
            return super().constant_log_prob(targets, weights)
        columns = targets.detach().double().reshape(len(targets), -1)
        counts = counts_of(columns, weights)
        means = weighted_moments(columns, counts)[0].expand_as(columns).reshape(targets.shape)
        return float(self.log_prob(self.natural(means)[None], targets.double()) @ counts)

    def lower_limits(self) -> list[tuple[nn.Parameter, float | Tensor]]:
        """A learned noise may fall to a tenth of its present value."""
        if not isinstance(self.log_std, nn.Parameter):
            return []
        limits = self.log_std.detach() + math.log(0.1)
        return [(self.log_std, limits if limits.ndim else float(limits))]


class GuardedGaussian(Gaussian):
    """`Gaussian` noise that is learned from few examples: log obs_std ~ N(log start, spread^2) a priori.

    Few examples can be fitted exactly, and the evidence of their features then favours a noise of next to nothing.
    Under this prior a noise that the data say little about stays near where it starts; n examples count 2 n spread^2
    times as much. It is counted where the last layer is integrated out (`LinearGaussian`), by its density relative to
    its peak, and not where examples come in batches, for those are many.

    Args:
        obs_std: where the noise starts.
        spread: of the logarithm of the noise around it.
        centre, unit: as of `Gaussian`.
    """

    def __init__(self, obs_std: float, spread: float, *, centre: Numbers = 0.0, unit: Numbers = 1.0) -> None:
        super().__init__(checks.positive_float("obs_std", obs_std), learned=True, centre=centre, unit=unit)
        self.spread = checks.positive_float("spread", spread)
        self.log_start: Tensor
        self.register_buffer("log_start", self.log_std.detach().clone())

    def log_prob_of_noise(self) -> Tensor:  # ()
        """The log density of the noise relative to its peak."""
        return -0.5 * ((self.log_std - self.log_start) / self.spread).square()

    def unguarded(self) -> Gaussian:
        """The same noise, by the same parameter, without its prior."""
        location: dict[str, Numbers] = {} if self.centre is None else {"centre": self.centre, "unit": self.unit()}
        other = Gaussian(1.0, learned=True, **location)
        other.log_std = self.log_std
        return other


class HeteroscedasticGaussian(Located):
    """y ~ N(mean(x), std(x)^2): the last axis holds means, then as many raw scales.

    mean = centre + unit output, std = floor + unit level softplus(raw).

    Args:
        floor: the smallest standard deviation, in the targets' units, by default 0.01; keeps single points from being
            fitted exactly.
        learned: learn the level (type-II maximum likelihood), which is else 1, so that a prior on raw scales around 0
            says how much the noise varies and not how large it is.
        centre, unit: of the targets: one number, or one per target. `fit(standardise=...)` chooses them, and 0.01 units
            as the floor where none was given.
    """

    def __init__(
        self, floor: float | None = None, *, learned: bool = False, centre: Numbers = 0.0, unit: Numbers = 1.0
    ) -> None:
        super().__init__()
        self._keep_location(centre, unit)
        self.given = floor is not None
        self.floor = LEAST if floor is None else checks.positive_float("floor", floor)
        self.log_level = nn.Parameter(torch.tensor(0.0)) if learned else None

    def for_map(self, targets: Tensor) -> Likelihood:
        """This likelihood with a floor of at least a tenth of the targets' spread (the smallest of several outputs').

        Otherwise single points would be fitted exactly, down to `floor`, and the posterior could not start from there.
        """
        outputs = targets.detach().double().reshape(len(targets), -1)
        spread = float(outputs.std(0).min()) if len(targets) > 1 else 0.0
        raised = copy.copy(self)  # which shares its parameters
        raised.floor = max(self.floor, 0.1 * spread)
        return raised

    def std(self, raw: Tensor) -> Tensor:
        """Standard deviations for raw scales, of the same shape."""
        scale = F.softplus(raw)
        scale = scale if self.log_unit is None else scale * self.unit()
        return self.floor + (scale if self.log_level is None else self.log_level.exp() * scale)

    def _located_at(self, centre: Tensor, unit: Tensor) -> Self:
        other = super()._located_at(centre, unit)
        if not self.given:
            other.floor = LEAST * float(unit.min())
            other._remember(floor=other.floor)
        return other

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = self._halves(outputs)
        return self.location(mean), self.std(raw)

    def _halves(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Means and raw scales."""
        if outputs.ndim < 3 or outputs.shape[-1] % 2:
            raise ValueError(
                f"outputs: expected an even last axis (means, then raw scales), got {tuple(outputs.shape)}; "
                "give the network two outputs for each target."
            )
        mean, raw = outputs.chunk(2, -1)
        return mean, raw

    def log_prob_with_gradient(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """See `Likelihood`. With r = (y - mean) / std it is r / std in the mean, (r^2 - 1) / std in the deviation."""
        if type(self) is not HeteroscedasticGaussian:
            return super().log_prob_with_gradient(outputs, targets)
        residual, inverse = self._residuals(outputs, targets)
        density = inverse.log().sub_(HALF_LOG_2_PI).addcmul_(residual, residual, value=-0.5)
        return summed(density), self._gradient(outputs, residual, inverse)

    def _residuals(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """(y - mean) / s and 1 / s, new tensors both."""
        mean, raw = self._halves(outputs)
        aligned(mean, targets)
        inverse = self.std(raw).reciprocal_()
        return (targets.reshape(mean.shape[1:]) - self.location(mean)).mul_(inverse), inverse

    def _gradient(self, outputs: Tensor, residual: Tensor, inverse: Tensor, weight: Tensor | None = None) -> Tensor:
        """From residuals r in units of s, and 1 / s, which is overwritten: w r / s, and (w r^2 - 1) / s ds / d raw.

        Args:
            weight: w of each residual; 1 for all where not given.
        """
        raw = self._halves(outputs)[1]
        gradient = torch.empty_like(outputs)  # examples last in memory, where they are so in the outputs
        in_mean, in_raw = gradient.chunk(2, -1)
        torch.mul(residual if weight is None else residual * weight, inverse, out=in_mean)
        slope = inverse.neg_().addcmul_(residual, in_mean)
        torch.ops.aten.softplus_backward.grad_input(slope, raw, 1, 20, grad_input=in_raw)
        if self.log_unit is not None:
            gradient.mul_(self.unit() if self.log_unit.ndim == 0 else torch.cat([self.log_unit.exp()] * 2))
        if self.log_level is not None:
            in_raw.mul_(self.log_level.exp())
        return gradient

    def lower_limits(self) -> list[tuple[nn.Parameter, float | Tensor]]:
        """A learned level may fall to a tenth of its present value."""
        return [] if self.log_level is None else [(self.log_level, float(self.log_level.detach()) + math.log(0.1))]
