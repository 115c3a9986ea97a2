"""A fitted density: draws, log q, the bound on the normaliser, a file, and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from livi import checks
from livi.draws import normal
from livi.family.entropy import DensityEstimate
from livi.family.family import Family, WeightSampler
from livi.family.generators import Generator
from livi.family.implicit import ImplicitPosterior
from livi.model.density import LogProb, NoData, Point
from livi.posterior import storage
from livi.posterior.diagnostics.estimate import Estimate
from livi.posterior.importance_weights import ImportanceWeights, Worth

STARTS = 8  # latents from which the search for those behind a point begins


@dataclass(frozen=True)
class DensityDiagnosis:
    """How far q is from p, judged by importance weights p / q of q's own draws, with log q estimated. `print` it.

    Args:
        bound: L', the bound by the linearised entropy.
        elbo: E_q [log p - log q], with log q by importance sampling. A bound far above it is none: the generator folds.
        log_normaliser: log of the mean weight, an estimate of log Z.
        divergence: KL(q || p), as far as q's draws can see: log_normaliser minus elbo.
        effective: effective share of the draws as an importance sample of p.
        pareto_shape: of the largest weights' tail; beyond `largest_shape` nothing here that counts on weights can be
            relied on, but where weights are all but equal.
        samples: draws of q that were weighted.
    """

    bound: Estimate
    elbo: Estimate
    log_normaliser: Estimate
    divergence: Estimate
    effective: float
    pareto_shape: float
    samples: int

    @property
    def worth(self) -> Worth:
        return Worth(self.samples, self.effective * self.samples, self.pareto_shape)

    @property
    def largest_shape(self) -> float:
        """The largest Pareto shape with which so many weights have a usable mean, 0.7 or less."""
        return self.worth.largest_shape

    @property
    def reliable(self) -> bool:
        """The weights have a usable mean, and more than a handful of draws have a say in it."""
        return self.worth.reliable

    def verdict(self) -> str:
        if not math.isfinite(self.elbo.value):
            return "Some draws of q are impossible under p, or log_prob has no value there: nothing holds of such a q."
        if math.isnan(self.pareto_shape):
            return "Too few draws to tell how q and p go together; raise num_samples."
        gap = self.bound.value - self.elbo.value
        noise = 3.0 * math.hypot(self.bound.standard_error, self.elbo.standard_error)
        if gap > 0.3 + noise:
            return (
                f"The bound lies {gap:.2g} nats above the ELBO: the generator folds, or has more latents than there "
                "are dimensions. Take latent_dim = dim, a narrower start, or more steps."
            )
        if not self.reliable:
            return (
                "q misses a part of p that its own draws hint at: weights p/q have no usable mean, for "
                f"{self.worth.trouble()}. Take more steps, a wider start, or components."
            )
        return (
            f"q is close to p as far as its draws can see: about {self.divergence} nats from it. A mode that no draw "
            "falls into would not be noticed."
        )

    def __str__(self) -> str:
        rows = {
            "bound": str(self.bound),
            "ELBO": f"{self.elbo}, by importance sampling",
            "log normaliser": f"{self.log_normaliser}, by importance sampling",
            "KL(q || p)": str(self.divergence),
            "effective share": f"{self.effective:.0%}",
            "Pareto shape": f"{self.pareto_shape:.2f}, of at most {self.largest_shape:.2f}",
        }
        width = max(map(len, rows))
        return "\n".join([*(f"{name:<{width}}  {text}" for name, text in rows.items()), self.verdict()])


class Density:
    """What `livi.fit_density` returns: q, which can be drawn from.

    Args:
        target: log_prob, without its normaliser; None where it was loaded without.
        bound: on the log of the normaliser.
        history: one dict per logged training step: the bound, its terms, rates.
        plan: the choices behind the fit.
    """

    likelihood, prior, buffers, calibration = NoData(), None, dict[str, Tensor](), None  # as storage asks

    def __init__(
        self,
        sampler: WeightSampler,
        target: LogProb | None = None,
        *,
        bound: Estimate,
        history: Sequence[Mapping[str, float]] = (),
        plan: Mapping[str, Any] | None = None,
    ) -> None:
        self.sampler, self.target, self.bound = sampler, target, bound
        self.history = [dict(row) for row in history]
        self.plan = dict(plan or {})

    @property
    def dim(self) -> int:
        return self.sampler.layout.num_params

    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (S, dim)
        """Points from q."""
        with torch.no_grad():
            return self.sampler.sample(num_samples, rng)

    def log_prob(
        self, points: Tensor, *, num_importance: int = 256, rng: torch.Generator | None = None
    ) -> DensityEstimate:
        """log q of these points (S, dim), by importance sampling over the latents behind each, with standard errors.

        Exact up to that for a generator that is injective or affine. Of a point that several far latents explain, those
        count that a search from a few random places finds.

        Raises:
            TypeError: the family has no generator.
        """
        sampler, count = self._implicit(), len(checks.matrix("points", points, self.dim))
        first = sampler.generators[0]
        assert isinstance(first, Generator)
        latents = normal((STARTS, count, first.latent_dim), rng, points.dtype, points.device)
        latents[0] = 0.0
        return sampler.log_prob(points, starts=latents, num_importance=num_importance, rng=rng)

    def diagnose(
        self, num_samples: int = 512, *, num_importance: int = 256, rng: torch.Generator | None = None
    ) -> DensityDiagnosis:
        """How far q is from p, by weights p / q of its own draws.

        Raises:
            TypeError: the family has no generator.
            ValueError: the density was loaded without its log_prob.
        """
        sampler = self._implicit()
        if self.target is None:
            raise ValueError("log_prob: expected the target to compare with, got none; pass it to livi.load_density.")
        components = sampler.num_components
        count = -(-checks.positive_int("num_samples", num_samples) // components) * components
        with torch.no_grad():
            draw = sampler.draw(count, rng)
            own = torch.cat(draw.latents)
            others = normal((STARTS - 1, *own.shape), rng, own.dtype, own.device)
            log_q = sampler.log_prob(
                draw.theta, starts=torch.cat([own[None], others]), num_importance=num_importance, rng=rng
            ).log_prob
            weights = ImportanceWeights((self.target(draw.theta) - log_q).double())
        return DensityDiagnosis(
            bound=self.bound,
            elbo=weights.bound,
            log_normaliser=weights.log_evidence,
            divergence=weights.divergence,
            effective=weights.worth.effective / count,
            pareto_shape=weights.worth.pareto_shape,
            samples=count,
        )

    def save(self, path: str | Path) -> None:
        """Write q to one file, atomically. The target is not in it: pass it again to `livi.load_density`."""
        extra = {
            "dim": self.dim,
            "dtype": str(self.sampler.layout.dtype).removeprefix("torch."),
            "bound": (self.bound.value, self.bound.standard_error),
        }
        storage.save_posterior(path, self, extra=extra)

    def _implicit(self) -> ImplicitPosterior:
        if not isinstance(self.sampler, ImplicitPosterior):
            raise TypeError(
                f"log_prob: expected a family with a generator, whose density can be estimated, got "
                f"{type(self.sampler).__name__}; fit without family=."
            )
        return self.sampler

    def __repr__(self) -> str:
        kind = self.sampler.title() if isinstance(self.sampler, Family) else type(self.sampler).__name__
        return f"Density({kind}, {self.dim} dimensions, bound {self.bound})"


def load_density(
    path: str | Path,
    log_prob: LogProb | None = None,
    *,
    device: torch.device | str | None = None,
    classes: Sequence[type] = (),
) -> Density:
    """A density that was saved.

    Args:
        log_prob: the target, which only `diagnose` needs.
        classes: your own families, generators and noises.

    Raises:
        StorageError: the file holds no density, or cannot be read.
    """

    def point(extra: dict[str, Any]) -> Point:
        if "dim" not in extra:
            raise storage.StorageError("expected a density, got a posterior of a network; livi.load reads it.")
        return Point(extra["dim"]).to(dtype=getattr(torch, extra["dtype"]))

    parts = storage.load_parts(path, point, device, classes)
    value, error = parts.extra["bound"]
    return Density(parts.sampler, log_prob, bound=Estimate(value, error), history=parts.history, plan=parts.plan)
