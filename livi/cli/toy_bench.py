"""The command `livi bench toy`. Progress goes to stderr, the table to stdout."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from livi.cli.benches import JOBS, LIMIT, OUT, QUICK, speaker
from livi.cli.options import count, names
from livi.cli.parsing import new_command

DESCRIPTION = """\
Compare posterior predictions with NUTS on the paper's two toy problems. Fits every method with every seed, writes
DIR/toy.json after every fit, and prints a table. The same command continues an interrupted run.
"""


def add_command(benches: Any) -> None:
    command = new_command(
        benches,
        "toy",
        _run,
        summary="the paper's Figure 1 in numbers: two regression problems of 70 points, 105 weights, against NUTS",
        description=DESCRIPTION,
    )
    command.add_argument("--data", type=names, default=("A", "B"), help="problems: A, B or A,B (default)")
    command.add_argument("--seeds", type=int, help="number of seeds (default 5; 1 with --quick)")
    command.add_argument("--first-seed", type=int, default=100, help="number of the first seed (default %(default)s)")
    command.add_argument("--components", type=int, default=5, help="K of livi-mixture-K and ensemble-K (default 5)")
    command.add_argument(
        "--methods",
        type=names,
        metavar="NAME,...",
        help="livi, livi-sampled, livi-mixture-K, livi-polished, livi-annealed, ensemble-K, and any of "
        "livi.rivals.METHODS (default: all that are installed, except nuts)",
    )
    command.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help=OUT)
    command.add_argument("--jobs", type=count, default=1, help=JOBS)
    command.add_argument("--limit-minutes", type=float, metavar="M", help=LIMIT)
    command.add_argument(
        "--figure", type=Path, metavar="FILE", help="also draw the fits of the first seed, in one file for each problem"
    )
    command.add_argument(
        "--also",
        type=Path,
        nargs="+",
        default=[],
        metavar="TOY.JSON",
        help="results of other runs for the figure",
    )
    command.add_argument("--quick", action="store_true", help=QUICK)


def _run(chosen: argparse.Namespace) -> int:
    toy = importlib.import_module("livi.experiments.toy_bench")
    try:
        config = toy.Config(
            data=chosen.data,
            methods=chosen.methods or toy.default_methods(chosen.components),
            seeds=(1 if chosen.quick else 5) if chosen.seeds is None else chosen.seeds,
            first_seed=chosen.first_seed,
            quick=chosen.quick,
        )
    except ValueError as error:
        chosen.parser.error(str(error))
    say, first = speaker()
    document = toy.bench(config, chosen.out, say, jobs=chosen.jobs, minutes=chosen.limit_minutes)
    if first:
        print(toy.table(document["rows"]))
        if chosen.figure is not None:
            importlib.import_module("livi.report.toy").draw([chosen.out / toy.FILE, *chosen.also], chosen.figure)
    return 0
