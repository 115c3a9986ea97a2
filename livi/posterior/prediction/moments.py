"""Mean and standard deviations of a mixture from those of its components, shared by predictions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from livi import checks
from livi.posterior.prediction.mixture import Numbers, interpolated, probabilities, probability


class Moments:
    """The uniform mixture of S distributions, one a weight sample, whose `_moments` are known."""

    @property
    def mean(self) -> Tensor:  # (B, ...)
        return self._moments()[0].mean(0)

    @property
    def epistemic_std(self) -> Tensor:  # (B, ...)
        """Spread of the means over weight samples: what more data would take away."""
        return self._moments()[0].std(0, correction=0)

    @property
    def aleatoric_std(self) -> Tensor:  # (B, ...)
        """Root mean square of the samples' noise: what would remain."""
        return self._moments()[1].square().mean(0).sqrt()

    @property
    def total_std(self) -> Tensor:  # (B, ...)
        """sqrt(epistemic^2 + aleatoric^2), by the law of total variance."""
        means, stds = self._moments()
        return (means.var(0, correction=0) + stds.square().mean(0)).sqrt()

    @property
    def std(self) -> Tensor:  # (B, ...)
        """`total_std`."""
        return self.total_std

    def monte_carlo_error(self, q: Sequence[float] = ()) -> Tensor:  # (B, ...)
        """The error from using only S weight samples: the largest standard error, as a share of the total std.

        Of the mean it is epistemic_std / sqrt(S). Of the quantiles at `q`, where the samples' distributions are known,
        it is std_s F_s(y) / (f(y) sqrt(S)), by the delta method; see `_quantile_errors` for what is approximated. 0
        where the prediction has no spread; for one sample it is unknown, and infinite.
        """
        means, _ = self._moments()
        if len(means) < 2:
            return torch.full_like(means[0], math.inf)
        errors = [means.std(0), *self._quantile_errors(q)]
        total = self.total_std
        shares = torch.stack(errors).amax(0) / (total * math.sqrt(len(means)))
        return torch.where(total > 0, shares, torch.zeros_like(total))

    def _quantile_errors(self, q: Sequence[float]) -> list[Tensor]:  # noqa: ARG002  # (B, ...) each
        """Standard errors of these quantiles, times sqrt(S); None where they are unknown."""
        return []

    def function_quantile(self, q: Numbers) -> Tensor:  # (B, ...), or (Q, B, ...) for several
        """Quantiles of the S means alone, without observation noise: epistemic bands. Interpolates linearly."""
        return interpolated(self._moments()[0].sort(0).values, probabilities(q))

    def _moments(self) -> tuple[Tensor, Tensor]:  # (S, B, ...), (S, B, ...)
        """Means and standard deviations of the components."""
        raise NotImplementedError


class Quantiles:
    """Intervals of whatever has quantiles."""

    def quantile(self, q: Numbers) -> Tensor:  # (B, ...), or (Q, B, ...) for several
        raise NotImplementedError

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:  # (B, ...), (B, ...)
        """The central interval that holds `level` of the prediction: its lower and upper end."""
        tail = 0.5 * (1.0 - probability("level", level))
        lower, upper = self.quantile([tail, 1.0 - tail])
        return lower, upper


def random_rows(num_samples: int, count: int, rng: torch.Generator | None, device: torch.device) -> Tensor:
    """So many of `count` weight samples, with replacement."""
    checks.positive_int("num_samples", num_samples)
    checks.rng("rng", rng)
    source = device if rng is None else rng.device
    return torch.randint(count, (num_samples,), generator=rng, device=source).to(device)
