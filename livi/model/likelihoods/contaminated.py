"""Numbers of which a few are far off: Gaussian noise given by the network, wider for one row in so many."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from livi import checks
from livi.model.likelihoods.base import aligned, single, summed
from livi.model.likelihoods.forms import ClosedForm, Normals
from livi.model.likelihoods.gaussian import HALF_LOG_2_PI, HeteroscedasticGaussian
from livi.model.likelihoods.located import Numbers


class ContaminatedGaussian(HeteroscedasticGaussian):
    """y ~ (1 - share) N(mean(x), s(x)^2) + share N(mean(x), (width s(x))^2): any row may be an outlier.

    The contaminated normal of Tukey (1960), with outputs as of `HeteroscedasticGaussian`, whose std is s here. A target
    that Gaussian noise all but rules out costs about -log(share / width) nats, and of half its squared distance only
    1 / width^2; any other one costs at most -log(1 - share) more than without. Rows far off hardly move the fit; nor do
    rows that only look so before it has learned them.

    Args:
        share: of the rows that are taken to be outliers, more than 0 and less than 0.5.
        width: how many times as wide their noise is, more than 1.
        floor, learned, centre, unit: as of `HeteroscedasticGaussian`.

    >>> outputs, targets = torch.zeros(1, 2, 2), torch.tensor([[0.0], [20.0]])
    >>> HeteroscedasticGaussian().log_prob(outputs, targets), ContaminatedGaussian().log_prob(outputs, targets)
    (tensor([[  -0.5667, -405.0845]]), tensor([[ -0.5676, -13.8223]]))
    """

    def __init__(
        self,
        share: float = 0.001,
        width: float = 10.0,
        *,
        floor: float | None = None,
        learned: bool = False,
        centre: Numbers = 0.0,
        unit: Numbers = 1.0,
    ) -> None:
        super().__init__(floor, learned=learned, centre=centre, unit=unit)
        self.share, self.width = checks.positive_float("share", share), checks.positive_float("width", width)
        if self.share >= 0.5:
            raise ValueError(f"share: expected less than 0.5, got {share!r}; outliers are the fewer rows.")
        if self.width <= 1.0:
            raise ValueError(f"width: expected more than 1, got {width!r}; outliers have the wider noise.")

    @classmethod
    def like(cls, noise: HeteroscedasticGaussian, share: float = 0.001, width: float = 10.0) -> ContaminatedGaussian:
        """A contaminated likelihood with the same mean and scale as this one, from the same outputs."""
        units: dict[str, Numbers] = {} if noise.centre is None else {"centre": noise.centre, "unit": noise.unit()}
        other = cls(share, width, floor=noise.floor, learned=noise.log_level is not None, **units)
        other.load_state_dict(noise.state_dict())
        return other

    def inflation(self) -> float:
        """The standard deviation of a target, in units of s."""
        return math.sqrt(1.0 + self.share * (self.width**2 - 1.0))

    def parts(self) -> tuple[tuple[float, float], ...]:
        """Share and standard deviation of each normal part of the noise, in standard deviations of the whole."""
        whole = self.inflation()
        return (1.0 - self.share, 1.0 / whole), (self.share, self.width / whole)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, scale = super().moments(outputs)
        return mean, self.inflation() * scale

    def closed_form(self, outputs: Tensor) -> ClosedForm | None:
        known = self.is_as_in(ContaminatedGaussian, "log_prob", "moments", "sample", "parts", "inflation")
        return Normals(*self.moments(outputs), self.parts()) if known else None

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        mean, scale = (aligned(part, targets) for part in super().moments(single(outputs)))
        usual, outlier = self._logs((targets - mean) / scale)
        return summed(torch.logaddexp(usual, outlier) - scale.log())

    def log_prob_with_gradient(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """As in `HeteroscedasticGaussian`, with each residual times its expected precision.

        That is w = 1 - p + p / width^2 for a probability p of being an outlier: w r / s in the mean and
        (w r^2 - 1) / s in the scale.
        """
        if type(self) is not ContaminatedGaussian:
            return super().log_prob_with_gradient(outputs, targets)
        residual, inverse = self._residuals(outputs, targets)
        usual, outlier = self._logs(residual)
        density = torch.logaddexp(usual, outlier).add_(inverse.log())
        weight = 1.0 - (1.0 - self.width**-2) * (outlier - usual).sigmoid_()
        return summed(density), self._gradient(outputs, residual, inverse, weight)

    def _logs(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Log densities of a residual in units of s, times the shares, as a usual row's and as an outlier's."""
        square = residual.square()
        usual = math.log1p(-self.share) - HALF_LOG_2_PI - 0.5 * square
        return usual, math.log(self.share / self.width) - HALF_LOG_2_PI - (0.5 / self.width**2) * square
