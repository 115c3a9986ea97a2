"""How long to run chains on larger tables: log score and RMSE of `LIVIRegressor(noise="network")` by their steps.

    LIVI_DATA_DIR=... python -m benchmarks.choose_chain_steps [--data kin8nm,power] [--splits 10,11] [--jobs 2]
    LIVI_DATA_DIR=... python -m benchmarks.choose_chain_steps --steps 5000,3000,2000 --out steps.json

Training rows alone of UCI sets: a fifth of them is held out (`benchmarks.bench_truth`), and fits of all lengths are
scored on it. Differences are to the longest, row by row, ± their standard error. A step takes two gradients on all
rows, so that chains on thousands of them are nearly all of what a fit costs.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import livi
from benchmarks.bench_truth import held_out
from livi.experiments.scoreboard import standard_error
from livi.experiments.spreading import run_all
from livi.experiments.table_scores import LEVEL


def fitted(job: tuple[str, int, int]) -> dict[str, Any]:
    """A fit of one length, scored on the held-out rows."""
    name, number, steps = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    split = held_out(name, number)
    model = livi.LIVIRegressor(target_scale="plain", noise="network", steps=steps, random_state=number)
    began = time.process_time()
    model.fit(split.inputs, split.targets)
    seconds = time.process_time() - began
    lower, upper = model.predict_interval(split.test_inputs, 1.0 - LEVEL).T
    held = (lower <= split.test_targets) & (split.test_targets <= upper)
    away = split.test_targets - model.predict(split.test_inputs)
    return {
        "data": name,
        "split": number,
        "steps": steps,
        "rows": len(split.targets),
        "log_scores": model.log_density(split.test_inputs, split.test_targets).tolist(),
        "errors": away.tolist(),
        "held": float(held.mean()),
        "rhat": model.posterior_.plan["polish"]["rhat"],
        "cpu_seconds": seconds,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown, a line for each set and length, splits together."""
    lines = ["| data | steps | log score | more than the longest | RMSE | held | CPU s |", "|---" * 7 + "|"]
    for name in dict.fromkeys(row["data"] for row in rows):
        own = sorted((row for row in rows if row["data"] == name), key=lambda row: (-row["steps"], row["split"]))
        longest = np.concatenate([row["log_scores"] for row in own if row["steps"] == own[0]["steps"]])
        for steps in dict.fromkeys(row["steps"] for row in own):
            those = [row for row in own if row["steps"] == steps]
            scores = np.concatenate([row["log_scores"] for row in those])
            lead = "" if steps == own[0]["steps"] or len(scores) != len(longest) else _lead(scores - longest)
            rmse = math.sqrt(np.mean(np.square(np.concatenate([row["errors"] for row in those]))))
            held, seconds = (np.mean([row[key] for row in those]) for key in ("held", "cpu_seconds"))
            lines.append(
                f"| {name} | {steps:,} | {scores.mean():.4f} | {lead} | {rmse:.4g} | {held:.1%} | {seconds:.0f} |"
            )
    return "\n".join(lines)


def _lead(differences: np.ndarray) -> str:
    return f"{differences.mean():+.4f} ± {standard_error(differences):.4f}"


def main() -> None:
    about = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choose_chain_steps", description=about)
    parser.add_argument("--data", default="kin8nm,power")
    parser.add_argument("--splits", default="10,11")
    parser.add_argument("--steps", default="5000,2500,1500")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    given = parser.parse_args()

    jobs = [
        (name, split, steps)
        for steps in map(int, given.steps.split(","))
        for split in map(int, given.splits.split(","))
        for name in given.data.split(",")
    ]
    rows = list(run_all(fitted, jobs, given.jobs))
    if given.out is not None:
        given.out.write_text(json.dumps(rows), encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
