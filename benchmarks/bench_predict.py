"""`livi predict` on long files: seconds, CPU seconds and peak memory by rows and threads, and beside an earlier livi.

python -m benchmarks.bench_predict [--rows N,...] [--threads N,...] [--before FOLDER] [--out FILE]

A made table of 8 numbers, a category and a date; a model of 4,000 of its rows; new rows as CSV. FOLDER is a checkout of
an earlier livi (`git worktree add FOLDER COMMIT`), which fits and predicts the same rows in the same run.
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

QUICK = ("--rows", "5000,10000", "--threads", "1")
FULL = ("--rows", "20000,200000,1000000", "--threads", "1,2")
HERE = Path(__file__).parents[1]


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_predict", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="20000,200000")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier livi")
    parser.add_argument("--out", type=Path, help="write the numbers there, as JSON")
    chosen = parser.parse_args()
    folders = {"now": HERE} | ({} if chosen.before is None else {"before": chosen.before.resolve()})
    found: list[dict[str, Any]] = []
    print("| livi | rows | threads | s | CPU s | peak MB |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as place:
        train, new, result = (str(Path(place) / name) for name in ("train.csv", "new.csv", "result.csv"))
        made(4000, 0).to_csv(train, index=False)
        for rows in map(int, chosen.rows.split(",")):
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
    said = next(row["said"] for row in reversed(found) if row["livi"] == "now")
    print(f"\n{said.partition('; ')[2]}\nMachine: {machine()}")
    if chosen.out is not None:
        chosen.out.write_text(json.dumps({"machine": machine(), "versions": versions(), "rows": found}, indent=1))


if __name__ == "__main__":
    main()
