"""Coverage of 90 % intervals, and the log score, of fits by several settings, row by row.

    LIVI_DATA_DIR=... python -m benchmarks.choose_intervals [--data boston,concrete,energy,yacht] [--splits 10,11]
    LIVI_DATA_DIR=... python -m benchmarks.choose_intervals --ways floor@1e-3,floor@1e-4 --data naval --splits 10
    LIVI_DATA_DIR=... python -m benchmarks.choose_intervals --ways gelu,outliers@0.001,fitted@0.001,student@8
    LIVI_DATA_DIR=... python -m benchmarks.choose_intervals --ways spread@1,spread@0.95,spread@0.95~0.05 --jobs 2

Training rows alone of UCI sets: a fifth of them is held out (`benchmarks.bench_truth`). Ways of that command are held
against the first of them; `floor@1e-3` is `LIVIRegressor(target_scale="plain", noise="varying")` with a noise of that
many standard deviations of the target at least, and `wide@1e-3` the same from weights that start as far apart for many
rows as for few. `outliers@0.001`, `narrowed@0.9`, `fitted@0.001` and `student@8` have heavier tails
(`benchmarks.noise_tails`). `spread@0.95` is `LIVIRegressor()` with all spread of chains times that, and
`spread@0.95~0.05` with the factor that the held-out rows of its own trial make most likely, where 0.95 is usual and its
logarithm differs by 0.05 from table to table. Where it takes no chains there is nothing to choose.
Differences of log scores are cut off at 3 nats a row, as in the trials of `LIVIRegressor`: energy has a row or two that
no way foresees, and they would decide alone.

The rule: of the ways whose log score, averaged over sets, is not more than a standard error below the best, the one
whose intervals are nearest to holding 90 %, by the mean over sets of how far they are from it.
"""

from __future__ import annotations

import argparse
import copy
import functools
import warnings
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

import livi
from benchmarks import noise_tails
from benchmarks.bench_truth import STEPS, held_out, predicted
from livi.experiments.scoreboard import standard_error
from livi.experiments.spreading import run_all
from livi.experiments.table_data import Split
from livi.experiments.table_scores import LEVEL, Array
from livi.inference.rules import Size
from livi.posterior.prediction import RegressionPrediction
from livi.tables.estimators import model_trials, regressor
from livi.tables.estimators.model_choice import MAX_ROW_LEAD
from livi.tables.estimators.spread import likely_spread


def answered(name: str, number: int, way: str, most: int) -> tuple[Array, Array, Array]:  # (n,) each
    """Log scores of the held-out rows, whether their intervals hold them, and errors in predicted deviations."""
    split = held_out(name, number)
    if way.partition("@")[0] in noise_tails.WAYS:
        found = noise_tails.tailed(split, number, way, most)
    elif way.startswith("spread@"):
        found = spread(split, number, way, most)
    else:
        found = floored(split, number, way, most) if "@" in way else predicted(split, number, way, most)[0]
    targets = torch.from_numpy(split.test_targets).to(found.mean)
    lower, upper = found.interval(LEVEL)
    inside = (lower <= targets) & (targets <= upper)
    away = (targets - found.mean) / found.total_std
    return found.log_prob(targets).numpy(), inside.double().numpy(), away.numpy()


