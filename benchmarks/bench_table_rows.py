"""Tables by their rows: whether default fits get more exact with more rows, and varying noise works beyond 20,000.

python -m benchmarks.bench_table_rows [--rows N,...] [--noise constant|varying] [--seeds N,...]

Friedman's first function of ten columns, with noise of a third of its spread that is the same for all rows or grows
with a column. RMSE is that of the predicted mean against the function itself, in per cent of its spread, on 5,000 new
rows; boosting (scikit-learn's HistGradientBoostingRegressor) beside it.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor

import livi
from livi.experiments.machine import machine

QUICK = ("--rows", "500", "--noise", "varying")
FULL = ("--rows", "5000,19000,50000", "--seeds", "0")
NEW = 5_000

Array = NDArray[np.float64]


def made(rows: int, noise: str, seed: int) -> tuple[Array, Array, Array]:
    """Inputs, the function, and targets."""
    inputs, function = make_friedman1(rows, noise=0.0, random_state=seed)
    size = function.std() / 3.0
    scale = size if noise == "constant" else size * np.exp(1.5 * (inputs[:, 5] - 0.5))
    return inputs, function, function + scale * np.random.default_rng(seed).standard_normal(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_table_rows", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="5000,19000,50000")
    parser.add_argument("--noise", choices=("constant", "varying"), default="constant")
    parser.add_argument("--seeds", default="0")
    chosen = parser.parse_args()
    titles = ("rows", "seed", "RMSE, %", "boosting's", "log score", "in 90 %, %", "steps", "CPU s")
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    for rows in map(int, chosen.rows.split(",")):
        for seed in map(int, chosen.seeds.split(",")):
            inputs, function, targets = made(rows + NEW, chosen.noise, seed)
            began = time.process_time()
            model = livi.LIVIRegressor(target_scale="plain", noise=chosen.noise, random_state=seed)
            model.fit(inputs[:rows], targets[:rows])
            seconds = time.process_time() - began
            boosted = HistGradientBoostingRegressor(random_state=seed).fit(inputs[:rows], targets[:rows])
            new, truth = inputs[rows:], function[rows:]
            away = [100.0 * np.sqrt(np.mean((one.predict(new) - truth) ** 2)) / truth.std() for one in (model, boosted)]
            ends = model.predict_interval(new)
            held = 100.0 * np.mean((ends[:, 0] <= targets[rows:]) & (targets[rows:] <= ends[:, 1]))
            cells = [f"{rows:,}", str(seed), *(f"{error:.1f}" for error in away)]
            cells += [f"{np.mean(model.log_density(new, targets[rows:])):.3f}", f"{held:.1f}"]
            cells += [f"{model.posterior_.plan['recipe']['steps']:,}", f"{seconds:.0f}"]
            print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\nMachine: {machine()}")


if __name__ == "__main__":
    main()
