"""The command `livi bench plain`. Progress goes to stderr, the tables to stdout."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from livi.cli.benches import add_bench, configured, given, run_bench, uci_folder
from livi.cli.options import count, names

DESCRIPTION = """\
Is livi at least as good as the plain network that it starts from? Fits every method to every problem with every seed,
writes DIR/plain.json (with --part validation, DIR/plain-validation.json) after every fit, and prints Markdown tables of
NLL, accuracy or RMSE, ECE or coverage of 90 % intervals, and seconds. The same command continues an interrupted run.

problems  digits-mlp and digits-cnn (if scikit-learn is installed), moons, heteroscedastic, three-outputs; boston and
          energy, if they are in the folder uci of the folder that LIVI_DATA_DIR names
methods   plain (ordinary training), ensemble (five of them), livi (livi.fit without options), livi-net (livi.fit
          started at the trained plain network)
"""

EXAMPLES = """\
examples:
  livi bench plain --steps 20 --seeds 0
  livi bench plain --part validation --only digits-cnn,moons --methods plain,livi
  livi bench plain --out results --jobs 2
"""


def add_command(benches: Any) -> None:
    command = add_bench(
        benches,
        "plain",
        _run,
        {"jobs": None, "seeds": "default: 300,301,302", "part": None},
        summary="livi compared with the plain network that it starts from",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    command.add_argument("--only", type=names, metavar="NAME,...", help="problems (default: all with available data)")
    command.add_argument("--steps", type=count, help="most steps of each fit, only to see that everything works")


def _run(chosen: argparse.Namespace) -> int:
    bench, folder = importlib.import_module("livi.experiments.plain_bench"), uci_folder()
    problems = bench.available(folder) if chosen.only is None else chosen.only
    config = configured(chosen, lambda: bench.Config(problems, **given(chosen, "methods", "seeds", "part", "steps")))
    run_bench(chosen, bench, config, folder)
    return 0
