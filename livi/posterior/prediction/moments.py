"""Mean and standard deviations of a prediction: those of a mixture, from those of its components."""

from __future__ import annotations

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
