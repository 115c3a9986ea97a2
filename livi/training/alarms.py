"""Alarms: what can go wrong with a fitted posterior without an error, said in words."""

from __future__ import annotations

import torch
from torch import Tensor

from livi.objective import Bound
from livi.priors import Laplace, Normal


class FitWarning(UserWarning):
    """A fit that ran through but should not be trusted as it stands."""


@torch.no_grad()
def alarms(
    bound: Bound, log_likelihood: float, start_log_likelihood: float, unconverged: float, rng: torch.Generator
) -> list[str]:
    """Sentences about a collapsed or runaway spread, an unconverged log-determinant, a lost likelihood.

    Args:
        log_likelihood, start_log_likelihood: of the data, expected under q, and at the MAP start.
        unconverged: share of steps whose entropy estimate missed its tolerance.
    """
    found = []
    spread = _relative_spread(bound, rng)
    names = [group.name for group in bound.posterior.layout.groups]
    collapsed = [name for name, value in zip(names, spread.tolist(), strict=True) if value < 1e-3]
    runaway = [name for name, value in zip(names, spread.tolist(), strict=True) if value > 3.0]
    if collapsed:
        found.append(
            f"Collapsed spread: the weights of {', '.join(collapsed[:4])} vary less than 1/1000 of their prior scale; "
            "uncertainty will be too small. Raise Recipe.steps or spread, or check num_data."
        )
    if runaway:
        found.append(
            f"Runaway spread: the weights of {', '.join(runaway[:4])} vary more than 3 times their prior scale; "
            "lower the learning rates or raise Recipe.num_samples."
        )
    if unconverged > 0.1:
        found.append(
            f"Unconverged log-determinant: {unconverged:.0%} of the entropy estimates missed their tolerance; raise "
            "max_iterations or the noise."
        )
    allowed = bound.posterior.num_params + 0.1 * abs(start_log_likelihood)
    if start_log_likelihood - log_likelihood > allowed:
        found.append(
            f"Likelihood far below the MAP start: {log_likelihood:.1f} against {start_log_likelihood:.1f} nats; the "
            "posterior may be too wide or not converged. Raise Recipe.steps or num_samples."
        )
    return found


def _relative_spread(bound: Bound, rng: torch.Generator) -> Tensor:  # (layers,)
    """Root mean square deviation of each layer's weights, over the prior's where that has a scale."""
    theta = bound.posterior.sample(max(16, 4 * bound.posterior.num_components), rng)
    prior = bound.prior
    scale = prior.scale().expand(theta.shape[1]) if isinstance(prior, (Normal, Laplace)) else torch.ones_like(theta[0])
    deviation = theta.std(0) / scale
    return torch.stack(
        [deviation[group.start : group.stop].square().mean().sqrt() for group in bound.posterior.layout.groups]
    )
