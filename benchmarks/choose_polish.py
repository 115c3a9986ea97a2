"""Which Markov chains should follow `livi.fit` by default: held-out scores of several, from draws of the same fit.

    LIVI_DATA_DIR=... python -m benchmarks.choose_polish --out polish-choices.json [--jobs 2]
    LIVI_DATA_DIR=... python -m benchmarks.choose_polish --data boston,yacht --splits 10 --ways long,long-stacked
    python -m benchmarks.choose_polish --read polish-choices.json

The model is what `livi.fit` is given by a user who passes no options: a network of two layers of 16 with mean and noise
as outputs. It is fitted once up to where its chains start, and each way continues from there. UCI sets lend their
training rows alone, of which a fifth is held out (`benchmarks.bench_truth`); waves and friedman are those of
`benchmarks/choose_problems.py`, whose seed is the split. Log scores and RMSEs are in standard deviations of the targets
(UCI) or of the problem. Seconds are CPU seconds of one thread, the fit included.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import livi
from benchmarks.bench_truth import held_out
from benchmarks.choose_problems import PROBLEMS
from livi.experiments.scoreboard import standard_error
from livi.experiments.spreading import run_all
from livi.posterior.posterior import Posterior
from livi.rivals import fit_langevin
from livi.sampling import LANGEVIN_ENSEMBLE, ChainSettings
from livi.tables.estimators.network import build_network
from livi.tables.estimators.scaling import Scaling

LONG = {"warm_up": 0.6, "first_error": 0.5}  # the error of the first steps, which take chains away from the fit
SMALL_STEPS = ChainSettings(chains=16, steps=2000, warm_up=0.3, energy_error=5e-4, first_error=None, weighting="equal")
EIGHT = replace(SMALL_STEPS, chains=8, steps=4000)
WAYS: dict[str, ChainSettings | None] = {
    "fit": None,
    "small": SMALL_STEPS,
    "small-8": EIGHT,
    "long": replace(SMALL_STEPS, energy_error=0.1, **LONG),
    "long-8": replace(EIGHT, energy_error=0.1, **LONG),
    "long-stacked": replace(SMALL_STEPS, energy_error=0.1, weighting="stacked", **LONG),
    "long-8-stacked": replace(LANGEVIN_ENSEMBLE, steps=4000),
    "long-then-small": replace(SMALL_STEPS, energy_error=5e-4, **LONG),
    "long-then-small-8": replace(EIGHT, energy_error=5e-4, **LONG),
    "long-then-middle-8": replace(EIGHT, energy_error=5e-3, **LONG),
    "long-then-small-8-stacked": replace(EIGHT, energy_error=5e-4, weighting="stacked", **LONG),
}
REFERENCE = "small"  # leads are over this way
COLD = {
    "cold": 0.1,
    "cold-then-middle": 5e-3,
    "cold-then-small": 5e-4,
}  # from short MAP fits; the error of their last steps
DEFAULT_DATA = "boston,concrete,energy,yacht,diabetes,waves,friedman-1,friedman-2"
LEVEL = 0.9

Rows = tuple[Tensor, Tensor]


def problem(name: str, number: int) -> tuple[Rows, Rows, nn.Module]:
    """Rows to fit to, rows to score, and the network."""
    if name in PROBLEMS:
        own = PROBLEMS[name]
        x, y = own.rows(torch.Generator().manual_seed(number))
        torch.manual_seed(number)
        return (x[: own.count], y[: own.count]), (x[-own.held_out :], y[-own.held_out :]), own.network()
    split = held_out(name, number)
    counted = np.ones(len(split.inputs))
    inputs, targets = Scaling.of(split.inputs, counted), Scaling.of(split.targets, counted)

    def standardised(rows: Any, values: Any) -> Rows:
        x = torch.tensor(inputs.inputs(rows), dtype=torch.float32)
        return x, torch.tensor(targets.standardise(values), dtype=torch.float32)

    fitted, held = standardised(split.inputs, split.targets), standardised(split.test_inputs, split.test_targets)
    width = fitted[0].shape[1]
    shape = {"hidden": (16, 16), "outputs": 2, "activation": "relu"}
    return fitted, held, build_network(width, **shape, spread=True, seed=number, dtype=torch.float32)


def run(job: tuple[str, int, tuple[str, ...], int]) -> dict[str, Any]:
    """All ways from one fit. Where the fit is lost there is nothing to compare, and its error is the row."""
    name, number, ways, most = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    data, held, net = problem(name, number)
    options: dict[str, Any] = {"seed": number, "progress": False}
    likelihood = livi.HeteroscedasticGaussian
    recipe = livi.plan(net, data, likelihood(), polish=True, seed=number).recipe
    recipe = replace(recipe, steps=min(most, recipe.steps), map_steps=min(most, recipe.map_steps))
    row: dict[str, Any] = {"data": name, "split": number, "rows": len(held[1]), "ways": {}, "error": None}
    began = time.process_time()
    try:
        fit = livi.fit(net, data, likelihood(), polish=False, recipe=recipe, **options)
    except livi.FitError as error:
        return row | {"error": str(error)}
    before = time.process_time() - began
    for way in ways:
        began = time.process_time()
        if way in COLD:
            chosen = {"steps": min(most, 4000), "energy_error": COLD[way], "seed": number, "progress": False}
            made = fit_langevin(net, data, likelihood(), **chosen)
            seconds = time.process_time() - began
        else:
            made = follow(fit, data, WAYS[way], most, number)
            seconds = before + time.process_time() - began
        row["ways"][way] = judged(made, held) | {"seconds": seconds}
    return row


def follow(fit: Posterior, data: Rows, chains: ChainSettings | None, most: int, seed: int) -> Posterior:
    if chains is None:
        return fit
    chains = chains.lasting(most / chains.steps) if most < chains.steps else chains
    return livi.polish(fit, data, seed=seed, progress=False, **asdict(chains))


def judged(posterior: Posterior, held: Rows) -> dict[str, Any]:
    """Log score and squared error of each row, the share of rows in 90 % intervals, and how the chains agree."""
    answer = posterior.predict(held[0], num_samples=400)
    low, high = (answer.quantile(level) for level in (0.5 - LEVEL / 2, 0.5 + LEVEL / 2))
    report = posterior.plan.get("polish") or {}
    return {
        "log_scores": [round(value, 4) for value in answer.log_prob(held[1]).tolist()],
        "squares": [round(value, 6) for value in (answer.mean - held[1]).square().tolist()],
        "inside": float(((low <= held[1]) & (held[1] <= high)).float().mean()),
        "rhat": report.get("rhat", [None])[0],
        "dropped": len(report.get("dropped", ())),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Log score / RMSE by way and data set over its splits, and the mean lead over the reference."""
    held = [row for row in rows if row["error"] is None]
    data = list(dict.fromkeys(row["data"] for row in held))
    lines = ["| | " + " | ".join(data) + f" | lead over {REFERENCE} | in 90 % | R-hat | CPU s |"]
    lines.append("|---" * (len(data) + 5) + "|")
    for way in held[0]["ways"]:
        cells, leads, inside = [], [], []
        for name in data:
            own = [row["ways"] for row in held if row["data"] == name]
            score = np.mean([np.mean(ways[way]["log_scores"]) for ways in own])
            rmse = np.mean([math.sqrt(np.mean(ways[way]["squares"])) for ways in own])
            cells.append(f"{score:.3f} / {rmse:.3f}")
            leads += [np.mean(ways[way]["log_scores"]) - np.mean(ways[REFERENCE]["log_scores"]) for ways in own]
            inside += [ways[way]["inside"] for ways in own]
        rhat = [row["ways"][way]["rhat"] for row in held if row["ways"][way]["rhat"] is not None]
        seconds = np.mean([row["ways"][way]["seconds"] for row in held])
        error = standard_error(leads) or 0.0
        agreement = f"{np.mean(rhat):.2f}" if rhat else ""
        more = f"{np.mean(leads):+.3f} ± {error:.3f} | {np.mean(inside):.1%} | {agreement} | {seconds:.0f}"
        lines.append(f"| {way} | " + " | ".join(cells) + f" | {more} |")
    failed = [f"{row['data']} {row['split']}: {row['error'][:80]}" for row in rows if row["error"] is not None]
    return "\n".join([*lines, *(["", "Lost fits:", *failed] if failed else [])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=DEFAULT_DATA)
    parser.add_argument("--splits", default="10,11,12")
    parser.add_argument("--ways", default=",".join([*WAYS, *COLD]), help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a few steps; the numbers mean nothing")
    parser.add_argument("--out", type=Path, help="a JSON file, written after every fit; what it has is not run again")
    parser.add_argument("--read", type=Path, help="print the table of results that were written by --out")
    chosen = parser.parse_args()
    known = chosen.read or chosen.out
    rows = json.loads(known.read_text()) if known is not None and known.exists() else []
    done = {(row["data"], row["split"]) for row in rows}
    ways = tuple(dict.fromkeys([REFERENCE, *chosen.ways.split(",")]))
    splits = map(int, chosen.splits.split(","))
    most = 40 if chosen.quick else 10**6
    jobs = [(name, split, ways, most) for split, name in product(splits, chosen.data.split(","))]
    waiting = [job for job in jobs if job[:2] not in done] if chosen.read is None else []
    for row in run_all(run, waiting, chosen.jobs):
        rows.append(row)
        print(f"{row['data']} {row['split']} {row['error'] or 'done'}", flush=True)
        if chosen.out is not None:
            chosen.out.write_text(json.dumps(rows), encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
