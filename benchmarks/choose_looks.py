"""Trials of a table's models: scores on held-out rows, those of chains by length, and which trials are left out.

    python -m benchmarks.choose_looks [--rows 300,2000] [--seed 5] [--tables NAME,...]

The made tables of `benchmarks.choose_table_steps`, further ones with steps, waves, heavy tails, a noise with a hump and
a log-normal target, and 330 rows of scikit-learn's diabetes. A short trial of chains ("look") is worth its time where
it is ahead of the best other model whenever the whole trial, of 400 steps, clearly is; `plausible` where what it leaves
out does not lead.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.datasets import load_diabetes

import livi
from benchmarks.choose_table_steps import TABLES, Array
from livi.tables.estimators.model_choice import TRIAL_STEPS, model_trial_rows, plausible
from livi.tables.estimators.target_models import Model, candidates, sampled_like

LENGTHS = (100, 200, 400)  # of chains


def log_normal(rows: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 5))
    return x, np.exp(0.8 * x[:, 0] + 0.5 * np.sin(2.0 * x[:, 1]) + 0.3 * rng.normal(size=rows))


def steps(rows: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (rows, 4))
    return x, 2.0 * (x[:, 0] > 0.0) + (x[:, 1] > 0.3) * (x[:, 2] > 0.0) + 0.1 * rng.normal(size=rows)


def humped(rows: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, (rows, 3))
    return x, x[:, 0] * x[:, 1] + (0.05 + 0.6 * np.exp(-4.0 * x[:, 2] ** 2)) * rng.normal(size=rows)


def heavy(rows: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6))
    return x, x[:, 0] + np.abs(x[:, 1]) + 0.3 * rng.standard_t(3, size=rows)


def waves(rows: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (rows, 4))
    return x, np.sin(6.0 * x[:, 0] * x[:, 1]) + np.sin(5.0 * np.abs(x[:, 2])) + 0.1 * rng.normal(size=rows)


def diabetes(rows: int, seed: int) -> tuple[Array, Array]:  # noqa: ARG001 - there are only so many
    x, y = load_diabetes(return_X_y=True)
    some = np.random.default_rng(1).permutation(len(y))[:330]
    return x[some], y[some]


ALL = TABLES | {
    "log-normal": log_normal,
    "steps": steps,
    "hump": humped,
    "heavy tails": heavy,
    "waves": waves,
    "diabetes": diabetes,
}


def tried(model: Model, length: int, x: Array, y: Array, seed: int) -> tuple[livi.LIVIRegressor, float]:
    """A trial, and its CPU seconds."""
    trial = livi.LIVIRegressor(steps=length, num_samples=50, n_jobs=1, random_state=seed).set_params(**model.settings)
    trial._is_trial = True
    began = time.process_time()
    return trial.fit(x, y), time.process_time() - began


def line(name: str, rows: int, seed: int) -> str:
    """Scores and CPU seconds of all trials; those that would be left out are in brackets."""
    x, y = ALL[name](rows, seed)
    fitted, held = model_trial_rows(len(y), seed)
    both = np.concatenate([fitted, held])
    models = candidates("auto", "auto", y)
    cells, scores, kept = [], {}, models
    for model in models:
        trial, seconds = tried(model, TRIAL_STEPS, x[fitted], y[fitted], seed)
        scores[model] = float(trial.log_density(x[held], y[held]).mean())
        if model == models[0]:
            kept = plausible(models, x[both], y[both], *trial.predict(x[both], return_std=True))
        cell = f"{model.label} {scores[model]:.3f}, {seconds:.1f} s"
        cells.append(cell if model in kept else f"({cell})")
    model = sampled_like(max(scores, key=lambda each: scores[each]))
    if model is not None:
        made = [tried(model, length, x[fitted], y[fitted], seed) for length in LENGTHS]
        found = [f"{trial.log_density(x[held], y[held]).mean():.3f}, {seconds:.1f} s" for trial, seconds in made]
        cells.append(f"{model.label} " + "; ".join(found))
    return f"| {name} | {len(y):,} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choose_looks", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="300,2000")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--tables", default=",".join(ALL))
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    tried(Model("plain", "constant"), 2, *TABLES["friedman-1"](80, 0), 0)  # what is only slow the first time
    sizes = list(map(int, chosen.rows.split(",")))
    for name in chosen.tables.split(","):
        for rows in sizes[:1] if name == "diabetes" else sizes:
            print(line(name, rows, chosen.seed), flush=True)


if __name__ == "__main__":
    main()
