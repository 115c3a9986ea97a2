"""Numbers that a Gaussian does not suit: with outliers, or positive and skewed."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from livi import checks
from livi.draws import gamma, normal
from livi.model.likelihoods.base import aligned, counts_of, refuse, single, summed, weighted_moments
from livi.model.likelihoods.forms import ClosedForm, LogNormals
from livi.model.likelihoods.located import Located, Numbers
from livi.model.likelihoods.scales import LogLinkedScaled, Positive, Scaled, columns_of, log_rising

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class StudentT(Located, Scaled):
    """y ~ centre + unit output + scale T, T with `df` degrees of freedom: outliers hardly move the fit.

    Args:
        scale: one number, or one per output. None learns it with the rest of the bound, from the middle half of the
            targets: one per output for targets (B, k), else one for all.
        df: degrees of freedom, more than 1; the fewer, the heavier the tails. Up to 2 the variance is infinite.
        learned: learn a given scale too, from its value.
        learned_df: learn the degrees of freedom too, from `df` and above 2.
        centre, unit: of the targets: one number, or one per output. `fit(standardise=...)` chooses them.

    >>> StudentT(1.0).log_prob(torch.zeros(1, 2, 1), torch.tensor([0.0, 10.0]))
    tensor([[-0.9808, -9.1261]])
    """

    def __init__(
        self,
        scale: Positive | None = None,
        df: float = 4.0,
        *,
        learned: bool | None = None,
        learned_df: bool = False,
        centre: Numbers = 0.0,
        unit: Numbers = 1.0,
    ) -> None:
        super().__init__()
        self._keep_location(centre, unit)
        self._keep_scale("scale", scale, learned)
        least = 2.0 if learned_df else 1.0
        if checks.positive_float("df", df) <= least:
            raise ValueError(f"df: expected more than {least:g}, got {df}; {_ABOUT_DF[learned_df]}.")
        self.fixed_df = float(df)
        self.log_excess = nn.Parameter(torch.tensor(math.log(df - 2.0))) if learned_df else None

    def df(self) -> Tensor:  # ()
        """The degrees of freedom."""
        if self.log_excess is None:
            return torch.full_like(self.log_scale.detach().reshape(-1)[0], self.fixed_df)
        return 2.0 + self.log_excess.exp()

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        log_scale, df = self._log_scale_of(single(outputs)), self.df()
        unit = (targets - aligned(self.location(outputs), targets)) * (-log_scale).exp()
        constant = log_rising(0.5 * df, torch.full_like(df, 0.5)) - _HALF_LOG_TWO_PI
        return summed(constant - log_scale - 0.5 * (df + 1.0) * torch.log1p(unit.square() / df))

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        df = self.df()
        ratio = (df / (df - 2.0)).where(df > 2.0, math.inf)
        return self.location(outputs), (self._log_scale_of(outputs).exp() * ratio.sqrt()).expand_as(outputs)

    def sample(self, outputs: Tensor, rng: torch.Generator | None = None) -> Tensor:  # (S, B, ...)
        """A target for each sample and example: normal, over the root of a gamma variable."""
        half = 0.5 * self.df()
        units = normal(tuple(outputs.shape), rng, outputs.dtype, outputs.device)
        share = gamma(half.to(outputs.dtype).expand_as(outputs).contiguous(), rng) / half
        return self.location(outputs) + self._log_scale_of(outputs).exp() * units / share.sqrt()

    def lower_limits(self) -> list[tuple[nn.Parameter, float | Tensor]]:
        """A learned scale may fall to a tenth of its present value, and learned df - 2 likewise."""
        limits = super().lower_limits()
        if self.log_excess is not None:
            limits.append((self.log_excess, float(self.log_excess.detach()) + math.log(0.1)))
        return limits

    @torch.no_grad()
    def constant_log_prob(self, targets: Tensor, weights: Tensor | None = None) -> float | None:
        """log p(targets) at each output's best location, and the best scale and degrees of freedom if learned."""
        columns = columns_of(targets)
        counts = counts_of(columns, weights)
        own = float(self.df())
        tried = [own] if self.log_excess is None else [own, 2.1, 2.5, 3.0, 4.0, 6.0, 10.0, 30.0, 100.0]
        return max(float(self._constant(columns, counts, df)) for df in tried)

    def _constant(self, columns: Tensor, counts: Tensor, df: float) -> Tensor:  # (n, k), (n, 1) -> ()
        """log p(targets) at these degrees of freedom, maximised by EM: target weights are (df + 1) / (df + unit^2)."""
        location = columns.median(0).values
        scale = (
            self._scale_of(columns).clamp_min(1e-12) if self.learned else self.log_scale.detach().cpu().double().exp()
        )
        for _ in range(100):
            weights = counts * (df + 1.0) / (df + ((columns - location) / scale).square())
            location = (weights * columns).sum(0) / weights.sum(0)
            if self.learned:
                variance = (weights * (columns - location).square()).sum(0) / counts.sum()
                scale = variance.sqrt().clamp_min(1e-12)
        density: Tensor = counts * torch.distributions.StudentT(df, location, scale).log_prob(columns)
        return density.sum()

    def _scale_of(self, columns: Tensor) -> Tensor:
        """A scale from the middle half of the targets, robust to outliers; from all where that half is one number."""
        ordered, last = columns.sort(0).values, len(columns) - 1  # torch.quantile has a limit on the number of elements
        high, low = ordered[round(0.75 * last)], ordered[round(0.25 * last)]
        return torch.where(high > low, (high - low) / 1.349, columns.std(0, correction=0))


