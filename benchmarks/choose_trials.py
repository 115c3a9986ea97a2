"""How well the short fits that choose a model of a table predict its whole fit: log scores of both.

    python -m benchmarks.choose_trials [--rows 420] [--seed 0]

The tables of `benchmarks.choose_table_steps`, scored on 2,000 new rows. A trial is to say which of constant and varying
noise a whole fit would be better with: in each column, compare the two lines of a table.
"""

from __future__ import annotations

import argparse
import time
import warnings
from contextlib import ExitStack
from unittest import mock

import numpy as np

import livi
from benchmarks.choose_table_steps import NEW, TABLES
from livi.tables.estimators import regressor
from livi.tables.estimators.model_choice import TRIAL_NUM_SAMPLES, TRIAL_STEPS

WAYS = {  # steps, where a constant noise starts, and whether by few samples a step
    f"{TRIAL_STEPS} steps from a noise of 1": (TRIAL_STEPS, False, False),
    "from a linear model's": (TRIAL_STEPS, True, False),
    f"{TRIAL_NUM_SAMPLES} samples a step": (TRIAL_STEPS, True, True),
    "whole fit": (None, True, False),
}


def score(name: str, rows: int, seed: int, noise: str, way: tuple[int | None, bool, bool]) -> tuple[float, float]:
    """The mean log density of new targets, and CPU seconds of the fit."""
    steps, linear, brief = way
    x, y = TABLES[name](rows + NEW, seed)
    model = livi.LIVIRegressor(steps=steps, target_scale="plain", noise=noise, n_jobs=1, random_state=seed)
    model._is_trial = brief
    with ExitStack() as changed:
        if not linear:
            changed.enter_context(mock.patch.object(regressor, "first_noise", return_value=1.0))
        began = time.process_time()
        model.fit(x[:rows], y[:rows])
    seconds = time.process_time() - began
    return float(np.mean(model.log_density(x[rows:], y[rows:]))), seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choose_trials", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=420)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    score("friedman-1", 80, 0, "constant", (2, True, False))  # what is only slow the first time
    print("| table | noise | " + " | ".join(WAYS) + " |\n" + "|---" * (len(WAYS) + 2) + "|", flush=True)
    for name in TABLES:
        for noise in ("constant", "varying"):
            found = [score(name, chosen.rows, chosen.seed, noise, way) for way in WAYS.values()]
            print(f"| {name} | {noise} | " + " | ".join(f"{a:.3f}, {b:.1f} s" for a, b in found) + " |", flush=True)


if __name__ == "__main__":
    main()
