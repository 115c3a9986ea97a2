"""IVON: mean-field variational inference at the cost of Adam (Shen et al. 2024), with the authors' package ivon-opt.

ivon-opt is under the GNU General Public Licence, so it has an extra of its own, `livi[ivon]`, and is in no other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from livi import checks
from livi.draws import global_stream, rademacher
from livi.family.gaussians import LowRankCovariance
from livi.inference.divergence import FitError
from livi.inference.recipe import cosine
from livi.model.data import remaining_batches
from livi.model.likelihoods import Likelihood
from livi.model.priors import Normal
from livi.model.problem import Problem
from livi.posterior.posterior import Posterior
from livi.rivals.map_start import Start, as_posterior, best_map, checked, loss_gradient
from livi.rivals.options import needed

INSTALL = 'pip install "livi[ivon]".'
RATE = 0.1  # chosen with `python -m benchmarks.choose_ivon`: 0.3 is best there, but 1 diverges
PROBES = 16  # Hessian-vector products at the MAP estimate, for the initial h
NOISE_RATE = 1e-2  # of Adam, for a learned noise
ATTEMPTS, LOWER = 4, 1.0 / 3.0  # learning rates tried, and the factor from one to the next


@checked
def fit_ivon(
    net: nn.Module,
    data: Any,
    likelihood: Likelihood,
    *,
    steps: int = 4000,
    rate: float = RATE,
    num_samples: int = 1,
    hessian_start: float | None = None,
    hessian_memory: float = 0.999,
    **options: Any,
) -> Posterior:
    """q(theta) = N(mean, diag(s^2)) by IVON's natural-gradient steps, started at the MAP estimate.

    The variance is s^2 = 1 / (N (h + 1 / (N prior variance))), where h is a running estimate of the diagonal of the
    Hessian of the mean loss, from products of gradients with the noise of the weights they were taken at. A step of the
    mean is `rate` times a Newton step with the Hessian diag(h) plus the prior's, so that a rate means the same for
    every problem.

    Args:
        rate: initial learning rate of the mean; it falls to zero by a cosine. If the fit diverges, or ends with a much
            lower likelihood than the MAP estimate, it is repeated at a third of the rate, then a ninth and a 27th.
        num_samples: weight vectors per step.
        hessian_start: h before the first step, by default the mean curvature of the weights at the MAP estimate.
        hessian_memory: decay of the running average h.
        **options: as in `fit_ensemble`, of the MAP start.

    Raises:
        ImportError: ivon-opt is not installed.
        TypeError: the prior is not Normal.
        FitError: the steps diverge at every rate.
    """
    for name, value in (("steps", steps), ("num_samples", num_samples)):
        checks.positive_int(name, value)
    package = needed("fit_ivon", "ivon", INSTALL)
    start = best_map("fit_ivon", net, data, likelihood, options)
    level = _mean_curvature(start, options.get("seed", 0)) if hessian_start is None else hessian_start
    settings = {"hess_init": level, "beta2": hessian_memory, "ess": start.problem.data.num_data}
    before = {name: value.clone() for name, value in start.problem.likelihood.state_dict().items()}
    rates = [rate * LOWER**attempt for attempt in range(ATTEMPTS)]
    gradients = 2 * PROBES
    for rate in rates:
        gradients += steps * num_samples
        groups = _groups(start)
        with start.theta.device:  # the package makes tensors on the default device
            optimiser = package.IVON(groups, lr=rate, rescale_lr=False, **settings)
        _train(start.problem, optimiser, groups, steps, num_samples, options.get("seed", 0))
        if _converged(start, optimiser):
            break
        start.problem.likelihood.load_state_dict(before)
    else:
        raise FitError(
            f"fit_ivon: steps diverged at every rate down to {rate:.2g}; lower `rate`, raise `num_samples` or "
            "`hessian_start`, or check the data for extreme values."
        )
    mean = torch.cat([group["params"][0].detach().flatten() for group in groups])
    std = torch.cat([_std(group) for group in optimiser.param_groups])
    sampler = LowRankCovariance(start.problem.layout, mean, std).requires_grad_(False)
    facts: dict[str, Any] = {"steps": steps, "rate": rate, "hessian_start": level}
    return as_posterior(start.problem, start.recipe, sampler, "ivon", gradients=gradients, **facts)


def _mean_curvature(start: Start, seed: int) -> float:
    """The mean of the diagonal of the Hessian of the mean loss, by Hutchinson's estimate with random signs.

    If that is not positive, which can happen where the MAP fit has not converged, the result is 1.
    """
    problem, row = start.problem, start.theta.detach().requires_grad_()
    rng = torch.Generator().manual_seed(seed)
    # Without the prior, which IVON takes as weight decay.
    gradient = loss_gradient(problem, row, problem.data.first(), recorded=True, prior=False)
    total = 0.0
    for _ in range(PROBES):
        signs = rademacher(tuple(row.shape), rng, row.dtype, row.device)
        total += float(signs @ torch.autograd.grad(gradient, row, signs, retain_graph=True)[0])
    level = total / PROBES / len(row)
    return level if level > 0.0 else 1.0


def _groups(start: Start) -> list[dict[str, Any]]:
    """An optimiser group for each parameter tensor, with the weight decay of its prior, 1 / (N scale^2)."""
    problem = start.problem
    if type(problem.prior) is not Normal:
        raise TypeError(f"fit_ivon: expected a livi.Normal prior, got {type(problem.prior).__name__}; pass prior=.")
    scale = problem.prior.scale().detach().expand(problem.layout.num_params)
    groups = []
    for slot in problem.layout.slots:
        own = scale[slot.start : slot.stop]
        if not torch.allclose(own, own[0]):
            raise ValueError(f"fit_ivon: expected a prior with one scale for all of {slot.name!r}, got several.")
        decay = 1.0 / (problem.data.num_data * float(own[0]) ** 2)
        part = nn.Parameter(start.theta[slot.start : slot.stop].clone())
        groups.append({"params": [part], "weight_decay": decay})
    return groups


def _train(
    problem: Problem, optimiser: Any, groups: list[dict[str, Any]], steps: int, num_samples: int, seed: int
) -> None:
    parts = [group["params"][0] for group in groups]
    others = list(problem.likelihood.parameters())
    noise = torch.optim.Adam(others, NOISE_RATE) if others else None
    rate = optimiser.param_groups[0]["lr"]
    with global_stream(seed, problem.layout.device):  # the package draws from torch's global generator
        for step, batch in enumerate(remaining_batches(problem.data, seed, 0, steps)):
            for group in optimiser.param_groups:
                group["lr"] = rate * cosine(step / steps)
            if noise is not None:
                noise.zero_grad()
            for _ in range(num_samples):
                with optimiser.sampled_params(train=True):
                    optimiser.zero_grad()
                    fit = problem.log_likelihood(torch.cat(parts)[None], batch)
                    (-problem.data.emphasis(batch) * fit.mean()).backward()
            optimiser.step()
            if noise is not None:
                noise.step()


@torch.no_grad()
def _converged(start: Start, optimiser: Any) -> bool:
    """Whether all is finite and the mean's likelihood is close to that of the MAP estimate."""
    mean = torch.cat([group["params"][0].flatten() for group in optimiser.param_groups])
    spread = torch.cat([_std(group).flatten() for group in optimiser.param_groups])
    if not (torch.isfinite(mean).all() and torch.isfinite(spread).all()):
        return False
    best, reached = (start.problem.on_data(row[None])[0] for row in (start.theta, mean))
    return bool(reached > best - len(mean) - 0.1 * best.abs())


def _std(group: dict[str, Any]) -> Tensor:  # (size of the group,)
    variance: Tensor = 1.0 / (group["ess"] * (group["hess"] + group["weight_decay"]))
    return variance.sqrt()
