"""`python -m benchmarks` lists the benchmarks and runs the quick set of each; `all` runs them whole, `list` none.

A benchmark is a module `benchmarks/bench_<name>.py` that runs as a command and says how in two constants, QUICK and
FULL: its arguments for a run of about a minute on one CPU core, and for a run of everything.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", default="quick", choices=["quick", "all", "list"])
    what = parser.parse_args().what
    failed = []
    commands = []
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        module = importlib.import_module(f"benchmarks.{path.stem}")
        summary = (module.__doc__ or "").strip().splitlines()[0]
        print(f"{path.stem}: {summary}")
        for label, arguments in (("quick", module.QUICK), ("all", module.FULL)):
            print(f"  {label:5}  python -m {module.__name__} {' '.join(arguments)}")
        commands.append((module.__name__, module.FULL if what == "all" else module.QUICK))
    if what == "list":
        return 0
    for name, arguments in commands:
        print(f"\n--- {name} {' '.join(arguments)}", flush=True)
        if subprocess.run([sys.executable, "-m", name, *arguments]).returncode != 0:
            failed.append(name)
    if failed:
        print("failed:", ", ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
