"""The command `livi bench public`. Progress goes to stderr, the tables to stdout."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from livi.cli.benches import FIRST_SPLIT, QUICK, THREADS, add_bench, run_bench
from livi.cli.extras import load
from livi.cli.options import names

DESCRIPTION = """\
Compare the defaults of `livi fit` with histogram gradient boosting, on tables that come with Python packages (pip
install "livi[bench]"). Writes DIR/public.json after every fit, and prints Markdown tables of errors, log scores,
coverage of 90 % intervals or sets (overall, and in the worst fifth of the rows by size of the prediction), and seconds.
The same command continues an interrupted run.
"""

EXAMPLES = """\
examples:
  livi bench public --quick
  livi bench public --out results --jobs 8
  livi bench public --data diamonds,slid-wages --splits 3 --out wages
"""


def add_command(benches: Any) -> None:
    command = add_bench(
        benches,
        "public",
        _run,
        summary="livi fit compared with boosting, on tables that come with Python packages",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    command.add_argument("--data", type=names, metavar="NAME,...", help="tables (default: all that are installed)")
    command.add_argument("--splits", type=int, default=1, help="splits of each table (default %(default)s)")
    command.add_argument("--first-split", type=int, default=100, help=FIRST_SPLIT)
    command.add_argument("--max-rows", type=int, default=1_000_000, help="most rows to fit to (default %(default)s)")
    command.add_argument("--threads", type=int, default=1, help=THREADS)
    command.add_argument("--quick", action="store_true", help=QUICK)


def _run(chosen: argparse.Namespace) -> int:
    bench = load("livi.experiments.public_bench")

    def configure(_: Path | None) -> Any:
        return bench.Config(
            data=bench.available() if chosen.data is None else chosen.data,
            methods=bench.METHODS if chosen.methods is None else chosen.methods,
            splits=chosen.splits,
            first_split=chosen.first_split,
            max_rows=chosen.max_rows,
            threads=chosen.threads,
            quick=chosen.quick,
        )

    return run_bench(chosen, bench, configure)
