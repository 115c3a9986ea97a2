"""The command `livi bench public`. Progress goes to stderr, the tables to stdout."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from livi.cli.benches import add_bench, run_bench
from livi.cli.extras import load
from livi.cli.options import names

DESCRIPTION = """\
Fit `livi fit`'s defaults and histogram boosting to tables that come with installable packages (pip install
"livi[bench]"), write DIR/public.json after every fit, and print Markdown tables of errors, log scores, coverage of 90 %
intervals or sets (overall, and in the worst fifth of the rows by size of the prediction), and seconds. A run that was
stopped goes on where it was.
"""

EXAMPLES = """\
examples:
  livi bench public --quick
  livi bench public --out results --jobs 8
  livi bench public --data diamonds,slid-wages --splits 3 --out wages
"""


def add_command(benches: argparse._SubParsersAction[Any]) -> None:
    command = add_bench(
        benches,
        "public",
        _run,
        summary="livi fit beside boosting, on tables that come with packages",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    command.add_argument("--data", type=names, metavar="NAME,...", help="default: all that are installed")
    command.add_argument("--splits", type=int, default=1, help="of each table (default %(default)s)")
    command.add_argument("--first-split", type=int, default=100, help="default %(default)s")
    command.add_argument("--max-rows", type=int, default=1_000_000, help="most rows to fit to (default %(default)s)")
    command.add_argument("--threads", type=int, default=1, help="threads of a fit (default %(default)s)")
    command.add_argument("--quick", action="store_true", help="a few steps only, to see that everything works")


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
