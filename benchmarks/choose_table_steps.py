"""How long the fit of a table must last: log score and CPU seconds of `LIVIRegressor` by its steps, on made tables.

    python -m benchmarks.choose_table_steps                     # 700 rows, 300, 600 and 1,000 steps, three seeds
    python -m benchmarks.choose_table_steps --rows 4000 --steps 700,1000,1500 --seeds 0

Friedman's three functions with noise of a third of their spread, and one of two columns whose noise grows; scored on
2,000 new rows. No table of results is of these. Differences are to the longest fit of the same seed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3

import livi

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


def score(name: str, rows: int, steps: int, seed: int) -> tuple[float, float]:
    """The mean log density of new targets, and CPU seconds of the fit."""
    x, y = TABLES[name](rows + NEW, seed)
    model = livi.LIVIRegressor(steps=steps, target_scale="plain", noise="constant", n_jobs=1, random_state=seed)
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
    parser.add_argument("--seeds", default="0,1,2")
    chosen = parser.parse_args()
    lengths = sorted(map(int, chosen.steps.split(",")))
    seeds = list(map(int, chosen.seeds.split(",")))
    warnings.simplefilter("ignore")
    print(f"{chosen.rows} rows: log score minus that of {lengths[-1]} steps (least to most), CPU seconds\n")
    print("| table | " + " | ".join(f"{steps} steps" for steps in lengths) + " |")
    print("|---" * (len(lengths) + 1) + "|", flush=True)
    for name in TABLES:
        found = np.array([[score(name, chosen.rows, steps, seed) for seed in seeds] for steps in lengths])
        cells = []
        for scores, seconds in zip(found[..., 0] - found[-1, :, 0], found[..., 1], strict=True):
            cells.append(f"{scores.mean():+.3f} ({scores.min():+.3f} to {scores.max():+.3f}), {seconds.mean():.0f} s")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
