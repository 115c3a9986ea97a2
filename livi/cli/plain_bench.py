"""The command `livi bench plain`. Progress goes to stderr, the tables to stdout."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from livi.cli.benches import add_bench, given, run_bench
from livi.cli.options import count, names, seeds

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
        summary="livi compared with the plain network that it starts from",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    command.add_argument("--only", type=names, metavar="NAME,...", help="problems (default: all with available data)")
    command.add_argument("--seeds", type=seeds, metavar="SEED,...", help="default: 300,301,302")
    command.add_argument(
        "--part",
        choices=("validation", "test"),
        default="test",
        help="which rows to score; choose settings by validation rows only (default %(default)s)",
    )
    command.add_argument("--steps", type=count, help="most steps of each fit, only to see that everything works")


def _run(chosen: argparse.Namespace) -> int:
    bench = importlib.import_module("livi.experiments.plain_bench")

    def configure(folder: Path | None) -> Any:
        return bench.Config(
            problems=bench.available(folder) if chosen.only is None else chosen.only,
            part=chosen.part,
            steps=chosen.steps,
            **given(chosen, "methods", "seeds"),
        )

    return run_bench(chosen, bench, configure)
