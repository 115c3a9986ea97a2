"""The command `livi bench uci`. Progress goes to stderr, the tables to stdout."""

from __future__ import annotations

import argparse
from typing import Any

from livi.cli.benches import add_bench, configured, given, run_bench, uci_folder
from livi.cli.extras import load
from livi.cli.options import names

DESCRIPTION = """\
The paper's experiment: one hidden layer of 50 units on nine UCI regression sets with their published splits. For every
method, the best of three candidates (widths of the prior, or probabilities of dropout) is chosen on a fifth of the
training rows; it is then fitted to all training rows and scored on the test rows. All methods take the same number of
optimiser steps. Writes DIR/uci.json after every run, and prints Markdown tables of log likelihood and RMSE next to
published figures, ranks, and tests against the best rival. The same command continues an interrupted run; other sets,
methods and splits are added to the file.

sets     boston, concrete, energy, kin8nm, naval, power, protein, wine-red, yacht, in the folder uci of LIVI_DATA_DIR
methods  livi (L', last layer exact), livi-lanczos, livi-smallest (L''), the same with sampled last layer as
         livi-sampled, livi-sampled-lanczos, livi-sampled-smallest; map, ensemble (5), mean_field, mc_dropout, swag,
         ivon, laplace_last_layer, laplace_linearised, laplace_low_rank; only with --methods: livi-polished (chains
         from livi's draws), livi-mixture (5 components), full_rank, avb, kivi, sivi, mnf, nuts
"""

EXAMPLES = """\
examples:
  livi bench uci --sets yacht --splits 2 --steps 50 --out try
  livi bench uci --out results --jobs 12
  livi bench uci --out results --jobs 12 --limit-minutes 9      repeat until all is done
  livi bench uci --sets boston,yacht --methods livi,nuts --splits 3 --out nuts
"""


def add_command(benches: Any) -> None:
    command = add_bench(
        benches,
        "uci",
        _run,
        {"jobs": None, "splits": 20, "first-split": 0, "device": None, "limit-minutes": None},
        summary="the paper's UCI experiment: every method on nine regression sets",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    command.add_argument("--sets", type=names, metavar="NAME,...", help="default: all in the folder")
    command.add_argument("--steps", type=int, default=1000, help="steps of every fit (default %(default)s)")
    command.add_argument(
        "--search-rows", type=int, default=2000, help="most rows for the choice among candidates (default %(default)s)"
    )


def _run(chosen: argparse.Namespace) -> int:
    bench, folder = load("livi.experiments.uci.bench"), uci_folder()
    sets = bench.default_sets(folder) if chosen.sets is None else chosen.sets
    methods = bench.default_methods() if chosen.methods is None else chosen.methods
    options = given(chosen, "splits", "first_split", "steps", "search_rows", "device")
    run_bench(chosen, bench, configured(chosen, lambda: bench.Config(sets, methods, **options)), folder)
    return 0
