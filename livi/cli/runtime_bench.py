"""The command `livi bench runtime`: progress to stderr, tables to stdout, a figure to a file."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from livi.cli.benches import add_bench, can_draw, configured, exit_code, given, run_bench
from livi.cli.messages import say
from livi.cli.options import count

DESCRIPTION = """\
The paper's table of training time and memory, for LeNet on MNIST. Every method is fitted with more and more gradients,
twice as many each time, until the NLL of validation images no longer falls by more than a standard error. For the
shortest fit that was long enough, prints seconds, peak memory and NLL as a Markdown table next to the paper's, writes
them to DIR/runtime.json after every method, and draws them if matplotlib is installed. Every fit is a process of its
own; nothing else should run at the same time. The same command continues an interrupted run; other methods and seeds
are added to the file.

methods   as in livi bench mnist
data      mnist, from LIVI_DATA_DIR or the cache: livi data get mnist
"""
EXAMPLES = """\
examples:
  livi bench runtime --quick
  livi bench runtime --device cuda --limit-minutes 9 --out results     repeat until all is done
  livi bench runtime --methods livi,ensemble-5,mean_field,avb,mnf      the paper's five
"""


def add_command(benches: Any) -> None:
    command = add_bench(
        benches,
        "runtime",
        _run,
        {
            "methods": "default: all that can be run",
            "seeds": "default: 300",
            "device": None,
            "samples": "number of networks in a prediction (default 100)",
            "limit-minutes": None,
            "quick": None,
        },
        summary="seconds and memory that every method needs on MNIST until it no longer improves",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    command.add_argument("--gradients", type=count, help="gradients of the first fit (default 2500; 100 with --quick)")
    command.add_argument("--doublings", type=count, help="most doublings of these (default 4; 2 with --quick)")


def _run(chosen: argparse.Namespace) -> int:
    bench = importlib.import_module("livi.experiments.images.runtime")
    folder: Path = importlib.import_module("livi.experiments.datasets.pictures").data_folder()
    options: dict[str, Any] = {"gradients": 100, "doublings": 2} if chosen.quick else {}
    options |= given(chosen, "methods", "seeds", "gradients", "doublings", "samples", "quick")
    config = configured(chosen, lambda: bench.Config(**options))
    document = run_bench(chosen, bench, config, folder=folder, device=chosen.device)
    if document is None:
        return 0
    rows = [row for row in document["rows"] if row["error"] is None]
    if rows and can_draw():
        path = bench.result_path(config, chosen.out).with_suffix(".png")
        importlib.import_module("livi.report.image_figures").draw_runtime(rows, path)
        say(f"drawn: {path}")
    return exit_code(document)
