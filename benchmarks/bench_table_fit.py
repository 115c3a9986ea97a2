"""`LIVIRegressor()` on small and middle tables: CPU seconds and log score, beside an earlier livi in the same run.

python -m benchmarks.bench_table_fit [--rows N,...] [--seeds N,...] [--before FOLDER]

Friedman's first function with unit noise, scored on 2,000 new rows. FOLDER is a checkout of an earlier livi
(`git worktree add FOLDER COMMIT`). Every fit is a process of its own, with one thread. What torch imports at the
first step and the first gradient of any program (about two seconds, once) it does before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

QUICK = ("--rows", "300", "--seeds", "0")
FULL = ("--rows", "300,700,2000,5000", "--seeds", "0,1,2")
HERE = Path(__file__).parents[1]
FIT = """
import json, sys, time, warnings
import numpy as np, torch
from sklearn.datasets import make_friedman1
import livi
warnings.simplefilter("ignore")
torch.set_num_threads(1)
Regressor = livi.LIVIRegressor
weight = torch.ones(1, requires_grad=True)
weight.grad, = torch.autograd.grad(weight.sum(), weight)
torch.optim.Adam([weight]).step()
rows, seed = map(int, sys.argv[1:])
X, y = make_friedman1(rows + 2000, noise=1.0, random_state=seed)
begun = time.process_time()
model = Regressor(random_state=seed).fit(X[:rows], y[:rows])
seconds = time.process_time() - begun
mean, std = model.predict(X[rows:], return_std=True)
score = np.mean(-0.5 * ((y[rows:] - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2.0 * np.pi))
print(json.dumps({"seconds": seconds, "log_score": float(score)}))
"""


def fitted(folder: Path, rows: int, seed: int) -> dict[str, Any]:
    """A fit by the livi in this folder; the log score is that of a Gaussian with the predicted moments."""
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", FIT, str(rows), str(seed)]
    done = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_table_fit", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="300,700,2000")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier livi")
    chosen = parser.parse_args()
    folders = ({} if chosen.before is None else {"before": chosen.before.resolve()}) | {"now": HERE}
    print("| rows | livi | CPU s | share | log score |\n|---|---|---|---|---|", flush=True)
    for rows in map(int, chosen.rows.split(",")):
        first = None
        for name, folder in folders.items():
            found = [fitted(folder, rows, int(seed)) for seed in chosen.seeds.split(",")]
            seconds, score = (mean(each[key] for each in found) for key in ("seconds", "log_score"))
            first = first or seconds
            print(f"| {rows:,} | {name} | {seconds:.1f} | {seconds / first:.2f} | {score:.3f} |", flush=True)


if __name__ == "__main__":
    main()
