"""Make the NUTS references of the toy experiment: python scripts/make_nuts_reference.py [A] [B] [--out DIR]

Needs the extra `baselines` (jax, numpyro): pip install -e ".[baselines]". Takes about 3 minutes for A and 16 for B on
one core.

The network's last layer is linear, f(x) = phi(x; h)^T w with phi the last hidden layer and a constant, h the 94 hidden
weights and w the 11 of the last layer. With w ~ N(0, I) and y ~ N(Phi w, s^2 I) it can be integrated out exactly:

    A = I + Phi^T Phi / s^2,   b = Phi^T y / s^2,
    log p(y | h) = -n/2 log(2 pi s^2) - 1/2 log det A - 1/2 (y^T y / s^2 - b^T A^-1 b),
    p(w | h, y) = N(w; A^-1 b, A^-1).

NUTS samples p(h | y), proportional to p(y | h) p(h), and every draw of h is completed by an exact draw of w. The result
is the posterior of all 105 weights, the same as from sampling them together (--full), but it mixes better: on data set
B, 4 chains of 1,000 draws over all weights do not mix, with R-hat near 1.1. At every draw Bayes' rule,
log p(y, w | h) - log p(w | h, y) = log p(y | h), is checked, and the largest error is stored.

Each data set has two independent runs, so that W2 of NUTS against itself is known. The stored arrays are described in
`livi.experiments.toy_data.Reference`.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from livi.experiments.toy_data import NAMES, OBS_STD, SIZES, ToyData, toy_data, wasserstein2

OUT = Path(__file__).resolve().parents[1] / "livi" / "experiments" / "references"
RUNS = 2
LEVELS = 199
PLOTTED = 150
SETTINGS = {
    "A": {"chains": 6, "warmup": 500, "draws": 1000},
    "B": {"chains": 12, "warmup": 700, "draws": 1000},
}


class Backend(NamedTuple):
    """numpy and scipy, or their versions in jax: the formulas below are written once, and tested without jax."""

    xp: Any
    solve_triangular: Callable[..., Any]


# --- the model ------------------------------------------------------------------------------------


def num_hidden(sizes: tuple[int, ...] = SIZES) -> int:
    return sum((a + 1) * b for a, b in pairwise(sizes[:-1]))


def features(backend: Backend, hidden: Any, x: Any, sizes: tuple[int, ...] = SIZES) -> Any:  # (n, r)
    """phi: the last hidden layer and a constant."""
    xp = backend.xp
    rows, start = x[:, None], 0
    for a, b in pairwise(sizes[:-1]):
        weight, bias = hidden[start : start + a * b].reshape(a, b), hidden[start + a * b : start + a * b + b]
        rows, start = rows @ weight + bias, start + (a + 1) * b
        rows = xp.where(rows > 0, rows, xp.expm1(xp.minimum(rows, 0.0)))
    return xp.concatenate([rows, xp.ones_like(rows[:, :1])], 1)


def last_layer(backend: Backend, phi: Any, y: Any) -> tuple[Any, Any]:
    """L and v with A = L L^T and v = L^-1 b, so that w = L^-T (v + eps) is a draw from p(w | h, y)."""
    xp = backend.xp
    factor = xp.linalg.cholesky(xp.eye(phi.shape[1]) + phi.T @ phi / OBS_STD**2)
    return factor, backend.solve_triangular(factor, phi.T @ y / OBS_STD**2, lower=True)


def collapsed_log_likelihood(backend: Backend, phi: Any, y: Any) -> Any:
    """log p(y | h), with the last layer integrated out."""
    xp = backend.xp
    factor, v = last_layer(backend, phi, y)
    constant = -0.5 * len(y) * np.log(2.0 * np.pi * OBS_STD**2)
    return constant - xp.log(xp.diagonal(factor)).sum() - 0.5 * (y @ y / OBS_STD**2 - v @ v)


def complete(backend: Backend, phi: Any, y: Any, eps: Any) -> Any:  # (r,)
    """A draw of the last layer given the hidden ones, from standard normal eps (r,)."""
    factor, v = last_layer(backend, phi, y)
    return backend.solve_triangular(factor.T, v + eps, lower=False)


def collapse_error(backend: Backend, phi: Any, y: Any, eps: Any) -> Any:
    """The error of Bayes' rule at w = complete(..., eps): 0 up to rounding."""
    xp = backend.xp
    factor, _ = last_layer(backend, phi, y)
    w = complete(backend, phi, y, eps)
    log_2pi = np.log(2.0 * np.pi)
    likelihood = -0.5 * xp.square((y - phi @ w) / OBS_STD).sum() - len(y) * (np.log(OBS_STD) + 0.5 * log_2pi)
    prior = -0.5 * w @ w - 0.5 * len(w) * log_2pi
    conditional = -0.5 * eps @ eps + xp.log(xp.diagonal(factor)).sum() - 0.5 * len(w) * log_2pi
    return abs(likelihood + prior - conditional - collapsed_log_likelihood(backend, phi, y))


# --- sampling -------------------------------------------------------------------------------------


