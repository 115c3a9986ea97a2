"""Laplace's approximation at a MAP estimate, in three forms (Daxberger et al. 2021), with laplace-torch and curvlinops.

The posterior is a Gaussian around the MAP estimate. Its precision is the generalised Gauss-Newton matrix there plus the
prior's precision, at temperature 1. By default the prior's precision, and the noise if it is learned, maximise the
Laplace evidence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from livi import checks
from livi.draws import rademacher
from livi.family.gaussians import DenseBlock, KroneckerPrecision, LowRankPrecision
from livi.model.likelihoods import Likelihood
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.rivals.curvature import INSTALL, Model
from livi.rivals.map_start import as_posterior, best_map, checked
from livi.rivals.options import needed

LARGEST_BLOCK = 10_000  # most weights of a last layer; their covariance takes 400 MB in single precision
PROBES = 20  # random vectors for the trace of the curvature
TOLERANCE = 1e-4  # of the leading eigenvalues, relative; to the last digit takes a fifth more products, for no gain


@checked
def fit_laplace_last_layer(
    net: nn.Module, data: Any, likelihood: Likelihood, *, tune_prior: bool = True, **options: Any
) -> Posterior:
    """Laplace with a full covariance of the last nn.Linear's weights; all other weights stay at the MAP estimate.

    The outputs are linear in these weights, so that predictions with sampled weights are the linearised ones.

    Args:
        tune_prior: False keeps the problem's prior, which must be Normal, and the noise of the MAP fit.
        **options: as in `fit_ensemble`, for the MAP fit.

    Raises:
        ImportError: laplace-torch is not installed.
        TypeError, ValueError: laplace-torch does not support the likelihood or the network.
    """
    name = "fit_laplace_last_layer"
    laplace = needed(name, "laplace", INSTALL)
    model = Model.at(name, best_map(name, net, data, likelihood, options))
    layout = model.start.problem.layout
    if next(layout.module.children(), None) is None:
        raise ValueError(
            f"{name}: expected a network with layers inside, the last of which it takes, got a lone "
            f"{type(layout.module).__name__}; use fit_laplace_linearised."
        )
    found = laplace.FullLLLaplace(model.module, model.likelihood, sigma_noise=_float(model.noise))
    with layout.device:  # laplace-torch makes an identity matrix on the default device
        found.fit(model.loader)
    chosen = _last_layer(name, layout, found.model._last_layer_name)
    if tune_prior:
        precision, noise = model.tuned(model.evidence(torch.linalg.eigvalsh(found.H), chosen))
    else:
        precision, noise = model.prior_precision()[chosen], model.noise
    found.prior_precision, found.sigma_noise = precision, _float(noise)
    sampler = DenseBlock(layout, model.start.theta, chosen.start, found.posterior_scale)
    return _posterior(model, sampler, "laplace_last_layer", precision, model.num_outputs)


@checked
def fit_laplace_linearised(
    net: nn.Module, data: Any, likelihood: Likelihood, *, tune_prior: bool = True, **options: Any
) -> Posterior:
    """Laplace with Kronecker factors for every layer, and predictions of the network linearised at the MAP estimate.

    Weights must belong to nn.Linear or nn.Conv2d; leave others out with `exclude`. The outputs of a draw are
    f(x, MAP) + J(x) (theta - MAP), in `predict` and `functions` (Immer et al. 2021). `frozen` is refused, because the
    stored weights would be used in the network itself and not in its linearisation.

    Args:
        tune_prior, **options: as in `fit_laplace_last_layer`.
    """
    name = "fit_laplace_linearised"
    laplace = needed(name, "laplace", INSTALL)
    model = Model.at(name, best_map(name, net, data, likelihood, options))
    layout = model.start.problem.layout
    _check_layers(name, layout)
    found = laplace.KronLaplace(model.module, model.likelihood, sigma_noise=_float(model.noise))
    with layout.device:
        found.fit(model.loader)
    if tune_prior:
        products = [torch.outer(*values) if len(values) == 2 else values[0] for values in found.H.eigenvalues]
        precision, noise = model.tuned(model.evidence(torch.cat([product.flatten() for product in products])))
    else:
        precision, noise = model.per_tensor(model.prior_precision()), model.noise
    found.prior_precision, found.sigma_noise = precision, _float(noise)
    whole = found.posterior_precision
    sampler = KroneckerPrecision(
        layout,
        model.start.theta,
        whole.deltas.expand(len(layout.slots)),
        [list(vectors) for vectors in whole.eigenvectors],
        [list(values) for values in whole.eigenvalues],
        linearised=True,
    )
    return _posterior(model, sampler, "laplace_linearised", precision, model.num_outputs)


@checked
def fit_laplace_low_rank(
    net: nn.Module,
    data: Any,
    likelihood: Likelihood,
    *,
    rank: int = 50,
    rest: bool = True,
    tune_prior: bool = True,
    **options: Any,
) -> Posterior:
    """Laplace with the `rank` directions of largest curvature, the average curvature elsewhere, and sampled weights.

    The leading eigenvectors of the Gauss-Newton matrix come from Lanczos iteration with matrix-vector products
    (curvlinops); the trace of the rest is estimated with random probes. Among Gaussians that are isotropic in the
    remaining directions, the one with the average precision minimises KL(q || Laplace).

    Predictions run the network at the sampled weights. Where it is not linear over their spread, draws fit worse than
    the MAP estimate; `fit_laplace_linearised` avoids that (Immer et al. 2021).

    Args:
        rest: False sets the remaining curvature to zero, as laplace-torch's LowRankLaplace does. All other directions
            then have the prior's width, even those that the data determine.
        tune_prior, **options: as in `fit_laplace_last_layer`.
    """
    name = "fit_laplace_low_rank"
    checks.positive_int("rank", rank)
    model = Model.at(name, best_map(name, net, data, likelihood, options))
    layout = model.start.problem.layout
    vectors, values, average, products = _leading_curvature(name, model, rank)
    average = average if rest else torch.zeros_like(average)
    others = layout.num_params - len(values)
    if tune_prior:
        precision, noise = model.tuned(model.evidence(torch.cat([values, average.expand(others)])))
    else:
        precision, noise = model.prior_precision(), model.noise
    factor = 1.0 if noise is None else noise**-2.0
    everywhere = precision.expand(layout.num_params) + factor * average
    sampler = LowRankPrecision(
        layout, model.start.theta, everywhere, vectors, factor * (values - average).clamp_min(0.0)
    )
    # A product is J^T (H (J v)), which takes as long as two gradients.
    return _posterior(model, sampler, "laplace_low_rank", precision, 2 * products, rank=len(values))


class _Curvature(NamedTuple):
    """Of the Gauss-Newton matrix; in regression, for a noise of 1."""

    vectors: Tensor  # (m, k), leading eigenvectors
    values: Tensor  # (k,), their eigenvalues
    rest: Tensor  # (), mean of the other eigenvalues
    products: int  # of the matrix with vectors, that this took


def _leading_curvature(function: str, model: Model, rank: int) -> _Curvature:
    curvlinops = needed(function, "curvlinops", INSTALL)
    linalg = needed(function, "scipy.sparse.linalg", INSTALL)
    regression, theta = model.noise is not None, model.start.theta
    loss = nn.MSELoss(reduction="sum") if regression else nn.CrossEntropyLoss(reduction="sum")
    parameters = [model.module.get_parameter(slot.name) for slot in model.start.problem.layout.slots]
    operator = curvlinops.GGNLinearOperator(
        model.module, loss, parameters, list(model.loader), check_deterministic=False
    ).to_scipy()
    size = operator.shape[0]
    scale = 0.5 if regression else 1.0  # the squared error is twice -log p at a noise of 1

    def tensor(array: Any) -> Tensor:
        return scale * torch.as_tensor(array.copy(), dtype=theta.dtype, device=theta.device)

    if rank >= size:
        dense = tensor(operator @ np.eye(size, dtype=operator.dtype))
        values, vectors = torch.linalg.eigh(0.5 * (dense + dense.T))
        return _Curvature(vectors, values.clamp_min(0.0), values.new_zeros(()), size)
    products = PROBES

    def product(vector: Any) -> Any:
        nonlocal products
        products += 1
        return operator @ vector

    counted = linalg.LinearOperator(operator.shape, matvec=product, dtype=operator.dtype)
    found, axes = linalg.eigsh(counted, k=rank, v0=np.ones(size, operator.dtype), tol=TOLERANCE)
    signs = rademacher((size, PROBES), torch.Generator().manual_seed(0), torch.float64, torch.device("cpu")).numpy()
    probes = (signs - axes @ (axes.T @ signs)).astype(axes.dtype)  # orthogonal to the eigenvectors
    rest = (probes * (operator @ probes)).sum(0).mean() / (size - rank)
    return _Curvature(tensor(axes) / scale, tensor(found).clamp_min(0.0), tensor(rest).clamp_min(0.0), products)


def _last_layer(function: str, layout: Layout, layer: str) -> slice:
    """The slice of theta with the weights of this layer."""
    names = {f"{layer}.{name}".lstrip(".") for name, _ in layout.module.get_submodule(layer).named_parameters()}
    slots = [slot for slot in layout.slots if names & set(slot.names)]
    size = sum(slot.numel for slot in slots)
    if len(slots) != len(names) or slots[-1].stop - slots[0].start != size:
        raise ValueError(f"{function}: expected all weights of {layer!r} to be stochastic, got others; include them.")
    if size > LARGEST_BLOCK:
        raise ValueError(
            f"{function}: expected a last layer of at most {LARGEST_BLOCK:,} weights, got {size:,}; use "
            "fit_laplace_linearised or fit_laplace_low_rank."
        )
    return slice(slots[0].start, slots[-1].stop)


def _check_layers(function: str, layout: Layout) -> None:
    owners = {slot.name: layout.module.get_submodule(slot.name.rpartition(".")[0]) for slot in layout.slots}
    others = [name for name, owner in owners.items() if not isinstance(owner, (nn.Linear, nn.Conv2d))]
    if others:
        raise ValueError(
            f"{function}: expected weights of nn.Linear and nn.Conv2d, got {others[0]!r} of "
            f"{type(owners[others[0]]).__name__}; leave them out: exclude={others}."
        )


def _float(noise: Tensor | None) -> float:
    return 1.0 if noise is None else float(noise)


def _posterior(model: Model, sampler: Any, method: str, precision: Tensor, passes: int, **facts: Any) -> Posterior:
    """The posterior; `passes` is the number of gradients on all data that the curvature took."""
    return as_posterior(
        model.start.problem,
        model.start.recipe,
        sampler.requires_grad_(False),
        method,
        gradients=passes * model.start.problem.data.steps_per_epoch,
        buffers=model.buffers,
        prior_precision=float(precision.mean()),
        noise=model.observed_noise,
        **facts,
    )
