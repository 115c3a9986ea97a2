"""`diagnose`: a fitted posterior and data in, measurements and a verdict out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from livi import checks
from livi.family.entropy import EntropyEstimator, Lanczos
from livi.family.implicit import ImplicitPosterior
from livi.model.data import as_tensor, as_tensors
from livi.model.data.conversion import detached
from livi.network import Layout, Strategy
from livi.posterior.diagnostics.bound import check_bound
from livi.posterior.diagnostics.correlation import MIN_SAMPLES, CorrelationCheck, check_correlation, too_few
from livi.posterior.diagnostics.diagnosis import Diagnosis
from livi.posterior.diagnostics.entropy import DensityCheck, check_densities
from livi.posterior.diagnostics.estimate import Skipped
from livi.posterior.diagnostics.examination import Examination, Facts
from livi.posterior.diagnostics.layers import Layers
from livi.posterior.diagnostics.log_det import LogDetCheck, check_log_det, default_estimators, entropy_estimator
from livi.posterior.diagnostics.reference import check_references
from livi.posterior.diagnostics.shape import check_shape
from livi.posterior.diagnostics.spread import check_rank, check_spread
from livi.posterior.diagnostics.subject import Effort, check_data, check_subject, fit_estimator, num_fitted
from livi.posterior.diagnostics.verdict import verdict
from livi.posterior.fitted import Fitted


@torch.no_grad()
def diagnose(
    posterior: Fitted,
    inputs: Any,
    targets: Any,  # (B, ...)
    *,
    num_data: int | None = None,
    num_samples: int = 256,
    rng: torch.Generator | None = None,
    weights: Sequence[int] | None = None,
    estimators: Sequence[EntropyEstimator] | None = None,
    effort: Effort | None = None,
    strategy: Strategy | None = None,
) -> Diagnosis:
    """Checks of a posterior itself, as against its predictions. `print(diagnose(...))` shows them with a verdict.

    - the bound's terms, with standard errors, beside what it should exceed: the bound of the prior itself, and what a
      mean-field Gaussian reaches in a few hundred steps;
    - the entropy's log-determinant, exact against estimated;
    - the linearised entropy against -E log q by importance sampling: whether L' lies above the ELBO;
    - spread of each layer, effective rank, correlations within and across layers;
    - modes and tails of single weights.

    A sampler without generators, such as an ensemble or a Markov chain, gets what samples alone can tell. Draws are
    taken to be independent: those of a Markov chain should be thinned, or every standard error is too small.

    Args:
        posterior: what `livi.fit` or a baseline returns; needs `sampler`, `likelihood`, `prior` and `buffers`.
        inputs, targets: the training data as tensors, arrays or lists, or a batch of it (then with num_data). Of others
            a finding says what the numbers then mean.
        num_data: N of the whole data set; as many as there are targets where not given.
        num_samples: weight vectors, rounded up to fill equal batches of all mixture components.
        weights: places in theta whose densities to examine; where not given, those that look most bimodal.
        estimators: of the entropy, to compare with the exact one; Lanczos() and SmallestSingularValue() if not given.
        effort: how much work the dearer checks may do, and up to which size.
        strategy: how to evaluate many weight vectors; see `livi.apply_many`.

    Raises:
        TypeError, ValueError: arguments of the wrong kind or size; draws with NaN or infinite weights.

    Cost: num_samples forward passes on the inputs, effort.num_prior more, and effort.mean_field_steps short steps of
    optimisation (0 leaves them out); for the rest see the functions in this folder. Seconds for a network
    of a hundred weights; for a million, set `effort` by the time there is. Examples and weight vectors are taken in
    parts, so that activations stay below a GiB.

    >>> from types import SimpleNamespace
    >>> from torch import nn
    >>> from livi.family.generators import Affine
    >>> from livi.model.likelihoods import Gaussian
    >>> from livi.model.priors import Normal
    >>> layout = Layout(nn.Linear(2, 1))
    >>> sampler = ImplicitPosterior(layout, Affine(3, 3))
    >>> posterior = SimpleNamespace(sampler=sampler, likelihood=Gaussian(1.0), prior=Normal(), buffers={})
    >>> diagnosis = diagnose(posterior, torch.ones(5, 2), torch.zeros(5), rng=torch.Generator().manual_seed(0))
    >>> diagnosis.facts.num_params, diagnosis.shape.multimodal
    (3, ())
    """
    check_subject(posterior)
    layout = posterior.sampler.layout
    inputs, targets = detached((inputs, targets))
    inputs, targets = as_tensors(inputs, layout.device, layout.dtype), as_tensor(targets, layout.device, layout.dtype)
    whole = check_data(inputs, targets, num_data)
    checks.positive_int("num_samples", num_samples)
    checks.rng("rng", rng)
    effort = Effort() if effort is None else effort
    if not isinstance(effort, Effort):
        raise TypeError(f"effort: expected a livi.posterior.diagnostics.Effort, got {type(effort).__name__}.")
    sampler = posterior.sampler
    layers = Layers(layout, effort.max_weights, _check_weights(weights, layout))
    implicit = sampler if isinstance(sampler, ImplicitPosterior) else None
    estimator = Lanczos() if implicit is None else entropy_estimator(implicit, effort)
    bound, samples = check_bound(
        posterior,
        inputs,
        targets,
        layers,
        num_data=whole,
        num_samples=num_samples,
        estimator=estimator,
        strategy=strategy,
        rng=rng,
    )
    distinct = _distinct(samples)
    no_generator = Skipped(f"not applicable: {type(sampler).__name__} has no generator")
    log_det: LogDetCheck | Skipped = no_generator
    density: DensityCheck | Skipped = no_generator
    if implicit is not None:
        log_det = check_log_det(implicit, effort, default_estimators() if estimators is None else estimators, rng)
        density = check_densities(implicit, effort, rng)
    facts = Facts(
        num_params=layout.num_params,
        num_weights=layers.num_kept,
        num_layers=len(layers.names),
        num_components=1 if implicit is None else implicit.num_components,
        num_data=whole,
        num_examples=len(targets),
        num_samples=len(samples),
        num_distinct=len(distinct),
        fit_estimator=fit_estimator(posterior),
        num_fitted=num_fitted(posterior),
    )
    found = Examination(
        facts=facts,
        bound=bound,
        log_det=log_det,
        density=density,
        spread=check_spread(distinct, layers, posterior.prior),
        rank=check_rank(distinct, layers, sampler, effort, rng),
        correlation=_correlation(distinct, layers, effort),
        shape=check_shape(distinct, layers, weights, effort.num_shapes),
        references=check_references(  # last, so that other checks have the same draws with and without
            posterior, inputs, targets, num_data=whole, effort=effort, strategy=strategy, rng=rng
        ),
    )
    return Diagnosis(**vars(found), findings=verdict(found))


def _correlation(samples: Tensor, layers: Layers, effort: Effort) -> CorrelationCheck | Skipped:
    if len(samples) < MIN_SAMPLES:
        return too_few(samples)
    return check_correlation(samples, layers, effort.max_matrix)


def _distinct(samples: Tensor) -> Tensor:  # (S, p) -> (n, p)
    """Each weight vector once: draws with replacement from a fixed set count no more than the set."""
    first: dict[bytes, int] = {}
    for row, values in enumerate(samples):
        first.setdefault(values.view(torch.uint8).numpy().tobytes(), row)
    return samples[list(first.values())]


def _check_weights(weights: Sequence[int] | None, layout: Layout) -> Sequence[int]:
    for index in weights or ():
        if not isinstance(index, int) or not 0 <= index < layout.num_params:
            raise ValueError(
                f"weights: expected places in theta, 0 to {layout.num_params - 1}, got {index!r}; "
                "a layout's slots say where each parameter starts."
            )
    return weights or ()
