"""What 90 % intervals hold, and log scores, where a regression has few rows, by guards of its point estimates.

    LIVI_DATA_DIR=... python -m benchmarks.choose_few [--rows 5,8,15,30] [--repeats 10] [--jobs 2]
    LIVI_DATA_DIR=... python -m benchmarks.choose_few --rows 240 --data boston,energy,yacht --repeats 2

`LIVIRegressor` with constant noise, by rows drawn from simulated tables, from scikit-learn's diabetes and from training
rows of UCI sets (splits from 10 on), scored on others of the same: a way is a spread of the prior of the noise, and
whether predictions are spread by `few_rows_spread`, for any number of rows. Fits are short, by `--steps` and
`--samples`; 0 leaves them to the rules.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, make_friedman1

import livi
from benchmarks.bench_truth import held_out
from livi.inference import Recipe
from livi.tables.estimators import regressor

Array = NDArray[np.float64]
Rows = tuple[Array, Array]
NEW, LEVEL = 150, 0.9


class Way(NamedTuple):
    """How a point estimate of the noise is guarded."""

    noise_spread: float = 1e6  # of the prior; this large it says nothing
    standardised: bool = False  # whether predictions allow for standardisation by few rows


WAYS = {
    "before": Way(),
    "noise 1": Way(1.0),
    "noise 0.5": Way(0.5),
    "noise 0.25": Way(0.25),
    "spread": Way(standardised=True),
    "noise 1, spread": Way(1.0, True),
    "noise 0.5, spread": Way(0.5, True),
    "noise 0.25, spread": Way(0.25, True),
}
DEFAULT = "noise 1, spread"


def linear(columns: int) -> Callable[[int, np.random.Generator], Rows]:
    def made(rows: int, rng: np.random.Generator) -> Rows:
        x, slope = rng.standard_normal((rows, columns)), rng.standard_normal(columns)
        return x, x @ slope / np.sqrt(slope @ slope) + 0.5 * rng.standard_normal(rows)

    return made


def friedman(rows: int, rng: np.random.Generator) -> Rows:
    return make_friedman1(rows, noise=1.5, random_state=int(rng.integers(2**31)))


def wave(rows: int, rng: np.random.Generator) -> Rows:
    x = rng.uniform(-2.0, 2.0, (rows, 1))
    return x, np.sin(2.0 * x[:, 0]) + 0.2 * rng.standard_normal(rows)


def diabetes(rows: int, rng: np.random.Generator) -> Rows:
    return drawn(*load_diabetes(return_X_y=True), rows, rng)


def uci(name: str) -> Callable[[int, np.random.Generator], Rows]:
    def made(rows: int, rng: np.random.Generator) -> Rows:
        split = held_out(name, int(rng.integers(10, 18)))
        inputs, targets = (split.inputs, split.test_inputs), (split.targets, split.test_targets)
        return drawn(np.concatenate(inputs), np.concatenate(targets), rows, rng)

    return made


def drawn(inputs: Array, targets: Array, rows: int, rng: np.random.Generator) -> Rows:
    order = rng.permutation(len(targets))[:rows]
    return inputs[order], targets[order]


SIMULATED = {"linear-3": linear(3), "linear-8": linear(8), "friedman-1": friedman, "wave": wave, "diabetes": diabetes}
DATA = SIMULATED | {name: uci(name) for name in ("boston", "concrete", "energy", "wine-red", "yacht")}


def score(case: tuple[int, str, int, str], steps: int, samples: int) -> tuple[float, float]:
    """The share of new targets in 90 % intervals, and their mean log density."""
    repeat, name, rows, title = case
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    way, (x, y) = WAYS[title], DATA[name](rows + NEW, np.random.default_rng([repeat, rows]))
    changed = {"MIN_TABLE_ROWS": 10**9, "NOISE_SPREAD": way.noise_spread} | (
        {} if way.standardised else {"few_rows_spread": lambda _: 1.0}
    )
    recipe = Recipe(num_samples=samples) if samples else None
    with (
        mock.patch.multiple(regressor, **changed),
        mock.patch.object(livi.LIVIRegressor, "_recipe", return_value=recipe),
    ):
        model = livi.LIVIRegressor(
            steps=steps or None, random_state=repeat, noise="constant", target_scale="plain", num_samples=128
        )
        model.fit(x[:rows], y[:rows])
    low, high = model.predict_interval(x[rows:], alpha=1.0 - LEVEL).T
    return float(((low <= y[rows:]) & (y[rows:] <= high)).mean()), float(model.log_density(x[rows:], y[rows:]).mean())


def mean_and_error(values: Array, form: str) -> str:
    return f"{values.mean():{form}} ± {values.std(ddof=1) / len(values) ** 0.5:{form.strip('+')}}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choose_few", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="5,8,15,30")
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--ways", default=f"before;{DEFAULT}", help="separated by semicolons; the first is led")
    parser.add_argument("--repeats", type=int, default=10, help="2 or more")
    parser.add_argument("--first", type=int, default=0, help="the first repeat")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--samples", type=int, default=8, help="weight vectors a step")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    names, titles = given.data.split(","), given.ways.split(";")
    repeats = range(given.first, given.first + given.repeats)
    print("| rows | guards | 90 % intervals hold | log score: lead | median lead |\n|---|---|---|---|---|", flush=True)
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        for rows in map(int, given.rows.split(",")):
            cases = list(itertools.product(repeats, names, [rows], titles))
            found = np.array(list(pool.map(partial(score, steps=given.steps, samples=given.samples), cases)))
            shares, scores = found.reshape(len(cases) // len(titles), len(titles), 2).transpose(2, 1, 0)
            for title, share, lead in zip(titles, 100.0 * shares, scores - scores[0], strict=True):
                cells = [mean_and_error(share, ".1f") + " %", mean_and_error(lead, "+.3f"), f"{np.median(lead):+.3f}"]
                print(f"| {rows} | {title} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
