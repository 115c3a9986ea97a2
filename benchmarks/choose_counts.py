"""How long fits of small count tables should be: held-out log scores of schedules, on simulated tables.

    python -m benchmarks.choose_counts [--seeds 0,1,2] [--ways usual,short] [--jobs 2]

240 rows of two or three columns, so that the network of `LIVIRegressor` has at most 300 weights, scored on 2,000 new
rows. Every way fits the same model, with the noise that the counts were drawn with. CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from livi.experiments.scoreboard import markdown, standard_error
from livi.experiments.spreading import run_all
from livi.inference import Recipe
from livi.tables.estimators import LIVIRegressor

ROWS, HELD_OUT = 240, 2000
Array = NDArray[np.float64]


def exponential(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    x = rng.normal(size=(count, 2))
    return x, rng.poisson(np.exp(x[:, 0])).astype(float)


def large(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    x = rng.normal(size=(count, 2))
    return x, rng.poisson(np.exp(5 + 0.7 * x[:, 0])).astype(float)


def dispersed(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    x = rng.uniform(-2, 2, size=(count, 3))
    mean = np.exp(1 + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1])
    return x, rng.negative_binomial(3, 3 / (3 + mean)).astype(float)


TABLES: dict[str, tuple[Callable[..., tuple[Array, Array]], str]] = {
    "exponential": (exponential, "poisson"),
    "large": (large, "poisson"),
    "dispersed": (dispersed, "negative-binomial"),
}

FROM_MAP = {"map_steps": 1000, "map_restarts": 4, "num_samples": 64, "num_entropy_samples": 4}
WAYS: dict[str, Recipe | None] = {
    "usual": None,  # by the rules of `livi.fit` for so few weights: 4,000 steps of twice as many samples as weights
    "short": Recipe(steps=1000, **FROM_MAP),
    "middle": Recipe(steps=2000, **FROM_MAP),
}


def run(job: tuple[str, int, str]) -> dict[str, Any]:
    """One fit: log probabilities of new rows, and seconds."""
    name, seed, way = job
    torch.set_num_threads(1)
    draw, noise = TABLES[name]
    x, y = draw(np.random.default_rng(seed), ROWS + HELD_OUT)
    model = LIVIRegressor(target_scale="count", noise=noise, n_jobs=1, random_state=seed)
    began = time.process_time()
    with mock.patch.object(LIVIRegressor, "_recipe", return_value=WAYS[way]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x[:ROWS], y[:ROWS])
    seconds = time.process_time() - began
    return {"name": name, "seed": seed, "way": way, "scores": model.log_density(x[ROWS:], y[ROWS:]), "seconds": seconds}


def table(rows: list[dict[str, Any]]) -> str:
    """Mean log score by table and way, how much more than the usual way's on the same rows, and mean CPU seconds."""
    lines = []
    for name, way in dict.fromkeys((row["name"], row["way"]) for row in rows):
        own = {row["seed"]: row for row in rows if (row["name"], row["way"]) == (name, way)}
        usual = {row["seed"]: row for row in rows if (row["name"], row["way"]) == (name, "usual")}
        more = [float(np.mean(own[seed]["scores"] - usual[seed]["scores"])) for seed in own if seed in usual]
        lead = f"{np.mean(more):+.4f} ± {standard_error(more) or 0.0:.4f}" if more and way != "usual" else ""
        score = float(np.mean([row["scores"].mean() for row in own.values()]))
        seconds = float(np.mean([row["seconds"] for row in own.values()]))
        lines.append([name, way, f"{score:.4f}", lead, f"{seconds:.0f}"])
    return markdown(["table", "schedule", "log score", "more than the usual", "CPU s"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args()
    seeds = [int(seed) for seed in chosen.seeds.split(",")]
    jobs = [(name, seed, way) for way, seed, name in product(chosen.ways.split(","), seeds, chosen.tables.split(","))]
    rows = []
    for row in run_all(run, jobs, chosen.jobs):
        rows.append(row)
        print(
            f"{row['name']} {row['seed']} {row['way']}: {row['scores'].mean():.4f}, {row['seconds']:.0f} s", flush=True
        )
    order = {job: place for place, job in enumerate(jobs)}
    print(table(sorted(rows, key=lambda row: order[row["name"], row["seed"], row["way"]])))


if __name__ == "__main__":
    main()
