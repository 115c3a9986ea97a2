"""`livi predict` on long files, and a call for one row: seconds and peak memory, also beside an earlier livi.

python -m benchmarks.bench_predict [--rows N,...] [--threads N,...] [--calls N] [--before FOLDER] [--out FILE]

A made table of 8 numbers, a category and a date; a model of 4,000 of its rows; new rows as CSV. FOLDER is a checkout of
an earlier livi (`git worktree add FOLDER COMMIT`), which fits and predicts the same rows in the same run.

Then `posterior.predict` of one row, by 100 networks of 16 units, on one thread: the quickest of so many calls, and of
as many evaluations of the networks alone. `--rows ""` leaves the files out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from livi.experiments.machine import machine, versions

QUICK = ("--rows", "5000,10000", "--threads", "1", "--calls", "200")
FULL = ("--rows", "20000,200000,1000000", "--threads", "1,2")
HERE = Path(__file__).parents[1]

# A program, since an earlier livi runs it too.
ONE_ROW = """
import json, sys, timeit, torch, livi
from torch import nn
torch.set_num_threads(1)
quickest = lambda call: min(timeit.repeat(call, number=1, repeat=int(sys.argv[1])))
first, last, x = nn.Linear(5, 16), nn.Linear(16, 1), torch.randn(1, 5)
for name, between in (("linear layers", [nn.Tanh()]), ("with LayerNorm", [nn.LayerNorm(16), nn.Tanh()])):
    layout = livi.Layout(nn.Sequential(first, *between, last))
    sampler = livi.ImplicitPosterior(layout, livi.MLP(8, layout.num_params))
    posterior, theta = livi.Posterior(sampler, livi.Gaussian(0.3)), sampler.sample(100).detach()
    posterior.predict(x)
    call, alone = quickest(lambda: posterior.predict(x)), quickest(lambda: livi.apply_many(layout, theta, x))
    print(json.dumps({"network": name, "milliseconds": 1e3 * call, "networks": 1e3 * alone}))
"""


def made(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({f"x{place}": rng.normal(size=rows).round(5) for place in range(8)})
    frame["town"] = rng.choice(["Aarhus", "Bath", "Chur", "Delft"], rows)
    frame["built"] = np.datetime_as_string(np.datetime64("2020-01-01") + rng.integers(0, 1000, rows))
    mean = np.sin(2.0 * frame["x0"]) + frame["x1"] * frame["x2"] + 0.5 * (frame["town"] == "Bath")
    return frame.assign(y=mean + 0.3 * rng.normal(size=rows))


def run(folder: Path, threads: int, *arguments: str) -> dict[str, Any]:
    """One command of the livi in this folder: seconds, CPU seconds, peak memory, and what it printed last."""
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": str(threads)}
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "livi", *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    printed = process.stdout.read().strip()
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        raise RuntimeError(f"livi {' '.join(arguments)}: ended with {status}; {printed}")
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss / 1024,  # kilobytes on Linux
        "said": printed.splitlines()[-1],
    }


def one_row(folder: Path, calls: int) -> list[dict[str, Any]]:
    """What ONE_ROW finds of the livi in this folder."""
    command = [sys.executable, "-c", ONE_ROW, str(calls)]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    printed = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_predict", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="20000,200000")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--calls", type=int, default=1000, help="of one row")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier livi")
    parser.add_argument("--out", type=Path, help="write the numbers there, as JSON")
    chosen = parser.parse_args()
    folders = {"now": HERE} | ({} if chosen.before is None else {"before": chosen.before.resolve()})
    found: list[dict[str, Any]] = []
    all_rows = [int(rows) for rows in chosen.rows.split(",") if rows]
    if all_rows:
        print("| livi | rows | threads | s | CPU s | peak MB |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as place:
        train, new, result = (str(Path(place) / name) for name in ("train.csv", "new.csv", "result.csv"))
        made(4000, 0).to_csv(train, index=False)
        for rows in all_rows:
            made(rows, 1).drop(columns="y").to_csv(new, index=False)
            for name, folder in folders.items():
                model = str(Path(place) / f"{name}.livi")
                if not Path(model).exists():
                    run(folder, 1, "fit", train, "--target", "y", "--out", model, "--steps", "300", "--quiet")
                for threads in map(int, chosen.threads.split(",")):
                    row = run(folder, threads, "predict", model, new, "--out", result, "--force", "--quiet")
                    found.append({"livi": name, "rows": rows, "threads": threads, **row})
                    numbers = f"{row['seconds']:.0f} | {row['cpu_seconds']:.0f} | {row['peak_mb']:.0f}"
                    print(f"| {name} | {rows:,} | {threads} | {numbers} |", flush=True)
    if found:
        said = next(row["said"] for row in reversed(found) if row["livi"] == "now")
        print(f"\n{said.partition('; ')[2]}\n")
    single = [{"livi": name} | row for name, folder in folders.items() for row in one_row(folder, chosen.calls)]
    print("| livi | network | ms a call | ms of its networks |\n|---|---|---|---|")
    for row in single:
        print(f"| {row['livi']} | {row['network']} | {row['milliseconds']:.2f} | {row['networks']:.2f} |")
    print(f"\nMachine: {machine()}")
    if chosen.out is not None:
        written = {"machine": machine(), "versions": versions(), "rows": found, "one_row": single}
        chosen.out.write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    main()
