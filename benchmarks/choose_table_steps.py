"""How long to fit a table: log score and CPU seconds of `LIVIRegressor` by its steps, on made-up tables.

    python -m benchmarks.choose_table_steps                     # 700 rows, 300, 600 and 1,000 steps, three seeds
    python -m benchmarks.choose_table_steps --rows 4000 --steps 700,1000,1500 --seeds 0
    python -m benchmarks.choose_table_steps --rows 300 --steps 600 --samples 4,8,20

Friedman's three functions with noise of a third of their spread, and one of two columns whose noise grows; scored on
2,000 new rows. No table of results is of these. Differences are to the longest fit of the same seed, by most samples.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Callable
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3

import livi
from livi.inference import Recipe

Array = NDArray[np.float64]
NEW = 2_000


def friedman(make: Callable[..., tuple[Array, Array]]) -> Callable[[int, int], tuple[Array, Array]]:
    def made(rows: int, seed: int) -> tuple[Array, Array]:
        x, y = make(rows, noise=0.0, random_state=seed)
        return x, y + y.std() / 3.0 * np.random.default_rng(seed).standard_normal(rows)

    return made


def growing(rows: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, (rows, 2))
    return x, np.sin(2.0 * x[:, 0]) + 0.1 * np.exp(x[:, 1]) * rng.standard_normal(rows)


TABLES = {
    "friedman-1": friedman(make_friedman1),
    "friedman-2": friedman(make_friedman2),
    "friedman-3": friedman(make_friedman3),
    "growing noise": growing,
}


def score(name: str, rows: int, seed: int, steps: int, samples: int | None) -> tuple[float, float]:
    """The mean log density of new targets, and CPU seconds of the fit, by so many samples a step (None: the rules')."""
    x, y = TABLES[name](rows + NEW, seed)
    model = livi.LIVIRegressor(steps=steps, target_scale="plain", noise="constant", n_jobs=1, random_state=seed)
    recipe = None if samples is None else Recipe(num_samples=samples)
    with mock.patch.object(livi.LIVIRegressor, "_recipe", return_value=recipe):
        began = time.process_time()
        model.fit(x[:rows], y[:rows])
    seconds = time.process_time() - began
    return float(np.mean(model.log_density(x[rows:], y[rows:]))), seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.choose_table_steps", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--rows", type=int, default=700)
    parser.add_argument("--steps", default="300,600,1000")
    parser.add_argument("--samples", default="", help="weight vectors a step; those of the rules without it")
    parser.add_argument("--seeds", default="0,1,2")
    chosen = parser.parse_args()
    lengths = sorted(map(int, chosen.steps.split(",")))
    numbers: list[int | None] = [*sorted(map(int, filter(None, chosen.samples.split(","))))] or [None]
    ways = list(itertools.product(lengths, numbers))
    names = [f"{steps} steps" + ("" if number is None else f" of {number} samples") for steps, number in ways]
    seeds = list(map(int, chosen.seeds.split(",")))
    warnings.simplefilter("ignore")
    score("friedman-1", 80, 0, 2, None)  # what is only slow the first time
    print(f"{chosen.rows} rows: log score minus that of {names[-1]} (least to most), CPU seconds\n")
    print("| table | " + " | ".join(names) + " |")
    print("|---" * (len(ways) + 1) + "|", flush=True)
    for name in TABLES:
        found = np.array([[score(name, chosen.rows, seed, *way) for seed in seeds] for way in ways])
        cells = []
        for scores, seconds in zip(found[..., 0] - found[-1, :, 0], found[..., 1], strict=True):
            cells.append(f"{scores.mean():+.3f} ({scores.min():+.3f} to {scores.max():+.3f}), {seconds.mean():.1f} s")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
