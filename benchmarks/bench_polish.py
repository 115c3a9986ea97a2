"""Held-out NLL of a plain network, fits and ensembles, before and after `livi.polish`.

    python -m benchmarks.bench_polish --seeds 3 --out polish.json
    python -m benchmarks.bench_polish --read polish.json

Problems of `benchmarks/choose_problems.py` that no published table uses: heteroscedastic regression with 1-16-16-2 to
10-16-16-2 networks. A network is trained plainly; every start is from it or, for ensembles, from fresh weights too.
Seconds are of one thread's CPU time, and of a polished posterior its start's are included.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import livi
from benchmarks.choose_fit import train_plainly
from benchmarks.choose_problems import PROBLEMS
from livi.family.ensemble import Ensemble
from livi.network import Layout
from livi.posterior.metrics import nll
from livi.rivals import fit_ensemble

QUICK = ("--only", "waves", "--seeds", "1")
FULL = ("--seeds", "3")

NAMES = ("waves", "friedman-1", "friedman-2")
CHAINS = 16


def alone(net: nn.Module, posterior: livi.Posterior) -> livi.Posterior:
    """Of one network, with the prior and likelihood of a fit to it."""
    layout = Layout(net)
    return livi.Posterior(Ensemble(layout, layout.flatten()[None]), posterior.likelihood, posterior.prior)


def run(name: str, seed: int) -> list[dict[str, Any]]:
    """All ways on one problem."""
    problem = PROBLEMS[name]
    x, y = problem.rows(torch.Generator().manual_seed(seed))
    train, held = (x[: problem.count], y[: problem.count]), (x[-problem.held_out :], y[-problem.held_out :])
    rows: list[dict[str, Any]] = []

    def timed(way: str, make: Callable[[], livi.Posterior], before: float = 0.0) -> tuple[livi.Posterior, float]:
        started = time.process_time()
        made = make()
        seconds = before + time.process_time() - started
        row = {"way": way, "problem": name, "seed": seed, "seconds": seconds}
        row["nll"] = nll(made.predict(held[0], num_samples=400), held[1])
        row["polish"] = made.plan.get("polish")
        rows.append(row)
        print(f"{name} {seed} {way}: NLL {row['nll']:.3f}, {seconds:.1f} s", flush=True)
        return made, seconds

    def fit(steps: int | None = None, polish: bool | None = False, samples: int | None = None) -> livi.Posterior:
        options = {"start": "net", "seed": seed, "steps": steps, "polish": polish, "progress": False}
        recipe = None if samples is None else livi.Recipe(num_samples=samples)
        return livi.fit(net, train, problem.likelihood(), recipe=recipe, **options)

    def polished(way: str, start: livi.Posterior, before: float, steps: int = 1000) -> None:
        timed(
            f"{way}, polished" + ("" if steps == 1000 else f" {steps:,} steps"),
            lambda: livi.polish(start, train, chains=CHAINS, steps=steps, seed=seed, progress=False),
            before,
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.process_time()
        net = train_plainly(problem, *train, seed)
        training = time.process_time() - began
        short, seconds = timed("fit of 300 steps", lambda: fit(300), training)
        plain = alone(net, short)
        timed("plain network", lambda: plain, training)
        polished("plain network", plain, training)
        polished("fit of 300 steps", short, seconds)
        few, seconds = timed("fit of 300 steps of 16 samples", lambda: fit(300, samples=16), training)
        for steps in (500, 1000):
            polished("fit of 300 steps of 16 samples", few, seconds, steps)
        for length in (300, 1500):
            made = lambda length=length: fit_ensemble(  # noqa: E731
                net, train, problem.likelihood(), members=CHAINS, steps=length, seed=seed
            )
            cold, seconds = timed(f"16 MAP fits of {length:,} steps", made)
            for steps in (500, 1000):
                polished(f"16 MAP fits of {length:,} steps", cold, seconds, steps)
        full, seconds = timed("`livi.fit(polish=False)`", fit, training)
        polished("`livi.fit(polish=False)`", full, seconds)
        timed("`livi.fit`", lambda: fit(polish=None), training)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Mean and range over seeds of NLL for each way and problem, mean seconds, and R-hat of predictions."""
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    lines = ["| | " + " | ".join(problems) + " | CPU seconds | R-hat |", "|---" * (len(problems) + 3) + "|"]
    for way in dict.fromkeys(row["way"] for row in rows):
        own = [row for row in rows if row["way"] == way]
        cells = []
        for problem in problems:
            found = [row["nll"] for row in own if row["problem"] == problem]
            cells.append(f"{np.mean(found):.3f} ({min(found):.2f} to {max(found):.2f})" if found else "")
        seconds = np.mean([row["seconds"] for row in own])
        rhat = [row["polish"]["rhat"][0] for row in own if row["polish"]]
        agreement = f"{np.mean(rhat):.2f}" if rhat else ""
        lines.append(f"| {way} | " + " | ".join(cells) + f" | {seconds:.0f} | {agreement} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(NAMES), help="problems, separated by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--read", type=Path, help="print the table of results that were written by --out")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows = [] if chosen.read is None else json.loads(chosen.read.read_text())
    for seed in range(chosen.seeds if chosen.read is None else 0):
        for name in chosen.only.split(","):
            rows += run(name, seed)
            if chosen.out is not None:
                chosen.out.write_text(json.dumps(rows, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
