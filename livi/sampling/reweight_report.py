"""How far a posterior was from the one that its draws were reweighted to."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from livi.posterior.diagnostics.estimate import Estimate
from livi.posterior.importance_weights import Worth
from livi.posterior.posterior import Posterior


@dataclass(frozen=True)
class ReweightReport:
    """What importance weights p(D, theta) / q(theta) of draws of q say; `print` it.

    Attributes:
        samples: draws of q that were weighted.
        draws: that were kept, in shares of their weights.
        distinct: of how many different draws of q these are.
        effective: how many equally weighted draws the smoothed weights are worth.
        pareto_shape: of the largest weights; beyond `largest_shape` nothing here can be relied on, but
            where weights are all but equal.
        bound: mean log weight and its standard error, the ELBO with log q itself.
        log_evidence: log of the mean weight and its standard error, by the jackknife: an estimate of log p(D), scales
            and noise being what they are. It is of the modes that q has draws in, and errs low: see
            docs/benchmarks/reweight.md.
        shares: of the components, by their draws' weights; equal ones say that each is worth as much.
        density_error: standard error of log q of one draw, median.
    """

    samples: int
    draws: int
    distinct: int
    effective: float
    pareto_shape: float
    bound: tuple[float, float]
    log_evidence: tuple[float, float]
    shares: tuple[float, ...]
    density_error: float
    seconds: float

    @classmethod
    def of(cls, posterior: Posterior) -> ReweightReport:
        """The report on a reweighted posterior, which its file keeps too."""
        if "reweight" not in posterior.plan:
            raise ValueError("posterior: expected one that livi.reweight returned, got one that is not reweighted.")
        known = {name: _read(value) for name, value in posterior.plan["reweight"].items()}
        return cls(**known)

    def facts(self) -> dict[str, Any]:
        """The report as JSON-able values, None for NaN; `of` reads them."""
        return {name: _written(value) for name, value in asdict(self).items()}

    @property
    def worth(self) -> Worth:
        return Worth(self.samples, self.effective, self.pareto_shape)

    @property
    def largest_shape(self) -> float:
        """The largest Pareto shape with which so many weights have a usable mean, 0.7 or less."""
        return self.worth.largest_shape

    @property
    def reliable(self) -> bool:
        """The weights have a usable mean, and more than a handful of draws have a say in it."""
        return self.worth.reliable

    def trouble(self) -> str:
        """What is wrong with the weights, in words; nothing where they are reliable."""
        return self.worth.trouble()

    def __str__(self) -> str:
        lines = [
            f"{self.draws} draws, {self.distinct} of them distinct, of {self.samples:,} in shares of their weights, in "
            f"{self.seconds:.1f} s",
            f"  effective     {self.effective:.0f} draws of {self.samples:,}",
            f"  Pareto shape  {self.pareto_shape:.2f}, of at most {self.largest_shape:.2f}",
            f"  ELBO          {Estimate(*self.bound)} nats",
            f"  log evidence  {Estimate(*self.log_evidence)} nats, of the modes that draws are in",
            f"  log q         good to {self.density_error:.2g} nats, at half of the draws",
        ]
        if len(self.shares) > 1:
            worth = 1.0 / sum(share**2 for share in self.shares)
            lines.append(
                f"  components    {len(self.shares)}, worth {worth:.1f} equal ones; the largest share "
                f"{max(self.shares):.2f}"
            )
        trouble = self.trouble()
        verdict = f"weights are not reliable: {trouble}" if trouble else "reliable, as far as draws of q can see"
        return "\n".join([*lines, f"  verdict       {verdict}"])


def _written(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_written(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _read(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_read(part) for part in value)
    return math.nan if value is None else value