def sample(data: ToyData, grid: Any, seed: int, settings: dict[str, Any]) -> tuple[Any, dict[str, float]]:
    """f on the grid, of shape (chains, draws, places), and facts about the run."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions
    from numpyro.infer import MCMC, NUTS

    backend = Backend(jnp, jax.scipy.linalg.solve_triangular)
    x, y, places = (jnp.asarray(values) for values in (data.x, data.y, grid))

    full = settings["full"]
    count = num_hidden() + (SIZES[-2] + 1 if full else 0)

    def model() -> None:
        theta = numpyro.sample("theta", distributions.Normal(0.0, 1.0).expand([count]).to_event(1))
        phi = features(backend, theta, x)
        if full:
            numpyro.sample("y", distributions.Normal(phi @ theta[num_hidden() :], OBS_STD), obs=y)
        else:
            numpyro.factor("y", collapsed_log_likelihood(backend, phi, y))

    started = time.perf_counter()
    chains = MCMC(
        NUTS(model, max_tree_depth=settings["max_tree_depth"]),
        num_warmup=settings["warmup"],
        num_samples=settings["draws"],
        num_chains=settings["chains"],
        chain_method="vectorized",
        progress_bar=False,
    )
    run_key, draw_key = jax.random.split(jax.random.PRNGKey(seed))
    chains.run(run_key, extra_fields=("diverging", "num_steps"))
    theta = chains.get_samples(group_by_chain=True)["theta"]
    eps = jax.random.normal(draw_key, (*theta.shape[:2], SIZES[-2] + 1))

    @jax.jit
    @jax.vmap
    @jax.vmap
    def function(t: Any, e: Any) -> tuple[Any, Any]:
        phi = features(backend, t, x)
        last = t[num_hidden() :] if full else complete(backend, phi, y, e)
        return features(backend, t, places) @ last, collapse_error(backend, phi, y, e)

    values, errors = function(theta, eps)
    extra = chains.get_extra_fields()
    facts = {
        "divergences": int(extra["diverging"].sum()),
        "mean_leapfrog_steps": float(extra["num_steps"].mean()),
        "collapse_error": float(errors.max()),
        "seconds": round(time.perf_counter() - started, 1),
    }
    if facts["collapse_error"] > 1e-6:
        raise SystemExit(f"the collapsed density is off by {facts['collapse_error']:g} nats: a bug, nothing is written")
    return np.asarray(values), facts


def make(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The arrays of one reference file."""
    import jax
    import numpyro
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    numpyro.enable_x64()
    data = toy_data(name)
    plot_grid = np.linspace(data.grid[0], data.grid[-1], 4 * (len(data.grid) - 1) + 1)
    runs, facts = zip(*(sample(data, plot_grid, settings["seed"] + run, settings) for run in range(RUNS)), strict=True)
    by_chain = np.concatenate(runs)  # (runs * chains, draws, places)
    on_grid = by_chain[..., ::4]
    pooled = on_grid.reshape(-1, len(data.grid))
    levels = (np.arange(LEVELS) + 0.5) / LEVELS
    run_quantiles = [np.quantile(run[..., ::4].reshape(-1, len(data.grid)), levels, axis=0) for run in runs]
    others = [np.delete(on_grid, chain, 0).reshape(-1, len(data.grid)) for chain in range(len(on_grid))]
    functions = by_chain.reshape(-1, len(plot_grid))
    chosen = np.linspace(0, len(functions) - 1, PLOTTED).round().astype(int)
    described = {
        "divergences": sum(fact["divergences"] for fact in facts),
        "w2_runs": wasserstein2(*run_quantiles),
        "w2_chains": float(np.mean([wasserstein2(*pair) for pair in zip(on_grid, others, strict=True)])),
        "settings": settings | {"runs": RUNS},
        "versions": {"jax": jax.__version__, "numpyro": numpyro.__version__, "numpy": np.__version__}
        | {"python": platform.python_version()},
        "measured": {key: [fact[key] for fact in facts] for key in facts[0]},
    }
    arrays = {
        "quantiles": np.quantile(pooled, levels, axis=0),
        "run_quantiles": np.stack(run_quantiles),
        "mean": pooled.mean(0),
        "std": pooled.std(0),
        "plot_grid": plot_grid,
        "functions": functions[chosen],
        "rhat": split_gelman_rubin(on_grid),
        "ess": effective_sample_size(on_grid),
    }
    small = {key: np.asarray(value, dtype=np.float32) for key, value in arrays.items()}
    return {"x": data.x, "y": data.y, "grid": data.grid} | small | {"facts": json.dumps(described)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="*", default=list(NAMES), help="A, B or both (default)")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for toy_a.npz and toy_b.npz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--full", action="store_true", help="sample all weights together, for comparison")
    for option in ("chains", "warmup", "draws"):
        parser.add_argument(f"--{option}", type=int, help="instead of the data set's own setting")
    chosen = parser.parse_args()
    if chosen.full and chosen.out == OUT:
        parser.error("--full: expected --out with another folder, since the references come from the collapsed model")
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name in chosen.data:
        own = {key: getattr(chosen, key) for key in ("chains", "warmup", "draws") if getattr(chosen, key) is not None}
        arrays = make(name, SETTINGS[name] | own | {"max_tree_depth": 10, "seed": chosen.seed, "full": chosen.full})
        path = chosen.out / f"toy_{name.lower()}.npz"
        np.savez_compressed(path, **arrays)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
        print(f"  R-hat up to {arrays['rhat'].max():.3f}, ESS {arrays['ess'].min():.0f} and more; {arrays['facts']}")


if __name__ == "__main__":
    main()
