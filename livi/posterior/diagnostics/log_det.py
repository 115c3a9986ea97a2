"""The log-determinant of the entropy: exact against estimated, at the same latents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from livi.family.entropy import EntropyEstimate, EntropyEstimator, Exact, Lanczos, SmallestSingularValue
from livi.family.entropy.estimate import gaussian_constants
from livi.family.implicit import ImplicitPosterior
from livi.posterior.diagnostics.subject import Effort, generators_of

DENSE_ENTRIES = 2**26
"""Numbers in all Jacobians of one call up to which they are formed whole (half a GiB in float64)."""


@dataclass(frozen=True)
class Method:
    """One estimator's mean entropy over the compared latents, and what it says about itself."""

    name: str
    nats: float
    difference: float | None  # from the exact one, nats
    relative: float | None  # that difference over the exact log-determinant
    standard_error: float | None  # nats, of the mean, from the method's own probes
    converged: float  # share of latents
    residual: float | None  # largest
    truncation: float | None  # largest, nats
    products: int  # Jacobian and adjoint products for each latent and probe
    remedy: str


@dataclass(frozen=True)
class LogDetCheck:
    """Entropy by several estimators at the same latents of every component.

    The first method is the exact one where latent_dim allows; otherwise `reference` says why it is missing.
    """

    methods: tuple[Method, ...]
    num_latents: int  # a component
    log_det: float | None  # 1/2 log det(I + A^T A), exact, nats: what the estimators differ in
    reference: str


def exact_for(posterior: ImplicitPosterior, effort: Effort, num_latents: int) -> Exact | None:
    """The exact estimator for so many latents, forming Jacobians only where they fit; None beyond max_exact_dim."""
    latent_dim = largest_latent_dim(posterior)
    if latent_dim > effort.max_exact_dim:
        return None
    whole = num_latents * latent_dim * posterior.num_params <= DENSE_ENTRIES
    return Exact() if whole else Exact(chunk_size=64)


def entropy_estimator(posterior: ImplicitPosterior, effort: Effort) -> EntropyEstimator:
    """The estimator for the bound: exact if the Jacobian fits into memory, else matrix-free, one probe a latent."""
    exact = exact_for(posterior, effort, 1)
    whole = exact is not None and exact.chunk_size is None
    return exact if exact is not None and whole else Lanczos(num_probes=1)


def default_estimators() -> tuple[EntropyEstimator, ...]:
    return Lanczos(), SmallestSingularValue()


def largest_latent_dim(posterior: ImplicitPosterior) -> int:
    return max(generator.latent_dim for generator, _ in generators_of(posterior))


@torch.no_grad()
def check_log_det(
    posterior: ImplicitPosterior,
    effort: Effort,
    estimators: Sequence[EntropyEstimator],
    rng: torch.Generator | None,
) -> LogDetCheck:
    """Cost: for each latent d Jacobian products for the exact value, and what each estimator's docstring says."""
    latents = posterior.draw(effort.num_latents * posterior.num_components, rng).latents
    stds = [std for _, std in generators_of(posterior)]
    constants = torch.stack([gaussian_constants(std, posterior.num_params).double() for std in stds]).mean()
    exact, reference = exact_for(posterior, effort, effort.num_latents), ""
    methods: list[Method] = []
    log_det = None
    if exact is None:
        reference = f"latent_dim {largest_latent_dim(posterior):,} is above max_exact_dim={effort.max_exact_dim:,}"
    else:
        try:
            estimates = posterior.entropy_at(latents, exact, rng)
        except ValueError as error:  # a Gram matrix that is singular to working precision
            reference = str(error)
        else:
            log_det = (_mean(estimates) - constants).item()
            methods.append(_method("Exact", estimates, constants, log_det))
    for estimator in estimators:
        estimates = posterior.entropy_at(latents, estimator, rng)
        methods.append(_method(type(estimator).__name__, estimates, constants, log_det))
    return LogDetCheck(tuple(methods), effort.num_latents, log_det, reference)


def _method(name: str, estimates: Sequence[EntropyEstimate], constants: Tensor, log_det: float | None) -> Method:
    nats = _mean(estimates)
    reports = [estimate.report for estimate in estimates]
    difference = None if log_det is None else (nats - constants).item() - log_det
    errors = [report.standard_error for report in reports if report.standard_error is not None]
    return Method(
        name=name,
        nats=nats.item(),
        difference=difference,
        relative=difference / log_det if difference is not None and log_det else None,
        standard_error=_error_of_mean(errors, len(reports)),
        converged=torch.cat([report.converged for report in reports]).double().mean().item(),
        residual=_largest([report.residual for report in reports]),
        truncation=_largest([report.truncation for report in reports]),
        products=max(report.products for report in reports),
        remedy=next((report.remedy for report in reports if report.remedy), ""),
    )


def _mean(estimates: Sequence[EntropyEstimate]) -> Tensor:
    return torch.stack([estimate.nats.mean().double() for estimate in estimates]).mean()


def _error_of_mean(errors: Sequence[Tensor], components: int) -> float | None:
    """Standard error of the mean over components of means over latents, whose errors are independent."""
    if len(errors) < components:
        return None
    variances = torch.stack([error.double().square().sum() / len(error) ** 2 for error in errors])
    return (variances.sum().sqrt() / components).item()


def _largest(values: Sequence[Tensor | None]) -> float | None:
    found = [value.max().item() for value in values if value is not None]
    return max(found, default=None)
