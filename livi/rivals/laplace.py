"""Laplace's approximation at a MAP estimate, in three forms (Daxberger et al. 2021), on laplace-torch and curvlinops.

A Gaussian with the MAP estimate as its mean and the inverse of the curvature there, the generalised Gauss-Newton matrix
and the prior's precision, as its covariance; temperature 1. The prior's precision is the one that maximises the Laplace
evidence, and so is a noise that is learned.
"""

from __future__ import annotations

from typing import Any

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
from livi.rivals.map_start import as_posterior, best_map
from livi.rivals.options import needed

LARGEST_BLOCK = 10_000  # weights of a last layer, whose covariance then takes 400 MB
PROBES = 20  # of the trace of the curvature


def fit_laplace_last_layer(
    net: nn.Module, data: Any, likelihood: Likelihood, *, tune_prior: bool = True, **options: Any
) -> Posterior:
    """A full covariance of the last nn.Linear's weights; all others stay at the MAP estimate.

    The network is linear in these weights, so that sampling them is the linearised prediction.

    Args:
        tune_prior: False keeps the problem's own prior, which must be Normal, and its noise.
        **options: as in `fit_ensemble`, of the MAP start.

    Raises:
        ImportError: laplace-torch is not installed.
        TypeError, ValueError: a likelihood or a network that it does not know.
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
    with layout.device:  # its backend multiplies the curvature by an identity of the default device
        found.fit(model.loader)
    chosen = _last_layer(name, layout, found.model._last_layer_name)
    if tune_prior:
        precision, noise = model.tuned(model.evidence(torch.linalg.eigvalsh(found.H), chosen))
    else:
        precision, noise = model.prior_precision()[chosen], model.noise
    found.prior_precision, found.sigma_noise = precision, _float(noise)
    sampler = DenseBlock(layout, model.start.theta, chosen.start, found.posterior_scale)
    return _posterior(model, sampler, "laplace_last_layer", precision, model.num_outputs)


def fit_laplace_linearised(
    net: nn.Module, data: Any, likelihood: Likelihood, *, tune_prior: bool = True, **options: Any
) -> Posterior:
    """Kronecker factors for every layer, and predictions by the network linearised around the MAP estimate.

    For networks of nn.Linear and nn.Conv2d; other layers' weights are left out by `exclude`. A draw's outputs are
    f(x, MAP) + J(x) (theta - MAP), in `predict` and in `functions` alike (Immer et al. 2021); `frozen` is refused, for
    weights alone would be read as those of the network itself.

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
    """The `rank` directions of largest curvature, the average curvature in all others; weights are drawn.

    Eigenvectors of the Gauss-Newton matrix by Lanczos iteration on curvlinops' products, which need no matrix, and the
    trace of what they leave by random probes. Of all isotropic Gaussians there, that with the average precision is
    nearest by KL(q || Laplace).

    The network is run at the weights drawn, so that where it is not linear over their spread draws fit worse than the
    MAP estimate does: `fit_laplace_linearised` does not have that fault (Immer et al. 2021).

    Args:
        rest: False leaves all other curvature out, as laplace-torch's LowRankLaplace does: directions that the data
            determine, but less than the leading ones, then have the prior's width.
        tune_prior, **options: as in `fit_laplace_last_layer`.
    """
    name = "fit_laplace_low_rank"
    checks.positive_int("rank", rank)
    model = Model.at(name, best_map(name, net, data, likelihood, options))
    layout = model.start.problem.layout
    vectors, values, average = _leading_curvature(name, model, rank)
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
    return _posterior(model, sampler, "laplace_low_rank", precision, 2 * rank + PROBES, rank=len(values))


def _leading_curvature(function: str, model: Model, rank: int) -> tuple[Tensor, Tensor, Tensor]:  # (m, k), (k,), ()
    """Eigenvectors and eigenvalues of the Gauss-Newton matrix, and the mean of all others; of regression for a noise of
    1."""
    curvlinops = needed(function, "curvlinops", INSTALL)
    linalg = needed(function, "scipy.sparse.linalg", INSTALL)
    regression, theta = model.noise is not None, model.start.theta
    loss = nn.MSELoss(reduction="sum") if regression else nn.CrossEntropyLoss(reduction="sum")
    parameters = [model.module.get_parameter(slot.name) for slot in model.start.problem.layout.slots]
    operator = curvlinops.GGNLinearOperator(
        model.module, loss, parameters, list(model.loader), check_deterministic=False
    ).to_scipy()
    size = operator.shape[0]
    scale = 0.5 if regression else 1.0  # the loss is twice -log p at a noise of 1

    def tensor(array: Any) -> Tensor:
        return scale * torch.as_tensor(array.copy(), dtype=theta.dtype, device=theta.device)

    if rank >= size:
        dense = tensor(operator @ np.eye(size, dtype=operator.dtype))
        values, vectors = torch.linalg.eigh(0.5 * (dense + dense.T))
        return vectors, values.clamp_min(0.0), values.new_zeros(())
    found, axes = linalg.eigsh(operator, k=rank, v0=np.ones(size, operator.dtype))
    signs = rademacher((size, PROBES), torch.Generator().manual_seed(0), torch.float64, torch.device("cpu")).numpy()
    probes = (signs - axes @ (axes.T @ signs)).astype(axes.dtype)  # of what the eigenvectors leave
    rest = (probes * (operator @ probes)).sum(0).mean() / (size - rank)
    return tensor(axes) / scale, tensor(found).clamp_min(0.0), tensor(rest).clamp_min(0.0)


def _last_layer(function: str, layout: Layout, layer: str) -> slice:
    """Where the weights of a layer are in theta."""
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
    return as_posterior(
        model.start.problem,
        model.start.recipe,
        sampler.requires_grad_(False),
        method,
        gradients=passes * model.num_batches,
        buffers=model.buffers,
        prior_precision=float(precision.mean()),
        noise=model.observed_noise,
        **facts,
    )
