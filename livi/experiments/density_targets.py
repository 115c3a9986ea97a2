"""Densities with reference draws: banana, X, mixture and funnel in closed form, logistic regression by NUTS."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

LogProb = Callable[[Tensor], Tensor]  # (S, dim) -> (S,)


@dataclass(frozen=True)
class Target:
    """A density and draws from it.

    Args:
        normalised: whether log_prob includes its constant, so that minus a bound on it is a divergence.
        needs: the package that draws need, if any.
    """

    dim: int
    log_prob: LogProb
    sample: Callable[[int, torch.Generator], Tensor]
    normalised: bool = True
    needs: str = ""

    def missing(self) -> bool:
        return bool(self.needs) and find_spec(self.needs) is None


def _normal(x: Tensor, mean: Tensor | float, std: Tensor | float) -> Tensor:
    std = torch.as_tensor(std, dtype=x.dtype, device=x.device)
    return -0.5 * ((x - mean) / std).square() - std.log() - 0.5 * math.log(2.0 * math.pi)


def _banana() -> Target:
    """x1 ~ N(0, 1.5^2), x2 ~ N(x1^2 / 2 - 1, 0.5^2)."""

    def log_prob(x: Tensor) -> Tensor:
        return _normal(x[:, 0], 0.0, 1.5) + _normal(x[:, 1], 0.5 * x[:, 0].square() - 1.0, 0.5)

    def sample(count: int, rng: torch.Generator) -> Tensor:
        noise = torch.randn(count, 2, generator=rng)
        first = 1.5 * noise[:, 0]
        return torch.stack([first, 0.5 * first.square() - 1.0 + 0.5 * noise[:, 1]], 1)

    return Target(2, log_prob, sample)


def _mixture(weights: list[float], means: list[list[float]], roots: list[list[list[float]]]) -> Target:
    """A mixture of Gaussians with these weights, means and lower Cholesky factors of covariances."""
    log_weights, centres, factors = torch.tensor(weights).log(), torch.tensor(means), torch.tensor(roots)

    def log_prob(x: Tensor) -> Tensor:
        root = factors.to(x)
        unit = torch.linalg.solve_triangular(root, (x[:, None] - centres.to(x))[..., None], upper=False)[..., 0]
        volume = root.diagonal(dim1=1, dim2=2).log().sum(1) + 0.5 * x.shape[1] * math.log(2.0 * math.pi)
        return torch.logsumexp(log_weights.to(x) - 0.5 * unit.square().sum(-1) - volume, 1)

    def sample(count: int, rng: torch.Generator) -> Tensor:
        chosen = torch.multinomial(log_weights.exp(), count, replacement=True, generator=rng)
        noise = torch.randn(count, centres.shape[1], 1, generator=rng, dtype=centres.dtype)
        return centres[chosen] + (factors[chosen] @ noise)[..., 0]

    return Target(centres.shape[1], log_prob, sample)


def _cross() -> Target:
    """An X: two Gaussians with the same mean and correlations 0.9 and -0.9."""
    width, tilt = math.sqrt(2.0), 1.8 / math.sqrt(2.0)
    rest = math.sqrt(2.0 - tilt**2)
    return _mixture([0.5, 0.5], [[0.0, 0.0]] * 2, [[[width, 0.0], [sign * tilt, rest]] for sign in (1.0, -1.0)])


def _four() -> Target:
    """Four modes with unequal weights, eight standard deviations apart."""
    return _mixture(
        [0.1, 0.2, 0.3, 0.4], [[2.0, 2.0], [-2.0, 2.0], [-2.0, -2.0], [2.0, -2.0]], [[[0.5, 0.0], [0.0, 0.5]]] * 4
    )


def _funnel(dim: int = 5, std: float = 1.5) -> Target:
    """v ~ N(0, 1.5^2), the others ~ N(0, exp v) (Neal 2003, with 3 in place of 1.5)."""

    def log_prob(x: Tensor) -> Tensor:
        scale = torch.exp(0.5 * x[:, :1])
        return _normal(x[:, 0], 0.0, std) + _normal(x[:, 1:], 0.0, scale).sum(1)

    def sample(count: int, rng: torch.Generator) -> Tensor:
        noise = torch.randn(count, dim, generator=rng)
        first = std * noise[:, :1]
        return torch.cat([first, torch.exp(0.5 * first) * noise[:, 1:]], 1)

    return Target(dim, log_prob, sample)


def _logistic(rows: int = 60, dim: int = 6) -> Target:
    """Logistic regression with a N(0, 2^2) prior on simulated, correlated features; draws by NUTS (numpyro)."""
    rng = torch.Generator().manual_seed(20)
    features = torch.randn(rows, dim, generator=rng) + torch.randn(rows, 1, generator=rng)
    truth = torch.randn(dim, generator=rng)
    labels = (torch.rand(rows, generator=rng) < torch.sigmoid(features @ truth)).float()

    def log_prob(x: Tensor) -> Tensor:
        logits = x @ features.to(x).T
        log_likelihood = (labels.to(x) * logits - torch.nn.functional.softplus(logits)).sum(1)
        return log_likelihood + _normal(x, 0.0, 2.0).sum(1)

    def sample(count: int, rng: torch.Generator) -> Tensor:
        draws = _nuts(features.numpy(), labels.numpy())
        chosen = torch.randint(len(draws), (count,), generator=rng)
        return torch.tensor(draws)[chosen]

    return Target(dim, log_prob, sample, normalised=False, needs="numpyro")


def _nuts(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """10,000 draws of the coefficients by NUTS."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro.distributions import Bernoulli, Normal
    from numpyro.infer import MCMC, NUTS

    def model() -> None:
        weights = numpyro.sample("weights", Normal(0.0, 2.0).expand([features.shape[1]]).to_event(1))
        numpyro.sample("labels", Bernoulli(logits=jnp.asarray(features) @ weights), obs=jnp.asarray(labels))

    chain = MCMC(NUTS(model), num_warmup=1000, num_samples=10_000, progress_bar=False)
    chain.run(jax.random.PRNGKey(0))
    return np.array(chain.get_samples()["weights"], dtype=np.float32)


TARGETS: dict[str, Target] = {
    "banana": _banana(),
    "x": _cross(),
    "mixture": _four(),
    "funnel": _funnel(),
    "logistic": _logistic(),
}


def available() -> tuple[str, ...]:
    return tuple(name for name, target in TARGETS.items() if not target.missing())
