"""The command `livi bench densities`. Progress goes to stderr, the table to stdout."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from livi.cli.benches import add_bench, configured, draw_figure, given, run_bench
from livi.cli.options import count, names

DESCRIPTION = """\
Test livi.fit_density on densities p with known answers. Fits every method to every target with every seed, writes
DIR/densities.json after every fit, and prints a Markdown table of KL(q || p) in nats, the sliced 2-Wasserstein distance
to draws from p, and seconds. The same command continues an interrupted run.

targets   banana, x, mixture, funnel; logistic (a logistic regression, compared with NUTS) if numpyro is installed
methods   livi, sivi, full_rank, mean_field
"""

EXAMPLES = """\
examples:
  livi bench densities --steps 20 --seeds 0 --only banana
  livi bench densities --out results --jobs 2
"""


def add_command(benches: Any) -> None:
    command = add_bench(
        benches,
        "densities",
        _run,
        {"jobs": None, "seeds": "default: 400,401,402", "figure": None},
        summary="livi.fit_density, Gaussians and semi-implicit inference on densities with known answers",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    command.add_argument("--only", type=names, metavar="NAME,...", help="targets (default: all that can be made)")
    command.add_argument("--steps", type=count, help="steps of each fit (default: 1500)")


def _run(chosen: argparse.Namespace) -> int:
    bench = importlib.import_module("livi.experiments.density_bench")
    targets = bench.available() if chosen.only is None else chosen.only
    config = configured(chosen, lambda: bench.Config(targets, **given(chosen, "methods", "seeds", "steps")))
    if run_bench(chosen, bench, config) is not None:
        draw_figure(chosen, "densities", chosen.out / bench.FILE)
    return 0
