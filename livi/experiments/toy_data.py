"""The toy regression problems of the paper's Figure 1, and the NUTS posteriors that approximations are compared with.

Both have 70 points in two clusters with a gap between them, known noise 0.3, a network 1-7-10-1 with ELU (105 weights)
and independent N(0, 1) priors:

A: y = sin(1.2 x) + 0.3 eps, 35 points on [-4, -2] and 35 on [2, 4].
B: y = x + 0.8 sin(2 pi x) + 0.8 sin(4 pi x) + 0.3 eps, 38 points on [-1.28, -0.61] and 32 on [0.61, 1.28], x then
   divided by its largest value: the function, intervals and scaling of the paper's published code.

The references are files made by `scripts/make_nuts_reference.py`. On A the chains have mixed: R-hat is at most 1.001,
and W2 of one run against another is 0.018. On B they have not quite: R-hat reaches 1.07 among the data, where there are
several ways to fit the wiggles and NUTS seldom crosses between them; two runs are 0.058 apart, a chain and all others
0.10. Differences of that size on B mean nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

NAMES = ("A", "B")
SIZES = (1, 7, 10, 1)  # the network's layers
OBS_STD = 0.3
PRIOR_STD = 1.0


@dataclass(frozen=True)
class ToyData:
    """Training data, and the grid on which predictions are compared."""

    name: str
    x: Array  # (70,)
    y: Array  # (70,)
    grid: Array  # (25,), beyond the data on both sides

    @property
    def gap(self) -> NDArray[np.bool_]:  # (25,)
        """Which grid points lie between the two clusters."""
        inside: NDArray[np.bool_] = (self.grid > self.x[self.x < 0].max()) & (self.grid < self.x[self.x > 0].min())
        return inside


@dataclass(frozen=True)
class Reference:
    """A NUTS posterior over functions: marginals of f(x) at the grid, some whole functions, and diagnostics.

    Args:
        quantiles: of f at levels (i + 1/2) / 199, from all runs; they serve as a sample of 199 for `wasserstein2`.
        run_quantiles: of each of two independent runs.
        functions: draws of f on `plot_grid`, which is finer.
        rhat, ess: split R-hat and effective sample size of f at the grid, over the chains of both runs.
        w2_runs: W2 of one run against the other, which no approximation can be expected to go below.
        w2_chains: W2 of a single chain against all others, averaged over chains.
        settings, versions: how it was made.
        measured: for each run, divergences, leapfrog steps a draw, error of the collapse in nats, seconds.
    """

    data: ToyData
    quantiles: Array  # (199, 25)
    run_quantiles: Array  # (2, 199, 25)
    mean: Array  # (25,)
    std: Array  # (25,)
    plot_grid: Array  # (97,)
    functions: Array  # (draws, 97)
    rhat: Array  # (25,)
    ess: Array  # (25,)
    divergences: int
    w2_runs: float
    w2_chains: float
    settings: dict[str, Any]
    versions: dict[str, str]
    measured: dict[str, list[float]]

    @property
    def gap_std(self) -> float:
        """Standard deviation of f, averaged over the grid points of the gap."""
        return float(self.std[self.data.gap].mean())


def toy_data(name: str, seed: int = 0) -> ToyData:
    """Data set "A" or "B"; the references belong to seed 0.

    >>> toy_data("A").x.shape
    (70,)
    """
    rng = np.random.default_rng(seed)
    x = _inputs(name, rng)
    y = _noiseless(name, x) + OBS_STD * rng.standard_normal(70)
    reach = 6.0 if name == "A" else 1.5
    return ToyData(name, x / _scale(name, x), y, np.linspace(-reach, reach, 25))


def true_function(name: str, x: Array, seed: int = 0) -> Array:
    """The function behind `toy_data(name, seed)`, without noise, at these inputs.

    >>> true_function("A", np.zeros(1))
    array([0.])
    """
    return _noiseless(name, x * _scale(name, _inputs(name, np.random.default_rng(seed))))


def _inputs(name: str, rng: np.random.Generator) -> Array:  # (70,)
    if check_name(name) == "A":
        return np.concatenate([rng.uniform(-4, -2, 35), rng.uniform(2, 4, 35)])
    return np.concatenate([rng.uniform(-1.28, -0.61, 38), rng.uniform(0.61, 1.28, 32)])


def _noiseless(name: str, x: Array) -> Array:
    values: Array = np.sin(1.2 * x) if name == "A" else x + 0.8 * np.sin(2 * np.pi * x) + 0.8 * np.sin(4 * np.pi * x)
    return values


def _scale(name: str, x: Array) -> float:
    """The number that x is divided by."""
    return 1.0 if name == "A" else float(x.max())


@cache
def reference(name: str) -> Reference:
    """The NUTS posterior for `toy_data(name)`."""
    source = files("livi.experiments") / "references" / f"toy_{check_name(name).lower()}.npz"
    with source.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    data = ToyData(name, *(arrays.pop(key) for key in ("x", "y", "grid")))
    facts = json.loads(str(arrays.pop("facts")))
    return Reference(data, **{key: value.astype(np.float64) for key, value in arrays.items()}, **facts)


def wasserstein2(first: Any, second: Any, num_levels: int = 199) -> float:
    """The 2-Wasserstein distance between two marginals of f, averaged over places.

    In one dimension W2^2 is the integral of the squared difference of the quantile functions. It is computed by the
    midpoint rule at `num_levels` levels, which is exact where both arguments have that many rows.

    Args:
        first, second: samples (n, places), tensors or arrays; a table of quantiles at midpoint levels counts as one.
        num_levels: by default as many as a reference has quantiles, which leaves out a quarter of a percent of mass at
            either end.

    >>> wasserstein2(np.zeros((4, 2)), np.ones((7, 2)))
    1.0
    """
    levels = (np.arange(num_levels) + 0.5) / num_levels
    tables = [np.quantile(as_samples(each), levels, axis=0, method="inverted_cdf") for each in (first, second)]
    if tables[0].shape != tables[1].shape:
        raise ValueError(
            f"wasserstein2: expected samples at the same places, got {tables[0].shape[1]} and {tables[1].shape[1]}."
        )
    squares = np.square(tables[0] - tables[1]).mean(0)
    return float(np.sqrt(squares).mean())


def as_samples(values: Any) -> Array:  # (n, places)
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    samples = np.asarray(values, dtype=np.float64)
    if samples.ndim != 2 or 0 in samples.shape:
        raise ValueError(f"samples: expected shape (num_samples, places), got {samples.shape}.")
    return samples


def check_name(name: str) -> str:
    if name not in NAMES:
        raise ValueError(f"data: expected one of {', '.join(NAMES)}, got {name!r}.")
    return name
