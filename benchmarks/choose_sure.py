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
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
import torch

import livi
from benchmarks.bench_truth import held_out
from benchmarks.choose_looks import tried
from livi.tables.estimators.model_choice import (
    CHAIN_STEPS,
    SHORT_CHAIN_STEPS,
    TRIAL_STEPS,
    best_of,
    is_ahead,
    leads,
    model_trial_rows,
    plausible,
    simplest_of,
)
from livi.tables.estimators.scaling import Array
from livi.tables.estimators.target_models import Model, candidates, sampled_like


class Rule(NamedTuple):
    """When chains are taken: a rule like `livi.tables.estimators.model_choice.chosen`, with other limits."""

    min_lead: float  # standard errors by which they must lead
    min_long_lead: float | None = None  # the same where the other model has as long a trial; None: it has none
    short_trial: bool = True  # whether they have one before their trial, where the other model has constant noise

    def chosen(self, models: Sequence[Model], score: Callable[..., Array]) -> Model:
        scores = {model: score(model) for model in models}
        best, simplest = best_of(scores), simplest_of(scores)
        chains = sampled_like(best)
        if chains is None:
            return simplest
        short = self.short_trial and best.noise == "constant"
        if short and not is_ahead(score(chains, SHORT_CHAIN_STEPS), scores[best]):
            return simplest
        ahead = leads(score(chains), scores[simplest], self.min_lead)
        if ahead and self.min_long_lead is not None:
            ahead = leads(score(chains), score(simplest, CHAIN_STEPS), self.min_long_lead)
        return chains if ahead else simplest


RULES = {
    "always": Rule(-math.inf),
    "ahead": Rule(0.0),
    "ahead of one as long": Rule(0.0, 0.0),
    "ahead, and not clearly behind one as long": Rule(0.0, -1.64),
    "not clearly behind one as long": Rule(-math.inf, -1.64),
    "1 standard error": Rule(1.0),
    "1.64 standard errors": Rule(1.64),
    "no short trial, ahead": Rule(0.0, short_trial=False),
    "no short trial, ahead of one as long": Rule(0.0, 0.0, short_trial=False),
    "no short trial, ahead, and not clearly behind one as long": Rule(0.0, -1.64, short_trial=False),
}


def compare(name: str, number: int, steps: int | None) -> dict[str, tuple[str, float]]:
    """By rule, what is chosen, and its log score on the held-out rows."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    split = held_out(name, number)
    inputs, targets = split.inputs, split.targets
    fitted, scored = model_trial_rows(len(targets), number)

    @functools.cache
    def trial(model: Model, length: int) -> livi.LIVIRegressor:
        return tried(model, min(length, steps or length), inputs[fitted], targets[fitted], number)[0]

    def score(model: Model, length: int | None = None) -> Array:
        made = trial(model, length or (CHAIN_STEPS if model.noise == "network" else TRIAL_STEPS))
        return made.log_density(inputs[scored], targets[scored])

    @functools.cache
    def worth(model: Model) -> float:
        made = livi.LIVIRegressor(steps=steps, random_state=number).set_params(**model.settings).fit(inputs, targets)
        return float(made.log_density(split.test_inputs, split.test_targets).mean())

    models = [model for model in candidates("auto", "auto", targets) if model.target_scale != "count"]
    both = np.concatenate([fitted, scored])
    models = plausible(
        models, inputs[both], targets[both], *trial(models[0], TRIAL_STEPS).predict(inputs[both], return_std=True)
    )
    found = {}
    for title, rule in RULES.items():
        best = rule.chosen(models, score)
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
