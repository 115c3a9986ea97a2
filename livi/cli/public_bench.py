"""The command `livi bench public`. Progress goes to stderr, the tables to stdout."""

from __future__ import annotations

import argparse
from typing import Any

from livi.cli.benches import add_bench, configured, given, run_bench
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
        {"jobs": None, "splits": 1, "first-split": 100, "max-rows": 1_000_000, "threads": None, "quick": None},
        summary="livi fit compared with boosting, on tables that come with Python packages",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    command.add_argument("--data", type=names, metavar="NAME,...", help="tables (default: all that are installed)")


def _run(chosen: argparse.Namespace) -> int:
    bench = load("livi.experiments.public_bench")
    data = bench.available() if chosen.data is None else chosen.data
    options = given(chosen, "methods", "splits", "first_split", "max_rows", "threads", "quick")
    run_bench(chosen, bench, configured(chosen, lambda: bench.Config(data, **options)))
    return 0
