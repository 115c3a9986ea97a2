"""The command `livi bench densities`. Progress goes to stderr, the table to stdout."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from livi.cli.benches import add_bench, run_bench
from livi.cli.options import count, names, seeds

DESCRIPTION = """\
Densities whose answers are known, by livi.fit_density: fit every method to every target under every seed, write
DIR/densities.json after every fit, and print a Markdown table of KL(q || p) in nats, of the sliced 2-Wasserstein
distance to draws of p, and seconds. A run that was stopped goes on where it was.

targets   banana, x, mixture, funnel; logistic (regression, by NUTS), where numpyro is installed
methods   livi, sivi, full_rank, mean_field
"""

EXAMPLES = """\
examples:
  livi bench densities --steps 20 --seeds 0 --only banana
  livi bench densities --out results --jobs 2
"""


def add_command(benches: argparse._SubParsersAction[Any]) -> None:
    command = add_bench(
        benches,
        "densities",
        _run,
        summary="livi.fit_density beside Gaussians and semi-implicit inference, where answers are known",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    command.add_argument("--only", type=names, metavar="NAME,...", help="targets (default: all that can be had)")
    command.add_argument("--seeds", type=seeds, metavar="SEED,...", help="default: 400,401,402")
    command.add_argument("--steps", type=count, help="of a fit (default: 1500)")
    command.add_argument("--figure", type=Path, metavar="FILE", help="also draw the fits of the first seed")


def _run(chosen: argparse.Namespace) -> int:
    bench = importlib.import_module("livi.experiments.density_bench")
    given = {"methods": chosen.methods, "seeds": chosen.seeds, "steps": chosen.steps}

    def configure(_: Path | None) -> Any:
        return bench.Config(
            targets=bench.available() if chosen.only is None else chosen.only,
            **{name: value for name, value in given.items() if value is not None},
        )

    code = run_bench(chosen, bench, configure)
    if chosen.figure is not None:
        importlib.import_module("livi.report.densities").draw(chosen.out / bench.FILE, chosen.figure)
    return code
