"""Which settings suit the rivals that learn an entropy, and `livi.fit_density`: on data that no table reports.

    python -m benchmarks.choose_rivals [--jobs 4] [--seeds 0,1,2]         # AVB, KIVI, SIVI, MNF: held-out NLL
    python -m benchmarks.choose_rivals --only density                     # KL(q || p) in nats

Rivals: 600 steps of every setting from one MAP fit, on two problems of `benchmarks/choose_problems.py`, scored on 1,900
other rows. Densities: 800 steps, on a ring and on a curve in three dimensions, by 256 draws with log q by importance
sampling. Lower is better in both. Every setting differs from the defaults in what its name says.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Normal

import livi
from benchmarks.choose_problems import PROBLEMS
from livi.experiments.spreading import run_all
from livi.network import Layout
from livi.rivals import METHODS

RECIPE = livi.Recipe(steps=600, map_steps=1000, map_restarts=1, num_samples=32)
ON = ("rings", "waves")


def _noise(std: float) -> Callable[[Layout], livi.DiagonalNoise]:
    return lambda layout: livi.DiagonalNoise(layout.num_params, std)


def _width(width: int) -> Callable[[Layout], livi.MLP]:
    def generator(layout: Layout) -> livi.MLP:
        dim = layout.num_params
        return livi.MLP(dim, dim, hidden=(width, width), activation=nn.Tanh, skip=True, offset=True)

    return generator


SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "avb": {
        "default": {},
        "adaptive": {"adaptive": True},
        "rate 1e-3": {"rate": 1e-3},
        "rate 1e-2": {"rate": 1e-2},
        "100 draws": {"num_contrast": 100},
    },
    "kivi": {
        "default": {},
        "prior": {"adaptive": False},
        "ridge 5e-4": {"ridge": 5e-4},
        "ridge 5e-2": {"ridge": 5e-2},
        "50 draws": {"num_contrast": 50},
    },
    "sivi": {
        "default": {},
        "noise 0.003": {"noise": _noise(0.003)},
        "noise 0.05": {"noise": _noise(0.05)},
        "noise 0.2": {"noise": _noise(0.2)},
        "20 mixing draws": {"num_mixing": 20},
    },
    "mnf": {
        "default": {},
        "1 step": {"flow_steps": 1},
        "4 steps": {"flow_steps": 4},
        "20 units": {"hidden": 20},
    },
    "density": {
        "default": {},
        "cold": {"annealing": 0.0},
        "annealing 0.8": {"annealing": 0.8},
        "32 units": {"generator": _width(32)},
        "128 units": {"generator": _width(128)},
        "noise 0.003": {"noise": livi.FixedNoise(0.003)},
        "noise 0.03": {"noise": livi.FixedNoise(0.03)},
    },
}


# --- densities ------------------------------------------------------------------------------------


def ring(x: Tensor) -> Tensor:  # (S, 2) -> (S,), without its normaliser
    return -0.5 * ((x.square().sum(1).add(1e-6).sqrt() - 2.0) / 0.4).square()


def curve(x: Tensor) -> Tensor:  # (S, 3) -> (S,)
    first, second = Normal(0.0, 1.0).log_prob(x[:, 0]), Normal(torch.sin(2.0 * x[:, 0]), 0.3).log_prob(x[:, 1])
    return first + second + Normal(x[:, 0] * x[:, 1], 0.5).log_prob(x[:, 2])


def _ring_normaliser() -> float:
    """log of 2 pi times the integral of r exp(-((r - 2) / 0.4)^2 / 2)."""
    radius = torch.linspace(0.0, 6.0, 6001, dtype=torch.float64)
    heights = radius * torch.exp(-0.5 * ((radius - 2.0) / 0.4).square())
    return math.log(2.0 * math.pi * float(torch.trapezoid(heights, radius)))


DENSITIES: dict[str, tuple[Callable[[Tensor], Tensor], int, float]] = {
    "ring": (ring, 2, _ring_normaliser()),
    "curve": (curve, 3, 0.0),
}


# --- runs -----------------------------------------------------------------------------------------


def run(job: tuple[str, str, str, int], steps: int | None) -> dict[str, Any]:
    """One fit, ready for JSON."""
    method, setting, problem, seed = job
    torch.set_num_threads(1)
    options = SETTINGS[method][setting]
    score = _density if method == "density" else _rival
    row: dict[str, Any] = {"method": method, "setting": setting, "problem": problem, "seed": seed, "score": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            row["score"] = score(method, options, problem, seed, steps)
        except livi.FitError as error:
            row["error"] = str(error)
    return row


def _rival(method: str, options: dict[str, Any], name: str, seed: int, steps: int | None) -> float:
    problem = PROBLEMS[name]
    x, y = problem.rows(torch.Generator().manual_seed(seed))
    train, held_out = slice(0, problem.count), slice(-problem.held_out, None)
    torch.manual_seed(seed)
    recipe = RECIPE if steps is None else RECIPE.lasting(steps)
    same = {"recipe": recipe, "seed": seed, "progress": False}
    net, likelihood = problem.network(), problem.likelihood()
    posterior = METHODS[method].fit(net, (x[train], y[train]), likelihood, **same, **options)
    return livi.metrics.nll(posterior.predict(x[held_out]), y[held_out])


def _density(_: str, options: dict[str, Any], name: str, seed: int, steps: int | None) -> float:
    log_prob, dim, log_normaliser = DENSITIES[name]
    q = livi.fit_density(log_prob, dim, steps=steps or 800, seed=seed, progress=False, **options)
    found = q.diagnose(256, num_importance=64, rng=torch.Generator().manual_seed(seed))
    return log_normaliser - found.elbo.value


def table(rows: list[dict[str, Any]], method: str) -> str:
    """Mean over seeds, and the least and the largest."""
    own = [row for row in rows if row["method"] == method]
    problems = list(dict.fromkeys(row["problem"] for row in own))
    lines = [f"| {method} | " + " | ".join(problems) + " |", "|---" * (len(problems) + 1) + "|"]
    for setting in SETTINGS[method]:
        scores = [[row["score"] for row in own if (row["setting"], row["problem"]) == (setting, p)] for p in problems]
        lines.append(f"| {setting} | " + " | ".join(map(_cell, scores)) + " |")
    return "\n".join(lines)


def _cell(scores: list[float | None]) -> str:
    found = [score for score in scores if score is not None]
    failed = f", {len(scores) - len(found)} failed" if len(found) < len(scores) else ""
    if not found:
        return failed.removeprefix(", ")
    spread = f" ({min(found):.3f} to {max(found):.3f})" if len(found) > 1 else ""
    return f"{np.mean(found):.3f}{spread}{failed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="avb,kivi,sivi,mnf", help="of avb, kivi, sivi, mnf, density")
    parser.add_argument("--seeds", default="0", help="separated by commas")
    parser.add_argument("--steps", type=int, help="of every fit")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    methods, seeds = chosen.only.split(","), [int(seed) for seed in chosen.seeds.split(",")]
    jobs = [
        (method, setting, problem, seed)
        for seed in seeds
        for method in methods
        for setting in SETTINGS[method]
        for problem in (DENSITIES if method == "density" else ON)
    ]
    rows: list[dict[str, Any]] = []
    for row in run_all(partial(run, steps=chosen.steps), jobs, chosen.jobs):
        rows.append(row)
        if chosen.out is not None:
            chosen.out.write_text(json.dumps(rows, indent=1))
    print("\n\n".join(table(rows, method) for method in methods))


if __name__ == "__main__":
    main()
