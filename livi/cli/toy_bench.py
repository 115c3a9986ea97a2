"""The command `livi bench toy`. Progress goes to stderr, the table to stdout."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from livi.cli.benches import add_bench, configured, draw_figure, given, run_bench
from livi.cli.options import names

DESCRIPTION = """\
Compare posterior predictions with NUTS on the paper's two toy problems. Fits every method with every seed, writes
DIR/toy.json after every fit, and prints a table. The same command continues an interrupted run.
"""


METHODS = """\
livi, livi-sampled, livi-mixture-K, livi-polished, livi-annealed, ensemble-K, and any of livi.rivals.METHODS (default:
all that are installed, except nuts)"""


def add_command(benches: Any) -> None:
    command = add_bench(
        benches,
        "toy",
        _run,
        {
            "methods": METHODS,
            "jobs": None,
            "limit-minutes": None,
            "figure": "also draw the fits of the first seed, in one file for each problem",
            "quick": None,
        },
        summary="the paper's Figure 1 in numbers: two regression problems of 70 points, 105 weights, against NUTS",
        description=DESCRIPTION,
    )
    command.add_argument("--data", type=names, default=("A", "B"), help="problems: A, B or A,B (default)")
    command.add_argument("--seeds", type=int, help="number of seeds (default 5; 1 with --quick)")
    command.add_argument("--first-seed", type=int, default=100, help="number of the first seed (default %(default)s)")
    command.add_argument("--components", type=int, default=5, help="K of livi-mixture-K and ensemble-K (default 5)")
    command.add_argument(
        "--also", type=Path, nargs="+", default=[], metavar="TOY.JSON", help="results of other runs for the figure"
    )


def _run(chosen: argparse.Namespace) -> int:
    bench = importlib.import_module("livi.experiments.toy_bench")
    options: dict[str, Any] = {"seeds": 1} if chosen.quick else {}
    options |= given(chosen, "seeds", "first_seed", "quick")

    def configure() -> Any:
        return bench.Config(chosen.data, chosen.methods or bench.default_methods(chosen.components), **options)

    if run_bench(chosen, bench, configured(chosen, configure)) is not None:
        draw_figure(chosen, "toy", chosen.out / bench.FILE, *chosen.also)
    return 0