_ABOUT_DF = {
    True: "learned degrees of freedom stay above 2, where the standard deviation is finite",
    False: "with 1 or fewer there is no mean",
}


class LogNormal(LogLinkedScaled):
    """log y ~ N(log(unit) + output, log_std^2): positive, skewed targets, with unit exp(output) as their median.

    The mean, unit exp(output + log_std^2 / 2), is above it.

    Args:
        log_std: standard deviation of log y, about the relative error of y: one number, or one per output. None learns
            it with the rest of the bound, from the spread of log y: one per output for targets (B, k), else one.
        learned: learn a given log_std too, from its value.
        unit: of the targets, one number or one per output. 1 makes the output the mean of log y. None takes the mean of
            the targets when a fit starts, so that outputs are of order one in any currency.

    >>> LogNormal(1.0).log_prob(torch.zeros(1, 2, 1), torch.tensor([1.0, 2.0]))
    tensor([[-0.9189, -1.8523]])
    """

    def __init__(
        self, log_std: Positive | None = None, *, learned: bool | None = None, unit: Positive | None = 1.0
    ) -> None:
        super().__init__("log_std", log_std, learned, unit)

    def log_std(self) -> Tensor:  # () or (k,)
        return self.log_scale.exp()

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        log_scale = self._log_scale_of(single(outputs))
        location = aligned(self._log_size(outputs), targets)
        logs = _positive(targets, location).log()
        unit = (logs - location) * (-log_scale).exp()
        return summed(-0.5 * unit.square() - log_scale - _HALF_LOG_TWO_PI - logs)

    def _check_values(self, outputs: Tensor, targets: Tensor) -> None:
        del outputs
        _valid(targets)

    def log_moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:  # (S, B, ...), () or (k,)
        """Mean and standard deviation of log y."""
        return self._log_size(outputs), self._log_scale_of(outputs).exp()

    def closed_form(self, outputs: Tensor) -> ClosedForm | None:
        known = self.is_as_in(LogNormal, "log_prob", "moments", "sample", "log_moments")
        return LogNormals(*self.log_moments(outputs)) if known else None

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        variance = (2.0 * self._log_scale_of(outputs)).exp()
        mean = (self._log_size(outputs) + 0.5 * variance).exp()
        return mean, mean * variance.expm1().sqrt()

    def sample(self, outputs: Tensor, rng: torch.Generator | None = None) -> Tensor:  # (S, B, ...)
        """A target for each sample and example."""
        log_mean, log_std = self.log_moments(outputs)
        return (log_mean + log_std * normal(tuple(outputs.shape), rng, outputs.dtype, outputs.device)).exp()

    def constant_log_prob(self, targets: Tensor, weights: Tensor | None = None) -> float | None:
        """log p(targets) under a normal distribution of their logarithms, with the given log_std unless learned."""
        logs = columns_of(targets).log()
        counts = counts_of(logs, weights)
        variance = weighted_moments(logs, counts)[1].clamp_min(1e-24)
        own = variance if self.learned else (2.0 * self.log_scale.detach().cpu().double()).exp()
        each = -0.5 * variance / own - 0.5 * own.log() - _HALF_LOG_TWO_PI
        return float((counts * (each - logs)).sum())

    def _scale_of(self, columns: Tensor) -> Tensor:
        return columns.clamp_min(torch.finfo(torch.float64).tiny).log().std(0)


def _positive(targets: Tensor, like: Tensor) -> Tensor:
    """Targets above zero, in the dtype of the outputs."""
    return targets.to(like.dtype).where(_valid(targets), float("nan"))


def _valid(targets: Tensor) -> Tensor:  # (B, ...)
    valid = targets > 0
    remedy = "counts with zeros want livi.Poisson() or livi.NegativeBinomial(), others livi.Gaussian()"
    refuse(targets, valid, "numbers above 0", remedy)
    return valid
