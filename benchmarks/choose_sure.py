"""By how much chains must lead in their trial: what several rules choose, and how good the chosen fits are.

    LIVI_DATA_DIR=... python -m benchmarks.choose_sure [--data boston,concrete,...] [--splits 10,11,12] [--jobs 2]
    LIVI_DATA_DIR=... python -m benchmarks.choose_sure --data kin8nm,naval,power --splits 10

Training rows alone of UCI sets and of scikit-learn's diabetes: a fifth of them is held out, `LIVIRegressor` makes its
choice on the others by each rule, and what was chosen is fitted to them in full and scored on the fifth.
"""

from __future__ import annotations

import argparse
import functools
import math
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
import torch

import livi
from benchmarks.bench_truth import held_out
from benchmarks.choose_looks import tried
from livi.tables.estimators.choice import (
    LOOK_STEPS,
    SAMPLED_STEPS,
    STEPS,
    Model,
    candidates,
    chosen,
    plausible,
    sampled_like,
    trial_rows,
)
from livi.tables.estimators.scaling import Array


class Rule(NamedTuple):
    """When chains are taken."""

    sure: float  # standard errors by which they must lead
    of_longer: float | None = None  # the same where the other model has a trial as long as theirs; None: it has none
    look: bool = True  # whether they have a look before their trial, where the other model has constant noise


RULES = {
    "always": Rule(-math.inf),
    "ahead": Rule(0.0),
    "ahead of one as long": Rule(0.0, 0.0),
    "ahead, and not clearly behind one as long": Rule(0.0, -1.64),
    "not clearly behind one as long": Rule(-math.inf, -1.64),
    "1 standard error": Rule(1.0),
    "1.64 standard errors": Rule(1.64),
    "no look, ahead": Rule(0.0, look=False),
    "no look, ahead of one as long": Rule(0.0, 0.0, look=False),
    "no look, ahead, and not clearly behind one as long": Rule(0.0, -1.64, look=False),
}


def compare(name: str, number: int, steps: int | None) -> dict[str, tuple[str, float]]:
    """By rule, what is chosen, and its log score on the held-out rows."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    split = held_out(name, number)
    inputs, targets = split.inputs, split.targets
    fitted, scored = trial_rows(len(targets), number)

    @functools.cache
    def trial(model: Model, length: int) -> livi.LIVIRegressor:
        return tried(model, min(length, steps or length), inputs[fitted], targets[fitted], number)[0]

    def score(model: Model, length: int | None = None) -> Array:
        made = trial(model, length or (SAMPLED_STEPS if model.noise == "network" else STEPS))
        return made.log_density(inputs[scored], targets[scored])

    @functools.cache
    def worth(model: Model) -> float:
        made = livi.LIVIRegressor(steps=steps, random_state=number).set_params(**model.settings).fit(inputs, targets)
        return float(made.log_density(split.test_inputs, split.test_targets).mean())

    models = [model for model in candidates("auto", "auto", targets) if model.target_scale != "count"]
    both = np.concatenate([fitted, scored])
    models = plausible(
        models, inputs[both], targets[both], *trial(models[0], STEPS).predict(inputs[both], return_std=True)
    )
    found = {}
    for title, rule in RULES.items():
        longer = None if rule.of_longer is None else (lambda model: score(model, SAMPLED_STEPS))
        look = functools.partial(score, length=LOOK_STEPS) if rule.look else None
        best, _ = chosen(models, score, sampled_like, look, longer, rule.sure, rule.of_longer or 0.0)
        found[title] = best.label, worth(best)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choose_sure", description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="boston,concrete,diabetes,energy,wine-red,yacht")
    parser.add_argument("--splits", default="10,11,12")
    parser.add_argument("--steps", type=int, help="of every fit, to see that it works")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    cases = [(name, int(number)) for number in given.splits.split(",") for name in given.data.split(",")]
    print(f"| | {' | '.join(RULES)} |\n|{'---|' * (len(RULES) + 1)}")
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        runs = pool.map(compare, *zip(*cases, strict=True), [given.steps] * len(cases))
        rows = []
        for (name, number), row in zip(cases, runs, strict=True):
            cells = [f"{label} {score:.3f}" for label, score in row.values()]
            print(f"| {name} {number} | " + " | ".join(cells) + " |", flush=True)
            rows.append([score for _, score in row.values()])
    print("| mean | " + " | ".join(f"{value:.3f}" for value in np.mean(rows, 0)) + " |")


if __name__ == "__main__":
    main()