def answered_by_all(job: tuple[str, int], ways: list[str], most: int) -> dict[str, Any]:
    """`answered` by every way, on one split."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return {"job": job, "parts": {way: answered(*job, way, most) for way in ways}}


def floored(split: Split, number: int, way: str, most: int) -> RegressionPrediction:
    """Predictions of a fit whose noise varies and has this floor."""
    start, _, floor = way.partition("@")
    model = livi.LIVIRegressor(target_scale="plain", noise="varying", random_state=number)
    model.set_params(steps=most if most < STEPS else None)
    with ExitStack() as patches:
        patches.enter_context(patch.object(regressor, "VARYING_FLOOR", float(floor)))
        if start == "wide":
            patches.enter_context(patch.object(Size, "narrowing", 1.0))
        model.fit(split.inputs, split.targets)
    bound = np.mean([row["bound"] for row in model.history_[-10:]])
    print(f"{split.name} {number}, {way}: a bound of {bound:.0f} nats in the end", flush=True)
    found = model.predictive(split.test_inputs)
    assert isinstance(found, RegressionPrediction)
    return found


@functools.cache
def chosen(name: str, number: int, most: int) -> tuple[livi.LIVIRegressor, list[tuple[RegressionPrediction, Tensor]]]:
    """`LIVIRegressor()` fitted to the rows that are not held out, and what its trial of chains predicted of others."""
    model = livi.LIVIRegressor(random_state=number, steps=most if most < STEPS else None)
    predictions: list[tuple[RegressionPrediction, Tensor]] = []

    def recorded(prediction: RegressionPrediction, targets: Tensor) -> float:
        predictions.append((prediction, targets))
        return likely_spread(prediction, targets)

    with patch.object(model_trials, "likely_spread", recorded):
        split = held_out(name, number)
        model.fit(split.inputs, split.targets)
    factor = f", spread times {model.target_.spread:.3f}" if predictions else ""
    print(f"{name} {number}: {model.model_}{factor}", flush=True)
    return model, predictions


def spread(split: Split, number: int, way: str, most: int) -> Any:
    """Predictions of the estimator as it comes, with another spread."""
    model, trial = chosen(split.name, number, most)
    usual, _, apart = way.partition("@")[2].partition("~")
    factor = likely_spread(*trial[-1], float(usual), float(apart)) if apart and trial else float(usual)
    own = copy.copy(model)  # the fit is shared by other ways
    own.target_ = replace(model.target_, spread=factor if model.model_.noise == "network" else 1.0)
    return own.predictive(split.test_inputs)


def line(name: str, way: str, parts: tuple[Array, Array, Array], first: Array) -> tuple[str, float, float]:
    """A row of the table; by how much the way leads the first, and the share that its intervals hold."""
    scores, inside, away = parts
    lead = (scores - first).clip(-MAX_ROW_LEAD, MAX_ROW_LEAD)
    error = standard_error(lead)
    middle = np.sqrt(np.mean(np.sort(np.abs(away))[: -max(1, len(away) // 100)] ** 2))
    usual = np.sort(scores)[1:].mean()
    numbers = (
        f"{scores.mean():.3f} | {usual:.3f} | {lead.mean():+.3f} ± {error:.3f} | {inside.mean():.1%} | {middle:.2f}"
    )
    text = f"| {name} | {way} | {numbers} |"
    return text, float(lead.mean()), float(inside.mean())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choose_intervals", description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="boston,concrete,energy,yacht")
    parser.add_argument("--splits", default="10,11")
    parser.add_argument("--ways", default="gelu,cold")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each chain at most, to see that it works")
    parser.add_argument("--jobs", type=int, default=1, help="splits at a time, a process each")
    given = parser.parse_args()
    ways, names = given.ways.split(","), given.data.split(",")
    jobs = [(name, number) for name in names for number in map(int, given.splits.split(","))]
    rows = list(run_all(functools.partial(answered_by_all, ways=ways, most=given.steps), jobs, given.jobs))
    by_job = {tuple(row["job"]): row["parts"] for row in rows}
    print(
        "| data | way | log score | but for the worst row | lead, cut off | held | errors in deviations, but for 1 % |"
    )
    print("|---" * 7 + "|")
    leads: dict[str, list[float]] = {way: [] for way in ways}
    away: dict[str, list[float]] = {way: [] for way in ways}
    for name in names:
        found = {way: [by_job[job][way] for job in jobs if job[0] == name] for way in ways}
        whole: dict[str, Any] = {
            way: tuple(map(np.concatenate, zip(*parts, strict=True))) for way, parts in found.items()
        }
        for way, parts in whole.items():
            text, lead, held = line(name, way, parts, whole[ways[0]][0])
            leads[way].append(lead)
            away[way].append(abs(held - LEVEL))
            print(text, flush=True)
    for way in ways:
        error = standard_error(leads[way]) or 0.0
        print(f"{way}: leads by {np.mean(leads[way]):+.3f} ± {error:.3f}, from 90 % by {np.mean(away[way]):.1%}")


if __name__ == "__main__":
    main()
